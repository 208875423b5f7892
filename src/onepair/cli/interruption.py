"""Ctrl-C and SIGTERM, as a sentence: what is kept, and how to go on."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from onepair.errors import Stopped

NOTHING = "nothing is half-written; the same command begins anew"

_SOON = 0.05  # seconds


class Terminated(Stopped):
    """SIGTERM, where nobody looks out for it."""


@contextmanager
def on_interrupt(kept: str) -> Iterator[None]:
    """For work that does not look out for signals itself, as training does; also to be used as a decorator."""
    try:
        yield
    except Terminated as stop:
        raise Stopped(f"{stop}; {kept}", code=stop.code) from None
    except Stopped:
        raise
    except KeyboardInterrupt:
        raise Stopped(f"stopped by Ctrl-C; {kept}", code=130) from None


@contextmanager
def terminable() -> Iterator[None]:
    """Let SIGTERM end the block as Ctrl-C does, so that everything is put in order, unless it means something else."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _terminate)
    try:
        with _heard():
            yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def _heard() -> Iterator[None]:
    """Send a signal again that got lost, as one does that comes while a library calls Python and takes no error."""
    usual = sys.unraisablehook

    def send_again(lost: "sys.UnraisableHookArgs") -> None:
        numbers = {Terminated: signal.SIGTERM, KeyboardInterrupt: signal.SIGINT}
        if lost.exc_type in numbers:
            threading.Timer(_SOON, signal.raise_signal, [numbers[lost.exc_type]]).start()
        else:
            usual(lost)

    sys.unraisablehook = send_again
    try:
        yield
    finally:
        sys.unraisablehook = usual


def _terminate(number: int, frame: FrameType | None) -> None:
    raise Terminated("stopped by SIGTERM", code=128 + number)
