"""How training looks: a live bar on a terminal, a line per epoch elsewhere."""

import math
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from onepair.words import counted, duration

if TYPE_CHECKING:
    from onepair.experiments.study import PlannedRun
    from onepair.training.run import TensorBoard


REFRESH = 0.1  # seconds
LONG_EPOCH = 10.0  # seconds
BETWEEN_LINES = 5.0  # seconds, of lines that only say how far it is


def error_console(*, quiet: bool = False) -> Console:
    """For what is told beside the results. Bars move on real terminals only; a notebook would show all their states."""
    return Console(stderr=True, highlight=False, quiet=quiet, force_terminal=None if sys.stderr.isatty() else False)


class Narration:
    """Tells of a run as it happens; a context manager, so that the bar goes away when the run ends."""

    def __init__(
        self, *, quiet: bool = False, short_epochs: bool = True, tensorboard: "TensorBoard | None" = None
    ) -> None:
        self.tensorboard = tensorboard
        self.short_epochs = short_epochs  # whether they are worth a line each, where there is no bar
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
        self.best = "–"
        self.shown = time.monotonic()

    def __enter__(self) -> "Narration":
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def say(self, sentence: str) -> None:
        """Runs that follow each other say the same things: once is enough."""
        if sentence not in self.said:
            self.said.add(sentence)
            self.console.print(sentence, markup=False, soft_wrap=True)

    def extraction(self, what: str = "extracting features") -> Any:
        tenths, said = -1, -math.inf

        def show(done: int, total: int) -> None:
            nonlocal tenths, said
            self._show(what, done, total, f"{done:,} of {counted(total, 'image')}")
            now = time.monotonic()
            if not self.console.is_terminal and done * 10 // total > tenths and now - said > BETWEEN_LINES:
                tenths, said = done * 10 // total, now
                self.say(f"{what}: {done:,} of {counted(total, 'image')}")

        return show

    def batch(self, *, stage: str, epoch: int, epochs: int, done: int, rows: int, loss: float) -> None:
        now = time.monotonic()
        if now - self.shown < REFRESH:
            return
        self.shown = now
        place = (epoch - 1) * rows + done
        detail = f"epoch {epoch}/{epochs}  loss {loss:.3f}  best mAP {self.best}"
        self._show(stage, place, epochs * rows, detail)

    def epoch(self, record: dict[str, Any]) -> None:
        if self.tensorboard is not None:
            self.tensorboard.epoch(record)
        marked = record["best_epoch"] == record["epoch"]
        score = f"{100 * record['validation_map']:.2f}"
        self.best = score if marked else self.best
        if not self.console.is_terminal and (self.short_epochs or record["seconds"] > LONG_EPOCH):
            self.say(
                f"{record['stage']} epoch {record['epoch']}: loss {record['loss']:.4f}, validation mAP {score}"
                f"{' (best)' if marked else ''}, {record['images_per_second']:,.0f} images/s"
            )

    def _show(self, title: str, done: int, total: int, detail: str) -> None:
        if not self.console.is_terminal:
            return
        if self.bar.tasks[0].description != title:
            self.bar.reset(self.task, description=title, visible=True)
        speed = self.bar.tasks[0].speed
        rate = f"  {speed:,.0f} images/s" if speed else ""
        self.bar.update(self.task, completed=done, total=total, detail=f"{detail}{rate}")


class StudyNarration(Narration):
    """Tells of a study as it goes on."""

    def __init__(self) -> None:
        super().__init__(short_epochs=False)
        self.all_runs = self.bar.add_task("", detail="", visible=False)
        self.done = self.total = 0
        self.begun = time.monotonic()

    def __enter__(self) -> "StudyNarration":
        super().__enter__()
        return self

    def stage(self, title: str, *, runs: int) -> None:
        self.done, self.total, self.begun = 0, runs, time.monotonic()
        self.bar.reset(self.all_runs, description=title, total=runs, visible=runs > 0)

    def started(self, run: "PlannedRun") -> None:
        self.best = "–"
        self.bar.reset(self.task, description="", visible=False)
        self.bar.update(self.all_runs, detail=run.title)

    def finished(self, run: "PlannedRun") -> None:
        self.done += 1
        self.bar.update(self.all_runs, completed=self.done)
        result = "failed" if run.failure else f"validation mAP {100 * run.folder.results().validation_map:.2f}"
        left = (time.monotonic() - self.begun) / self.done * (self.total - self.done)
        rest = f", about {duration(left)} left" if self.done < self.total else ""
        self.console.print(f"[{self.done}/{self.total}] {run.title}: {result}{rest}", markup=False, soft_wrap=True)

    def waiting(self, runs: int) -> None:
        self.say(f"waiting for {counted(runs, 'run')} that other processes are at work on")
