"""What commands print, as tables and estimates with their intervals, and what they say when they are stopped."""

import math
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from onepair.errors import Stopped

if TYPE_CHECKING:
    from rich.table import Table

    from onepair.probability.evaluation import Estimated

NOTHING = "nothing is half-written; the same command begins anew"
_SOON = 0.05  # seconds


def make_table(*titles: str, title: str | None = None) -> "Table":
    """An empty table, which folds what a narrow terminal has no room for; columns whose title begins with > are right.

    >>> [column.justify for column in make_table("class", ">AP").columns]
    ['left', 'right']
    """
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left")
    for each in titles:
        table.add_column(each.removeprefix(">"), justify="right" if each.startswith(">") else "left", overflow="fold")
    return table


def estimate_line(estimated: "Estimated") -> str:
    """Figures of all classes that known labels do not tell, and what they rest on; of some only that they are vague."""
    from onepair.words import NUMBERS, points

    figures = {"mAP": estimated.map, "precision": estimated.precision, "recall": estimated.recall, "F1": estimated.f1}
    told = (
        f"{name} {points(each.value)} ({points(each.low)} to {points(each.high)}){estimated.over * (name == 'mAP')}"
        for name, each in figures.items()
        if each.is_informative
    )
    vague = [name for name, each in figures.items() if not each.is_informative and not math.isnan(each.value)]
    known = f"estimated for all labels, {estimated.assumption} ({NUMBERS}): {', '.join(told) or 'nothing'}"
    nothing = ["nothing is predicted, so that there is no precision"] if math.isnan(estimated.precision.value) else []
    return "; ".join([known, *nothing, *([vague_line(vague)] if vague else [])])


def vague_line(names: Sequence[str]) -> str:
    """That labels say next to nothing of some figures, and what would.

    >>> vague_line(["precision", "F1"])
    'precision and F1 cannot be told from these labels: onepair audit lets a person complete those of some images'
    """
    which = " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
    return f"{which} cannot be told from these labels: onepair audit lets a person complete those of some images"


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
