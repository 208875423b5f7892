"""Intervals: of shares, of differences, and of how many labels of each class are missing."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from onepair.labels import POSITIVE, UNKNOWN, Labels
from onepair.metrics import Floats

CONFIDENCE = 0.95
TAILS = ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2)
Z = 1.96  # standard errors to either end of an interval of 95 %
WIDEST = 0.5  # an interval of a share that says anything


class Interval(NamedTuple):
    """Numbers, or arrays of one number per class, and the ends of their intervals of 95 %."""

    value: Any
    low: Any
    high: Any

    @property
    def is_informative(self) -> bool:
        """Whether the interval of a share is narrow enough to say anything."""
        return bool(self.high - self.low <= WIDEST)

    @property
    def excludes_zero(self) -> bool:
        """Whether a difference has one sign throughout the interval."""
        return bool(self.low > 0 or self.high < 0)


def wilson(found: ArrayLike, cells: ArrayLike, z: float = Z) -> tuple[Floats, Floats]:
    """Wilson's interval (1927) of a share that is seen in some cells: its ends, from 0 to 1 where there is no cell.

    >>> [[round(float(end), 3) for end in wilson(*counts)] for counts in ((7, 7), (5, 10), (0, 0))]
    [[0.646, 1.0], [0.237, 0.763], [0.0, 1.0]]
    """
    hits, number = np.asarray(found, np.float64), np.asarray(cells, np.float64)
    middle = hits + z**2 / 2
    squares = np.divide(hits**2, number, out=np.zeros(np.broadcast(hits, number).shape), where=number > 0)
    spread = np.sqrt(z**2 * (hits - squares + z**2 / 4))
    low, high = ((middle + sign * spread) / (number + z**2) for sign in (-1, 1))
    return np.maximum(low, 0), np.minimum(high, 1)


def pool(first: Interval, second: Interval) -> Interval:
    """Two estimates of one number from the same rows, weighed by how narrow their intervals are.

    Together they are no surer than the surer one.
    """
    precisions = [1 / np.maximum(each.high - each.low, 1e-9) ** 2 for each in (first, second)]
    share = precisions[1] / (precisions[0] + precisions[1])
    value = first.value + share * (second.value - first.value)
    reach = 0.5 / np.sqrt(np.maximum(*precisions))
    low, high = np.minimum(first.low, second.low), np.maximum(first.high, second.high)
    return Interval(value, np.maximum(value - reach, low), np.minimum(value + reach, high))


def count_missing(
    observed: Labels,
    probabilities: Floats,
    sample: Labels,
    sample_probabilities: Floats,
    *,
    weights: Floats | None = None,
) -> tuple[Interval, Interval]:
    """Missing positives of each class, and of all, from a sample of rows with all labels that is drawn like the others.

        positives = Σ p_i + N × mean over the sample of (y_j - p_j),   missing = positives - observed

    The first term is what the model expects, the second corrects it by what the sample shows, so that the estimate is
    right on average however bad the model is; and the better the model, the narrower the interval.

    Args:
        observed: (N, L), the labels to complete.
        probabilities: (N, L), of each label to be positive by the scores alone, whether it is observed or not.
        sample, sample_probabilities: (M, L), full labels and the same of other rows.
        weights: (M,), the inverse of each row's chance to be in the sample, if they are not equal.
    """
    share = np.ones(len(sample)) if weights is None else weights
    share = share / share.sum()
    each, together = (
        _count(observed, probabilities, sample, sample_probabilities, share, groups)
        for groups in (np.eye(observed.shape[1]), np.ones(observed.shape[1]))
    )
    return each, together


def _count(
    observed: Labels,
    probabilities: Floats,
    sample: Labels,
    sample_probabilities: Floats,
    share: Floats,
    groups: Floats,
) -> Interval:
    """The same, for sums of classes: `groups` (L, G) says which; `share` is the weight of each row in a mean."""
    rows, residual = len(observed), ((sample == POSITIVE) - sample_probabilities) @ groups
    mean = share @ residual
    value = (probabilities.sum(0) - (observed == POSITIVE).sum(0)) @ groups + rows * mean
    # A class that the sample does not hold has no residuals to speak of, and is no surer for it.
    spread = np.maximum(
        share @ (residual - mean) ** 2, (sample_probabilities * (1 - sample_probabilities)).mean(0) @ groups
    )
    # The rows' own labels scatter about the model just as those of the sample do.
    error = Z * np.sqrt(spread * (rows + rows**2 * (share**2).sum()))
    most = (observed == UNKNOWN).sum(0) @ groups
    return Interval(*(np.clip(end, 0, most) for end in (value, value - error, value + error)))
