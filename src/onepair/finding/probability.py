"""From scores and observed labels to the probability that a label is positive."""

import numpy as np
from numpy.typing import NDArray

from onepair.calibration import fit_platt
from onepair.finding.count import Estimate, count_with_sample
from onepair.labels import UNKNOWN, Labels

Floats = NDArray[np.float64]


def probabilities_with_sample(
    observed: Labels, scores: NDArray[np.floating], sample: Labels, sample_scores: NDArray[np.floating]
) -> tuple[Floats, Estimate]:
    """Probabilities (N, L) of every cell to be positive, and how many positives are missing, from fully labelled rows."""
    platt = fit_platt(sample_scores.reshape(-1, sample.shape[1]), np.tile(sample, (len(sample_scores), 1)))
    probabilities = platt(scores)
    missing = count_with_sample(observed, probabilities, sample, platt(sample_scores).mean(0))
    return probabilities, missing
