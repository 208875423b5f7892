"""How many labels of each class are missing."""

from typing import NamedTuple

import numpy as np

from onepair.labels import POSITIVE, UNKNOWN, Labels
from onepair.metrics import Floats

Z = 1.96  # standard errors to either end of an interval of 95 %


class Estimate(NamedTuple):
    """How many there are of each class, (L,), or of all together, and an interval that probably holds it."""

    value: Floats
    low: Floats
    high: Floats


def pool(first: Estimate, second: Estimate) -> Estimate:
    """Two estimates of one number from the same rows, weighed by how narrow their intervals are.

    Together they are no surer than the surer one.
    """
    precisions = [1 / np.maximum(each.high - each.low, 1e-9) ** 2 for each in (first, second)]
    share = precisions[1] / (precisions[0] + precisions[1])
    value = first.value + share * (second.value - first.value)
    reach = 0.5 / np.sqrt(np.maximum(*precisions))
    low, high = np.minimum(first.low, second.low), np.maximum(first.high, second.high)
    return Estimate(value, np.maximum(value - reach, low), np.minimum(value + reach, high))


def count_missing(
    observed: Labels,
    probabilities: Floats,
    sample: Labels,
    sample_probabilities: Floats,
    *,
    weights: Floats | None = None,
) -> tuple[Estimate, Estimate]:
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
) -> Estimate:
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
    return Estimate(*(np.clip(end, 0, most) for end in (value, value - error, value + error)))
