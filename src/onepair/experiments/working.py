"""How the processes of a study share its runs: each run is done by the one that holds its claim."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from onepair.experiments.study_cells import Cell
from onepair.files import locked, writing
from onepair.training.loop import TrainingError
from onepair.training.machine import Machine, Narrator
from onepair.training.run import train

SECONDS_BETWEEN_LOOKS = 1.0  # at runs that other processes are at work on


class StudyNarrator(Narrator, Protocol):
    """A narrator that is told how far a whole study is."""

    def stage(self, title: str, *, cells: int) -> None: ...
    def started(self, cell: Cell) -> None: ...
    def finished(self, cell: Cell) -> None: ...
    def waiting(self, cells: int) -> None: ...


@contextmanager
def claimed(cell: Cell) -> Iterator[None]:
    """Hold the claim to a run, which ends with this process, or raise `BusyError` if another one holds it."""
    path = cell.folder.path
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)
        with locked(path / ".claim"):
            yield


def do(cell: Cell, *, machine: Machine, watch: StudyNarrator, test: bool = True) -> None:
    """Do a run that is claimed; one that diverges is marked as failed."""
    watch.started(cell)
    cell.keep()
    cell.start_anew()  # where too little of an earlier run was kept
    try:
        train(cell.config, cell.folder, machine=machine, watch=watch, test=test)
    except TrainingError as error:
        cell.fail(str(error))
