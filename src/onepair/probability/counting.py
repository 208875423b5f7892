"""How many labels of each class are missing."""

import numpy as np

from onepair.labels import POSITIVE, UNKNOWN, Labels
from onepair.metrics import Floats
from onepair.probability.observation import Estimate

_Z = 1.96  # standard errors to either end of an interval of 95 %


def count_missing(
    observed: Labels, probabilities: Floats, sample: Labels, sample_probabilities: Floats
) -> tuple[Estimate, Estimate]:
    """Missing positives of each class, and of all, from a sample of rows with all labels that is drawn like the others.

        positives = Σ p_i + N × mean over the sample of (y_j - p_j),   missing = positives - observed

    The first term is what the model expects, the second corrects it by what the sample shows, so that the estimate is
    right on average however bad the model is; and the better the model, the narrower the interval.

    Args:
        observed: (N, L), the labels to complete.
        probabilities: (N, L), of each label to be positive by the scores alone, whether it is observed or not.
        sample, sample_probabilities: (M, L), full labels and the same of other rows.
    """
    by_class = _count(observed, probabilities, sample, sample_probabilities, np.eye(observed.shape[1]))
    return by_class, _count(observed, probabilities, sample, sample_probabilities, np.ones(observed.shape[1]))


def _count(
    observed: Labels, probabilities: Floats, sample: Labels, sample_probabilities: Floats, groups: Floats
) -> Estimate:
    """The same, for sums of classes: `groups` (L, G) says which."""
    rows, residual = len(observed), ((sample == POSITIVE) - sample_probabilities) @ groups
    value = (probabilities.sum(0) - (observed == POSITIVE).sum(0)) @ groups + rows * residual.mean(0)
    # The rows' own labels scatter about the model just as those of the sample do.
    error = _Z * np.sqrt(residual.var(0) * (rows + rows**2 / len(sample)))
    most = (observed == UNKNOWN).sum(0) @ groups
    return Estimate(*(np.clip(end, 0, most) for end in (value, value - error, value + error)))
