"""What commands print, as tables and estimates with their intervals, and what they say when they are stopped."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from onepair.errors import Stopped

if TYPE_CHECKING:
    from rich.table import Table

    from onepair.probability.precision_recall import PrecisionRecall

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


def print_worth(found: "PrecisionRecall") -> None:
    """What labels of a model are worth, in a sentence, and what is found where more of them must be right."""
    from rich.console import Console

    from onepair.words import percent

    console = Console(highlight=False, soft_wrap=True)
    console.print(found.sentence, markup=False)
    table = make_table(">right", ">from probability", ">finds of all", ">interval")
    for each in found.cuts:
        limit = "never" if each.probability is None else f"{each.probability:.2f}"
        ends = f"{percent(each.recall.low)} to {percent(each.recall.high)}"
        table.add_row(percent(each.precision), limit, percent(each.recall.value), ends)
    console.print(table)


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
