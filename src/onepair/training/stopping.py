"""When to save and when to stop: at the end of a batch, and for all processes at the same one."""

import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Any

import torch
from lightning_fabric import Fabric

from onepair.errors import Stopped

SECONDS_BETWEEN_CHECKPOINTS = 60.0
SECONDS_BETWEEN_LOOKS = 1.0  # of several processes, which have to wait for each other to look

_NAMES = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}


class Requests:
    """Takes note of Ctrl-C and SIGTERM instead of dying from them; a second one is obeyed at once."""

    def __init__(self) -> None:
        self.received = 0  # the number of the signal
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Requests":
        if threading.current_thread() is threading.main_thread():  # no other may ask for signals
            self._before = {number: signal.signal(number, self._take_note) for number in _NAMES}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _take_note(self, number: int, frame: FrameType | None) -> None:
        self.received = number
        self.__exit__(None, None, None)

    def obey(self, *, kept: str) -> None:
        """Stop, if that was asked for."""
        if self.received:
            raise stopped(self.received, kept=kept)


def stopped(number: int, *, kept: str, told: bool = True) -> Stopped:
    """The end of a run that a signal stopped; of several processes, one tells of it and has the signal's exit code."""
    sentence = f"stopped by {_NAMES[signal.Signals(number)]}; {kept}; the same command goes on"
    return Stopped(sentence if told else "", code=128 + number if told else 0)


class Agreement:
    """What the processes of a run agree on after every batch: whether it is time to save, and whether to stop.

    All call `look` after the same batches. Several of them look at their clocks and signals only every second or so,
    since to agree they have to wait for each other; after how many batches, they agree on as well.
    """

    def __init__(self, fabric: Fabric, requests: Requests) -> None:
        self.fabric, self.requests = fabric, requests
        self.between = self.left = 1  # batches from one look to the next
        self.looked = self.saved_at = time.monotonic()

    def look(self, *, surely: bool = False) -> tuple[int, bool]:
        """The signal that asks to stop, or 0, and whether to save; nothing, unless it is `surely` time to look."""
        self.left -= 1
        if self.left > 0 and not surely:
            return 0, False
        now = time.monotonic()
        due = now - self.saved_at > SECONDS_BETWEEN_CHECKPOINTS
        if self.fabric.world_size == 1:
            self.left = 1
            return self.requests.received, due
        in_time = int(self.between * SECONDS_BETWEEN_LOOKS / max(now - self.looked, 1e-6))
        wanted = [self.requests.received, due, max(1, min(in_time, 2 * self.between))]
        agreed: Any = self.fabric.all_reduce(torch.tensor(wanted, device=self.fabric.device), reduce_op="max")
        received, due, self.between = agreed.tolist()
        self.left, self.looked = self.between, now
        return received, bool(due)

    def saved(self) -> None:
        self.saved_at = time.monotonic()
