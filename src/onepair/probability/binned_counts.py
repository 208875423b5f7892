"""Known and unknown cells counted by class and score, and the rates at which they came to be known."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, Labels
from onepair.metrics import Floats
from onepair.probability.calibration import Platt, fit_lines
from onepair.probability.observation import Observation

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


_POOLED = 10.0  # cells of all classes together that the rates of every class see beside their own
HIGHEST_RATE = 1 - 1e-6


class KnownCells:
    """Cells counted by score, (B, L) each."""

    def __init__(self, scores: Floats, labels: Labels, observation: Observation, weights: Floats | None = None) -> None:
        self.tally, self.rows = Tally(scores), len(scores)
        bound, sums = ~observation.ignorable, self.tally.sums
        self.positive, self.negative = (sums(bound & (labels == value)) for value in (POSITIVE, NEGATIVE))
        self.unknown = sums(bound & (labels == UNKNOWN))
        self.known_positive = sums(labels == POSITIVE)
        self.weights = sums(labels != UNKNOWN) + self.unknown  # free unknown cells say nothing
        fair = (observation.ignorable & ~observation.asked) * (1.0 if weights is None else weights[:, None])
        self.sampled_positive = sums(fair * (labels == POSITIVE))
        self.sampled = self.sampled_positive + sums(fair * (labels == NEGATIVE))

    @property
    def negatives_share(self) -> float:
        """The share of the cells not shown to be positive that are known to be negative."""
        return float(self.negative.sum() / max((self.negative + self.unknown).sum(), 1))

    def lines(self, hidden: Floats, start: Platt | None = None) -> Platt:
        """Lines of least log loss, if so many of the unknown cells (B, L) are positive."""
        targets = ratio(self.known_positive + hidden, self.weights)
        return fit_lines(self.tally.scores, targets, self.weights, start)

    def negative_rates(self, hidden: Floats) -> Floats:
        """The share of negatives (L,) that is observed, if so many unknown cells (B, L) are positive; rare classes' are
        drawn to that of all.
        """
        known, cells = self.negative.sum(0), (self.negative + self.unknown - hidden).sum(0)
        together = known.sum() / max(cells.sum(), 1e-9)
        return np.asarray(np.minimum((known + _POOLED * together) / (cells + _POOLED), HIGHEST_RATE))


def ratio(part: Floats, whole: Floats) -> Floats:
    """Nothing of nothing is nothing."""
    share: Floats = np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)
    return share
