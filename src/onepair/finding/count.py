"""How many labels of each class are missing, with an interval."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from onepair.labels import POSITIVE, UNKNOWN, Labels

Floats = NDArray[np.float64]

CONFIDENCE_Z = 1.96  # of an interval of 95 %
BOOTSTRAPS = 200


class Estimate(NamedTuple):
    """A number for every class, and the ends of its 95 % interval; each of shape (L,)."""

    value: Floats
    low: Floats
    high: Floats


def count_with_sample(observed: Labels, probabilities: Floats, sample: Labels, sample_probabilities: Floats) -> Estimate:
    """Missing positives of each class, from a sample of rows with all labels that is drawn like the others.

        positives = Σ p_i + N × mean over the sample of (y_j - p_j),   missing = positives - observed

    The first term is what the model expects, the second corrects it by what the sample shows, so that the estimate is
    right on average however bad the model is, and the better it is, the narrower the interval.

    Args:
        observed: (N, L), the labels to complete.
        probabilities: (N, L), of each label to be positive by the scores alone, whether it is observed or not.
        sample, sample_probabilities: (M, L), full labels and the same of other rows.
    """
    rows = len(observed)
    residual = (sample == POSITIVE) - sample_probabilities
    found = (observed == POSITIVE).sum(0)
    value = probabilities.sum(0) + rows * residual.mean(0) - found
    # The rows' own labels scatter about the model just as those of the sample do.
    error = CONFIDENCE_Z * np.sqrt(residual.var(0) * (rows + rows**2 / len(sample)))
    most = (observed == UNKNOWN).sum(0)
    return Estimate(*(np.clip(end, 0, most) for end in (value, value - error, value + error)))
