"""How fast people answer, and who has what in hand."""

import time
from collections import defaultdict, deque
from collections.abc import Iterable
from datetime import datetime
from itertools import pairwise

from onepair.review.answers import Entry

BREAK = 120.0  # seconds without a decision that are a break, not time spent on one
RECENT = 200  # decisions that the pace is measured on
FEWEST = 5  # gaps between them
HOLD = 120.0  # seconds for which what one person looks at is not given to another


class Pace:
    """When everybody acted last."""

    def __init__(self, *, pause: float = BREAK, fewest: int = FEWEST) -> None:
        self.pause, self.fewest = pause, fewest
        self._times: dict[str, deque[datetime]] = defaultdict(lambda: deque(maxlen=RECENT))

    def note(self, entry: Entry) -> None:
        if entry.undoes is None:
            self._times[entry.who].append(entry.time)

    def seconds(self, who: str) -> float | None:
        """How long one decision takes somebody, without breaks; None until there are a few."""
        gaps = ((later - earlier).total_seconds() for earlier, later in pairwise(tuple(self._times[who])))
        working = [gap for gap in gaps if gap < self.pause]
        return sum(working) / len(working) if len(working) >= self.fewest else None


class Hands:
    """What everybody looks at now, by number, so that others get something else."""

    def __init__(self) -> None:
        self._hands: dict[str, tuple[float, list[int]]] = {}

    def take(self, numbers: Iterable[int], *, who: str) -> None:
        self._hands[who] = time.monotonic(), list(numbers)

    def others(self, who: str) -> set[int]:
        """What is before others than `who`."""
        held = [
            numbers
            for other, (since, numbers) in list(self._hands.items())
            if other != who and time.monotonic() - since < HOLD
        ]
        return {number for numbers in held for number in numbers}
