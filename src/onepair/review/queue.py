"""What `onepair find` left in a run's folder, in the order in which people are asked about it."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, FiniteFloat

from onepair.errors import DataError, ReviewError
from onepair.files import map_array, read_record
from onepair.finding.suggestions import LIKELY, Suggestions, read_suggestions
from onepair.labels import NEGATIVE, POSITIVE, Indices
from onepair.probability.intervals import Interval
from onepair.runs.finished import FinishedRun
from onepair.words import command

Order = Literal["probability", "worth", "class", "image", "second", "wrong"]
ORDERS: tuple[Order, ...] = get_args(Order)


class _Summary(BaseModel):
    """What is looked at of it."""

    missing: FiniteFloat
    missing_low: FiniteFloat
    missing_high: FiniteFloat


@dataclass(frozen=True, eq=False)
class Queue:
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

    @cached_property
    def wrong(self) -> NDArray[np.bool_]:
        """Which suggestions take a label away."""
        wrong: NDArray[np.bool_] = self.suggested == NEGATIVE
        return wrong

    def ordered(self, order: Order) -> Indices:
        """All suggestions, likely ones first: by probability, by worth, class by class, or image by image.

        In the order "wrong", those that take a label away come before all others.
        """
        rank = np.arange(len(self))
        if order == "worth":
            return np.lexsort((rank, self._turns(), ~self.likely))
        if order == "class":
            return np.lexsort((rank, self.columns, ~self.likely))
        if order == "image":
            _, first, image = np.unique(self.rows, return_index=True, return_inverse=True)
            return np.lexsort((rank, first[image], ~self.likely))
        if order == "wrong":
            return np.lexsort((rank, ~self.wrong))
        return rank

    def _turns(self) -> NDArray[np.float64]:
        """When each suggestion has its turn, if answers should teach as much as they can.

        An answer is worth its probability, and half, a third, … of it on an image that was asked about before. Classes
        take turns, those of which more is to be had more often: the k-th of a class, by worth, comes at k / Σ worth.
        """
        worth = self.probability / (1 + _places_within(self.rows, np.arange(len(self))))
        place = _places_within(self.columns, np.lexsort((np.arange(len(self)), -worth)))
        total = np.bincount(self.columns, worth)
        turns: NDArray[np.float64] = (place + 1) / total[self.columns]
        return turns


def _places_within(groups: Indices, order: Indices) -> Indices:
    """Where each entry stands in its own group, from 0, if all are put in an order.

    >>> _places_within(np.array([7, 7, 8, 7]), np.array([3, 2, 1, 0])).tolist()
    [2, 1, 0, 0]
    """
    together = order[np.argsort(groups[order], kind="stable")]
    _, starts, counts = np.unique(groups[together], return_index=True, return_counts=True)
    places = np.empty(len(groups), np.intp)
    places[together] = np.arange(len(groups)) - np.repeat(starts, counts)
    return places


def open_run(path: Path) -> FinishedRun:
    """A run to review; of a folder of runs, the one run that has suggestions."""
    return FinishedRun(folder_to_review(path))


def folder_to_review(path: Path) -> Path:
    """The folder of a run; of a folder of runs, that of the one run that has suggestions."""
    if (path / "config.toml").exists():
        return path
    found = sorted(source.parent.parent for source in path.glob("*/finding/suggestions.csv"))
    if len(found) > 1:
        raise ReviewError(f"{path}: holds several runs with suggestions; name one of them, as {found[0]}")
    if not found:
        raise ReviewError(f"{path}: holds no run with suggestions; name a run, and run onepair find on it first")
    return found[0]


def answers_file(run: FinishedRun) -> Path:
    """The file that keeps what people decide."""
    return run.path / "finding" / "review.sqlite"


def estimated_missing(run: FinishedRun) -> Interval | None:
    """How many labels `onepair find` said are missing; None if it left no summary."""
    try:
        summary = read_record(run.path / "finding" / "summary.json", _Summary)
    except DataError:
        return None
    return None if summary is None else Interval(summary.missing, summary.missing_low, summary.missing_high)


def read_queue(run: FinishedRun) -> Queue:
    """Read `finding/suggestions.csv`, and `finding/maps.npy` if it is there."""
    source = run.path / "finding" / "suggestions.csv"
    if not source.exists():
        raise ReviewError(f"{run.path}: nothing is suggested yet; run {command('find', run.path)} first")
    table, audited = run.table, np.zeros(0, np.intp) if run.audit is None else run.audit.rows
    rows = np.union1d(run.searched, audited)
    known = run.known.take(rows)
    answered = {table.files[row] for row in audited.tolist()}
    files = [table.files[row] for row in rows.tolist()]
    found = read_suggestions(source, known, files, table.classes, answered=answered)
    maps = _read_maps(run.path, found)
    left = ~np.isin(rows[found.row], audited)  # nobody is asked what an audit has answered
    if not left.any():
        raise ReviewError(
            f"{source}: an audit has answered all that it suggests; run {command('find', run.path)} again"
        )
    if not left.all():
        found, maps = found[left], None if maps is None else maps[left]
    observed = known[found.row, found.label]
    suggested = np.where(observed == POSITIVE, NEGATIVE, POSITIVE).astype(np.int8)
    return Queue(rows[found.row], found.label, suggested, found.probability, maps)


def _read_maps(folder: Path, found: Suggestions) -> NDArray[np.uint8] | None:
    source = folder / "finding" / "maps.npy"
    maps = map_array(source, np.uint8, 3, advice="run onepair find again", error=ReviewError)
    if maps is not None and (len(maps) != len(found) or 0 in maps.shape[1:]):
        raise ReviewError(
            f"{source}: does not hold one map for each of {len(found)} suggestions; run onepair find again"
        )
    return maps
