"""Statistics of scores that come in blocks of rows, because all of them are too many to be held; to the last bit those
of the whole matrix.

What is kept grows with the known labels: ranks need the scores of known positives alone, and the highest cells of a
class are as many as are wanted of it.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from onepair.label_matrix import LabelMatrix
from onepair.labels import NEGATIVE, UNKNOWN, Indices

ScoreRows = Callable[[Indices], NDArray[np.float32]]  # from rows (n,) to their scores (n, L)

_SORTS_FAST = 512  # numbers that numpy sorts several times faster, each, than more of them
_MOST_WAITING = 4_000_000  # candidates, before the lower ones are dropped


class ScoreBlocks(Protocol):
    """Scores (N, L) in blocks of rows, from the first to the last, each with its place; every pass gives the same."""

    def __iter__(self) -> Iterator[tuple[slice, NDArray[Any]]]: ...


def one_block(scores: NDArray[Any]) -> ScoreBlocks:
    """Scores (N, L) that are held as a whole, as one block."""
    return [(slice(0, len(scores)), scores)]


class Ranks(NamedTuple):
    """How far up the known positives of each class are; those of class l are at starts[l] : starts[l + 1].

    They ascend with their scores.
    """

    starts: Indices  # (L + 1,)
    positive: Indices  # known positives that score no less
    negative: Indices  # known negatives that score no less, if they were asked for
    reached: Indices  # cells of any kind that score no less

    def of(self, label: int) -> tuple[Indices, Indices, Indices]:
        own = slice(self.starts[label], self.starts[label + 1])
        return self.positive[own], self.negative[own], self.reached[own]


def rank_positives(
    blocks: ScoreBlocks, labels: LabelMatrix, *, negatives: bool = False, highest: "HighestUnknown | None" = None
) -> Ranks:
    """Look through all scores twice: for those of the known positives, and for how many cells score no less.

    Args:
        blocks: (N, L).
        labels: (N, L).
        negatives: whether known negatives are counted by themselves.
        highest: is shown every block of the second pass.
    """
    found = []
    for rows, block in blocks:
        row, column = labels.take(rows).positives()
        found.append((block[row, column], column))
    values, columns = (np.concatenate(each) for each in zip(*found, strict=True))
    order = np.lexsort((values, columns))
    values, starts = values[order], np.searchsorted(columns[order], np.arange(labels.shape[1] + 1))
    classes = np.flatnonzero(np.diff(starts))
    reached, negative = np.zeros(len(values), np.intp), np.zeros(len(values), np.intp)
    some_negative, some_unknown = negatives and labels.has(NEGATIVE), labels.has(UNKNOWN)

    def look(rows: slice, block: NDArray[Any], ascending: NDArray[Any]) -> None:
        _count(ascending, values, starts, classes, reached)
        if some_negative and some_unknown:
            _count(sort_classes(np.where(labels[rows] == NEGATIVE, block, -np.inf)), values, starts, classes, negative)
        if highest is not None:
            highest.add(rows, block, ascending)

    _look_while_scoring(blocks, look)
    positive = np.zeros(len(values), np.intp)
    for label in classes.tolist():
        own = values[starts[label] : starts[label + 1]]
        positive[starts[label] : starts[label + 1]] = len(own) - np.searchsorted(own, own, side="left")
    if some_negative and not some_unknown:
        negative = reached - positive
    return Ranks(starts, positive, negative, reached)


def _look_while_scoring(blocks: ScoreBlocks, look: Callable[[slice, NDArray[Any], NDArray[Any]], None]) -> None:
    """Show pieces of all blocks, plain and in order, to somebody in a thread while the next ones are computed."""
    with ThreadPoolExecutor(1) as pool:
        looked: Future[None] = pool.submit(lambda: None)
        for place, block in blocks:
            for start in range(0, len(block), _SORTS_FAST):
                piece = block[start : start + _SORTS_FAST]
                ascending = sort_classes(piece)
                looked.result()
                looked = pool.submit(
                    look, slice(place.start + start, place.start + start + len(piece)), piece, ascending
                )
        looked.result()


def sort_classes(block: NDArray[Any]) -> NDArray[Any]:
    """The scores (L, B) of each class in order."""
    columns = block.T.copy()
    columns.sort(axis=1)
    return columns


def _count(ascending: NDArray[Any], values: NDArray[Any], starts: Indices, classes: Indices, counts: Indices) -> None:
    """Add to counts (P,) how many of the scores of its class are at least each value."""
    size = ascending.shape[1]
    for label in classes.tolist():
        own, cells = slice(starts[label], starts[label + 1]), ascending[label]
        if own.stop - own.start <= size:
            counts[own] += size - cells.searchsorted(values[own], side="left")
        else:  # fewer searches the other way round: how many values each cell reaches
            reaching = np.bincount(values[own].searchsorted(cells, side="right"), minlength=own.stop - own.start + 1)
            counts[own] += reaching[:0:-1].cumsum()[::-1]


class HighestUnknown:
    """The highest-scored unknown cells of every class, as many as are wanted; among equal scores the first rows win."""

    def __init__(self, labels: LabelMatrix, most: Indices) -> None:
        """Args: labels (N, L); most (L,), how many are wanted of each class."""
        self.labels, self.most = labels, most
        self._floor = np.where(most > 0, -np.inf, np.inf)  # what is lower is none of them
        self._kept: list[tuple[Indices, Indices, NDArray[Any]]] = []  # rows, columns, scores
        self._waiting = 0

    def add(self, rows: slice, block: NDArray[Any], ascending: NDArray[Any] | None = None) -> None:
        """Look at the next block of scores (B, L), and if it is there at the same (L, B) in order within each class."""
        part = self.labels.take(rows)
        classes = np.arange(len(self.most)) if ascending is not None else np.flatnonzero(self._floor == -np.inf)
        in_order = sort_classes(block[:, classes]) if ascending is None else ascending
        # The n highest of a block are among its n + k highest cells, if k of its labels are known.
        place = (part.count(UNKNOWN) - self.most)[classes]
        lowest = in_order[np.arange(len(place)), np.clip(place, 0, len(block) - 1)]
        floor = self._floor.copy()
        floor[classes] = np.maximum(floor[classes], np.where(place >= 0, lowest, -np.inf))
        row, column = np.divmod(np.flatnonzero(block >= floor.astype(block.dtype)), block.shape[1])
        unknown = part[row, column] == UNKNOWN
        row, column = row[unknown], column[unknown]
        self._kept.append((row + rows.start, column, block[row, column]))
        self._waiting += len(row)
        if self._waiting > 2 * self.most.sum() + (0 if ascending is None else _MOST_WAITING):
            self._drop(self.most)

    def found(self, counts: Indices) -> tuple[Indices, Indices, NDArray[Any]]:
        """Rows, columns and scores of the highest ones, of each class so many (L,), at most as many as were wanted."""
        return self._drop(counts)

    def _drop(self, counts: Indices) -> tuple[Indices, Indices, NDArray[Any]]:
        row, column, score = (np.concatenate(each) for each in zip(*self._kept, strict=True))
        order = np.lexsort((-score, column))  # equal ones stay as they came: the first rows first
        row, column, score = row[order], column[order], score[order]
        first = np.searchsorted(column, np.arange(len(counts)))
        chosen = np.arange(len(column)) - first[column] < counts[column]
        row, column, score = row[chosen], column[chosen], score[chosen]
        self._kept, self._waiting = [(row, column, score)], 0
        full = np.flatnonzero((np.bincount(column, minlength=len(counts)) >= counts) & (counts > 0))
        last = np.searchsorted(column, full, side="right") - 1
        self._floor[full] = np.maximum(self._floor[full], score[last])
        return row, column, score
