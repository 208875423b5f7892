"""Ctrl-C and SIGTERM, as a sentence: what is kept, and how to go on."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from onepair.errors import Stopped

NOTHING = "nothing is half-written; the same command begins anew"


class Terminated(Stopped):
    """SIGTERM, where nobody looks out for it."""


@contextmanager
def on_interrupt(kept: str) -> Iterator[None]:
    """For work that does not look out for signals itself, as training does; also to be used as a decorator."""
    try:
        yield
    except KeyboardInterrupt:
        raise Stopped(f"stopped by Ctrl-C; {kept}", code=130) from None
    except Terminated as stop:
        raise Stopped(f"{stop}; {kept}", code=stop.code) from None


@contextmanager
def terminable() -> Iterator[None]:
    """Let SIGTERM end the block as Ctrl-C does, so that everything is put in order, unless it means something else."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _terminate(number: int, frame: FrameType | None) -> None:
    raise Terminated("stopped by SIGTERM", code=128 + number)
