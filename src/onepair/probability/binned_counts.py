"""Known and unknown cells counted by class and score, and the rates at which they came to be known."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy

from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, Labels
from onepair.metrics import Floats
from onepair.probability.calibration import Platt, fit_lines
from onepair.probability.observation import Observation, Rates

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
_LIKE_NEGATIVES = 10.0  # cells that the rate of all positives sees beside them, observed as often as negatives are
HIGHEST_RATE = 1 - 1e-6


class KnownCells:
    """Cells counted by score, (B, L) each."""

    def __init__(self, scores: Floats, labels: Labels, observation: Observation, weights: Floats) -> None:
        self.max_shown, self.tally = observation.max_shown, Tally(scores)
        bound, sums = ~observation.ignorable, self.tally.sums
        self.positive, self.negative = (sums(bound & (labels == value)) for value in (POSITIVE, NEGATIVE))
        self.unknown = sums(bound & (labels == UNKNOWN))
        self.known_positive = sums(labels == POSITIVE)
        self.weights = sums(labels != UNKNOWN) + self.unknown  # free unknown cells say nothing
        fair = (observation.ignorable & ~observation.asked) * weights[:, None]
        self.sampled_positive = sums(fair * (labels == POSITIVE))
        self.sampled = self.sampled_positive + sums(fair * (labels == NEGATIVE))
        self.sampled_share = ratio(self.sampled_positive, self.sampled)
        # What was asked for had not been observed before, whatever it turned out to be.
        self.asked = [(observation.asked & (labels == value)).sum(0) for value in (POSITIVE, NEGATIVE)]
        # Of a row's m positives one was drawn; which of them is not known.
        shown = (labels == POSITIVE) & bound
        drawn = shown / np.maximum(shown.sum(1), 1)[:, None]
        self.extra = self.positive.sum(0) - (drawn.sum(0) if self.max_shown == 1 else 0)

    @property
    def negatives_share(self) -> float:
        """The share of the cells not shown to be positive that are known to be negative."""
        return float(self.negative.sum() / max((self.negative + self.unknown).sum(), 1))

    def lines(self, hidden: Floats, start: Platt | None = None) -> Platt:
        """Lines of least log loss, if so many of the unknown cells (B, L) are positive."""
        targets = ratio(self.known_positive + hidden, self.weights)
        return fit_lines(self.tally.scores, targets, self.weights, start)

    def rates(self, hidden: Floats, stop: Floats) -> Rates:
        """The shares of positives and of negatives that are observed, those of rare classes drawn to all.

        Beside a positive that is drawn, others are taken to be known at most as often as negatives are: a higher share
        can not be told from positives that come together. Where none is drawn, positives are taken to be known about as
        often as negatives, or as not where no negative is, as far as the labels do not say otherwise: they hardly do.
        """
        absent, known = (self.unknown - hidden).sum(0), self.negative.sum()
        negative = _pooled_share(self.negative.sum(0), absent + self.asked[1])
        usual = known / max(known + absent.sum(), 1e-9) if known else 0.5
        alike = 0.0 if self.max_shown else _LIKE_NEGATIVES
        positive = _pooled_share(self.extra, hidden.sum(0) + self.asked[0], usual, alike)
        beside = np.minimum(positive, negative)
        return Rates((positive, beside, np.zeros_like(negative))[min(self.max_shown, 2)], negative, stop)

    def known_at(self, rates: Rates) -> float:
        """The log likelihood of so many labels to be known that were not drawn."""
        beside = (
            xlogy(np.maximum(self.extra, 0), np.maximum(rates.positive, 1e-300)) if self.max_shown == 1 else np.zeros(1)
        )
        return float(beside.sum() + xlogy(self.negative.sum(0), np.maximum(rates.negative, 1e-300)).sum())


def ratio(part: Floats, whole: Floats) -> Floats:
    """Nothing of nothing is nothing."""
    share: Floats = np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)
    return share


def _pooled_share(known: Floats, unknown: Floats, usual: float = 0.0, cells: float = 0.0) -> Floats:
    """The share of each class that is known, drawn to that of all, which sees so many cells of the usual share."""
    together = (known.sum() + cells * usual) / max(known.sum() + unknown.sum() + cells, 1e-9)
    shares: Floats = np.minimum((known + _POOLED * together) / (known + unknown + _POOLED), HIGHEST_RATE)
    return shares
