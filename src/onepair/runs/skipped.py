"""What a run goes on without: rows of its label files, and images."""

from collections.abc import Iterable
from typing import NamedTuple

from onepair.data.checking import missing_file
from onepair.data.problems import Problem
from onepair.data.sources import exists
from onepair.runs.task import Task


class Skipped(NamedTuple):
    """Something that was left out."""

    file: str  # as the dataset names it; "" where a row does not tell
    reason: str
    place: str  # in the label files, as "labels.csv, line 7"; "" where they have no lines

    def __str__(self) -> str:
        return f"{self.place or self.file}: {self.reason}"


def skipped_cells(task: Task) -> list[Skipped]:
    """What was wrong with the label files."""
    return [Skipped("", problem.what, problem.where) for problem in task.found if not problem.remark]


def skipped_images(task: Task, problems: Iterable[Problem]) -> list[Skipped]:
    """The images of a task that cannot be read, by what was found at their paths."""
    table, found = task.table, {problem.where: problem for problem in problems}
    rows = [row for row in task.images.tolist() if str(table.path(row)) in found]
    return [_skipped_image(task, row, found[str(table.path(row))]) for row in rows]


def _skipped_image(task: Task, row: int, problem: Problem) -> Skipped:
    table = task.table
    place = table.places[row] if table.places else ""
    if not exists(table.path(row)):
        return Skipped(table.files[row], missing_file(table, row).what, place)
    return Skipped(table.files[row], f"{table.files[row]} {problem.what}" if place else problem.what, place)
