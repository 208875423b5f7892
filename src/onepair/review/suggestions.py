"""What `onepair find` left in a run's folder: labels that are probably missing or wrong, the most probable first."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from onepair.errors import UserError
from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, Indices
from onepair.training.config import DataConfig
from onepair.training.folder import RunFolder
from onepair.training.task import Task, prepare_task

Order = Literal["probability", "class", "image"]
ORDERS: tuple[Order, ...] = get_args(Order)

LIKELY = 0.5  # the probability from which on a suggestion is likely; the others are asked about last

_COLUMNS = ("file", "label", "probability", "kind")
_SUGGESTED = {("missing", UNKNOWN): POSITIVE, ("wrong", POSITIVE): NEGATIVE, ("wrong", NEGATIVE): POSITIVE}


class ReviewError(UserError, ValueError):
    """A run cannot be reviewed as it is."""


class ReviewedRun(NamedTuple):
    """A run to review, and what it was trained on."""

    folder: Path
    data: DataConfig
    task: Task

    @property
    def decisions(self) -> Path:
        """The file that keeps what people decide."""
        return self.folder / "finding" / "review.sqlite"


@dataclass(frozen=True, eq=False)
class Suggestions:
    """Suggestion i says that the label in row `rows[i]`, column `columns[i]` of the table should be `suggested[i]`."""

    rows: Indices  # (S,), as all but the maps
    columns: Indices
    suggested: NDArray[np.int8]  # POSITIVE or NEGATIVE
    probability: NDArray[np.float64]  # that the suggestion is right
    maps: NDArray[np.uint8] | None  # (S, h, w), where in the image the label is seen

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def likely(self) -> NDArray[np.bool_]:
        """Which suggestions are more likely right than not."""
        likely: NDArray[np.bool_] = self.probability >= LIKELY
        return likely

    def ordered(self, order: Order) -> Indices:
        """All suggestions, likely ones first: by probability, class by class, or image by image."""
        rank = np.arange(len(self))
        if order == "class":
            return np.lexsort((rank, self.columns, ~self.likely))
        if order == "image":
            _, first, image = np.unique(self.rows, return_index=True, return_inverse=True)
            return np.lexsort((rank, first[image], ~self.likely))
        return rank


def open_run(path: Path) -> ReviewedRun:
    """Read a run and its dataset; of a folder of runs, the one run that has suggestions."""
    folder = _find_run(path)
    data = replace(RunFolder(folder).config().data, fold=None)  # no image is held out from people
    return ReviewedRun(folder, data, prepare_task(data))


def read_suggestions(run: ReviewedRun) -> Suggestions:
    """Read `finding/suggestions.csv`, and `finding/maps.npy` if it is there."""
    source = _suggestions_file(run.folder)
    if not source.exists():
        raise ReviewError(f"{run.folder}: nothing is suggested yet; run onepair find {run.folder} first")
    cells = list(_read_cells(source, run.task))
    if not cells:
        raise ReviewError(f"{source}: suggests nothing, so there is nothing to review")
    rows, columns, suggested, probability = (np.array(values) for values in zip(*cells, strict=True))
    if len(np.unique(rows * len(run.task.table.classes) + columns)) < len(cells):
        raise ReviewError(f"{source}: suggests a label of an image twice; run onepair find again")
    return Suggestions(rows, columns, suggested.astype(np.int8), probability, _read_maps(run.folder, len(cells)))


def _find_run(path: Path) -> Path:
    if (path / "config.toml").exists():
        return path
    found = sorted(source.parent.parent for source in path.glob("*/finding/suggestions.csv"))
    if len(found) > 1:
        raise ReviewError(f"{path}: holds several runs with suggestions; name one of them, as {found[0]}")
    if not found:
        raise ReviewError(f"{path}: holds no run with suggestions; name a run, and run onepair find on it first")
    return found[0]


def _suggestions_file(folder: Path) -> Path:
    return folder / "finding" / "suggestions.csv"


def _read_cells(source: Path, task: Task) -> Iterator[tuple[int, int, int, float]]:
    """Row, column, suggested label and probability of each line."""
    place_of = {task.table.files[row]: place for place, row in enumerate(task.train.tolist())}
    column_of = {name: column for column, name in enumerate(task.table.classes)}
    with source.open(encoding="utf-8", newline="") as text:
        lines = csv.reader(text)
        header = next(lines, [])
        if not set(_COLUMNS) <= set(header):
            raise ReviewError(f"{source}: its columns are not {', '.join(_COLUMNS)}; run onepair find again")
        places = [header.index(name) for name in _COLUMNS]
        for line in lines:
            try:
                file, label, probability, kind = (line[place] for place in places)
                place, column = place_of[file], column_of[label]
                suggested = _SUGGESTED[kind, int(task.observed[place, column])]
                yield int(task.train[place]), column, suggested, float(probability)
            except (KeyError, ValueError, IndexError):
                raise ReviewError(
                    f"{source}, line {lines.line_num}: does not fit the run's dataset; run onepair find again"
                ) from None


def _read_maps(folder: Path, count: int) -> NDArray[np.uint8] | None:
    source = folder / "finding" / "maps.npy"
    if not source.exists():
        return None
    try:
        maps: NDArray[np.uint8] = np.load(source, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError) as error:
        raise ReviewError(f"{source}: cannot be read ({error}); run onepair find again") from None
    if maps.dtype != np.uint8 or maps.ndim != 3 or len(maps) != count:
        raise ReviewError(f"{source}: does not hold one map for each of {count} suggestions; run onepair find again")
    return maps
