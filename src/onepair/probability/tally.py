"""Cells of every class counted by score: what lines and rates are fitted to costs the same for any number of rows."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from onepair.metrics import Floats

_SINGLE = 64  # highest scores of a class that have a bin of their own each
_GROWTH = 0.03  # of the bins below, as a share of their rank


class Tally:
    """Bins of rank, the narrower the higher: rare classes live among the highest scores of their columns."""

    scores: Floats  # (B, L), the mean of each bin

    def __init__(self, scores: Floats) -> None:
        rows, classes = scores.shape
        rank_bin = _bins_of_ranks(rows)
        self._cells = np.empty((rows, classes), np.int32)
        for column, values in enumerate(scores.T):
            order = np.argsort(-values, kind="stable")
            self._cells[order, column] = rank_bin * classes + column
        self.shape = (int(rank_bin[-1]) + 1, classes)
        self.scores = self.sums(scores) / np.bincount(rank_bin)[:, None]

    def sums(self, values: NDArray[Any]) -> Floats:
        """Sums (B, L) of the values (N, L) of each bin's cells."""
        numbers = values.ravel().astype(np.float64)
        flat = np.bincount(self._cells.ravel(), numbers, self.shape[0] * self.shape[1])
        return np.asarray(flat, np.float64).reshape(self.shape)


def _bins_of_ranks(rows: int) -> NDArray[np.intp]:
    """The bin of each rank, (rows,).

    >>> _bins_of_ranks(3)
    array([0, 1, 2])
    """
    starts = list(range(min(rows, _SINGLE)))
    while (following := starts[-1] + max(1, int(_GROWTH * (starts[-1] - _SINGLE)))) < rows:
        starts.append(following)
    bins: NDArray[np.intp] = np.searchsorted(starts, np.arange(rows), side="right") - 1
    return bins
