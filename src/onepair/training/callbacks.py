"""Callbacks: what a program is told while training, finding or a study goes on; and how the command line shows it."""

import logging
import math
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from onepair.errors import require_extra
from onepair.words import counted, duration

if TYPE_CHECKING:
    from onepair.data.label_table import Problem

EpochRecord = dict[str, Any]
REFRESH = 0.1  # seconds
LONG_EPOCH = 10.0  # seconds
BETWEEN_LINES = 5.0  # seconds, of lines that only say how far it is


class Callback:
    """Hooks into a run; override those of interest.

    Of several processes, only the first calls them. Messages are not among them: they go to `logging`, under "onepair".

    Examples:
        >>> class Losses(Callback):
        ...     def on_epoch_end(self, record):
        ...         print(record["stage"], record["epoch"], record["loss"])
    """

    def on_stage_start(self, stage: str) -> None:
        """Before a stage ("linear" or "finetune") begins or goes on."""

    def on_stage_end(self, stage: str) -> None:
        """After a stage has ended."""

    def on_batch_end(self, *, stage: str, epoch: int, epochs: int, done: int, rows: int, loss: float) -> None:
        """After a step: `done` of `rows` images of the epoch are seen, with a mean loss of `loss`."""

    def on_epoch_end(self, record: EpochRecord) -> None:
        """After an epoch; `record` is what metrics.jsonl gets."""

    def on_progress(self, what: str, done: int, total: int) -> None:
        """While images are gone through, as in feature extraction; `what` says what for."""

    def on_problem(self, problem: "Problem") -> None:
        """For everything that is wrong with the labels, and every image that cannot be read."""

    def on_study_start(self, title: str, runs: int) -> None:
        """Before the runs of a study, of which so many are not done yet."""

    def on_run_start(self, name: str, title: str) -> None:
        """Before a run of a study."""

    def on_run_end(self, name: str, title: str, validation_map: float | None) -> None:
        """After a run of a study; its mAP is None where it failed."""


def progress_of(callbacks: Sequence[Callback], what: str) -> Callable[[int, int], None]:
    """A function that tells all callbacks how much is done of how much."""

    def on_progress(done: int, total: int) -> None:
        for callback in callbacks:
            callback.on_progress(what, done, total)

    return on_progress


class TensorBoardCallback(Callback):
    """Writes the curves of a run into a folder that TensorBoard reads."""

    CURVES = ("loss", "validation_map", "images_per_second")

    def __init__(self, folder: Path) -> None:
        require_extra("tensorboard")
        self.folder = folder
        self._writers: dict[str, Any] = {}

    def on_epoch_end(self, record: EpochRecord) -> None:
        """Add an epoch; a run that is resumed takes the place of what it had written from there on."""
        from torch.utils.tensorboard import SummaryWriter

        stage, epoch = record["stage"], record["epoch"]
        if stage not in self._writers:
            self._writers[stage] = SummaryWriter(self.folder / stage, purge_step=epoch)
        for name in self.CURVES:
            self._writers[stage].add_scalar(name, record[name], epoch)
        self._writers[stage].flush()


def error_console(*, quiet: bool = False) -> Console:
    """For what is told beside the results. Bars move on real terminals only; a notebook would show all their states."""
    return Console(stderr=True, highlight=False, quiet=quiet, force_terminal=None if sys.stderr.isatty() else False)


class ProgressCallback(Callback, logging.Handler):
    """Shows messages and progress while it is entered.

    Args:
        quiet: show nothing, as all processes but the first.
        short_epochs: whether short epochs are worth a line each, where there is no bar.
    """

    def __init__(self, *, quiet: bool = False, short_epochs: bool = True) -> None:
        super().__init__(logging.INFO)
        self.short_epochs = short_epochs
        self.said: set[str] = set()
        self.console = error_console(quiet=quiet)
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[detail]}"),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        self.task = self.bar.add_task("", detail="", visible=False)
        self.all_runs = self.bar.add_task("", detail="", visible=False)
        self.best = "–"
        self.shown = time.monotonic()
        self.tenths, self.line_at = -1, -math.inf  # of the last line on progress
        self.done = self.total = 0  # runs of a study
        self.begun = time.monotonic()

    def __enter__(self) -> "ProgressCallback":
        logger = logging.getLogger("onepair")
        self.usual_level = logger.level
        logger.setLevel(logging.INFO)
        logger.addHandler(self)
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()
        logger = logging.getLogger("onepair")
        logger.removeHandler(self)
        logger.setLevel(self.usual_level)

    def emit(self, record: logging.LogRecord) -> None:
        self._print(record.getMessage())

    def _print(self, sentence: str) -> None:
        """Runs that follow each other say the same things: once is enough."""
        if sentence not in self.said:
            self.said.add(sentence)
            self.console.print(sentence, markup=False, soft_wrap=True)

    def on_progress(self, what: str, done: int, total: int) -> None:
        line = f"{done:,} of {counted(total, 'image')}"
        self._show(what, done, total, line)
        tenths, now = done * 10 // total, time.monotonic()
        if tenths < self.tenths:  # something new
            self.tenths, self.line_at = -1, -math.inf
        if not self.console.is_terminal and tenths > self.tenths and now - self.line_at > BETWEEN_LINES:
            self.tenths, self.line_at = tenths, now
            self._print(f"{what}: {line}")

    def on_batch_end(self, *, stage: str, epoch: int, epochs: int, done: int, rows: int, loss: float) -> None:
        now = time.monotonic()
        if now - self.shown < REFRESH:
            return
        self.shown = now
        place = (epoch - 1) * rows + done
        detail = f"epoch {epoch}/{epochs}  loss {loss:.3f}  best mAP {self.best}"
        self._show(stage, place, epochs * rows, detail)

    def on_epoch_end(self, record: dict[str, Any]) -> None:
        marked = record["best_epoch"] == record["epoch"]
        score = f"{100 * record['validation_map']:.2f}"
        self.best = score if marked else self.best
        if not self.console.is_terminal and (self.short_epochs or record["seconds"] > LONG_EPOCH):
            self._print(
                f"{record['stage']} epoch {record['epoch']}: loss {record['loss']:.4f}, validation mAP {score}"
                f"{' (best)' if marked else ''}, {record['images_per_second']:,.0f} images/s"
            )

    def on_study_start(self, title: str, runs: int) -> None:
        self.done, self.total, self.begun = 0, runs, time.monotonic()
        self.bar.reset(self.all_runs, description=title, total=runs, visible=runs > 0)

    def on_run_start(self, name: str, title: str) -> None:
        self.best = "–"
        self.bar.reset(self.task, description="", visible=False)
        self.bar.update(self.all_runs, detail=title)

    def on_run_end(self, name: str, title: str, validation_map: float | None) -> None:
        self.done += 1
        self.bar.update(self.all_runs, completed=self.done)
        result = "failed" if validation_map is None else f"validation mAP {100 * validation_map:.2f}"
        left = (time.monotonic() - self.begun) / self.done * (self.total - self.done)
        rest = f", about {duration(left)} left" if self.done < self.total else ""
        self.console.print(f"[{self.done}/{self.total}] {title}: {result}{rest}", markup=False, soft_wrap=True)

    def _show(self, title: str, done: int, total: int, detail: str) -> None:
        if not self.console.is_terminal:
            return
        if self.bar.tasks[0].description != title:
            self.bar.reset(self.task, description=title, visible=True)
        speed = self.bar.tasks[0].speed
        rate = f"  {speed:,.0f} images/s" if speed else ""
        self.bar.update(self.task, completed=done, total=total, detail=f"{detail}{rate}")
