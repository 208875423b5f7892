"""How a study looks: a bar for all runs above the bar of the one at work, and a line for every run that is done."""

import time
from typing import TYPE_CHECKING

from onepair.cli.progress import Narration
from onepair.words import counted, duration

if TYPE_CHECKING:
    from onepair.experiments.search import Cell


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

    def stage(self, title: str, *, cells: int) -> None:
        self.done, self.total, self.begun = 0, cells, time.monotonic()
        self.bar.reset(self.all_runs, description=title, total=cells, visible=cells > 0)

    def started(self, cell: "Cell") -> None:
        self.best = "–"
        self.bar.reset(self.task, description="", visible=False)
        self.bar.update(self.all_runs, detail=cell.title)

    def finished(self, cell: "Cell") -> None:
        self.done += 1
        self.bar.update(self.all_runs, completed=self.done)
        result = "failed" if cell.failure else f"validation mAP {100 * cell.results().validation_map:.2f}"
        left = (time.monotonic() - self.begun) / self.done * (self.total - self.done)
        rest = f", about {duration(left)} left" if self.done < self.total else ""
        self.console.print(f"[{self.done}/{self.total}] {cell.title}: {result}{rest}", markup=False, soft_wrap=True)

    def waiting(self, cells: int) -> None:
        self.say(f"waiting for {counted(cells, 'run')} that other processes are at work on")
