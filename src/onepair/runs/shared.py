"""What many runs in one process have in common."""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

Thing = TypeVar("Thing")


class Shared:
    """Keeps what is slow to make and the same for many runs, each thing by all that decides it.

    >>> shared = Shared()
    >>> shared.once("table", lambda: [1, 2]) is shared.once("table", lambda: [3, 4])
    True
    """

    def __init__(self) -> None:
        self._made: dict[Hashable, Any] = {}

    def once(self, key: Hashable, make: Callable[[], Thing]) -> Thing:
        if key not in self._made:
            self._made[key] = make()
        made: Thing = self._made[key]
        return made
