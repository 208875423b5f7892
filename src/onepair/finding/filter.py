"""Which cells are worth a decision: thresholds by class, and the cells above them."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from onepair.finding.rank import check_cells
from onepair.labels import UNKNOWN
from onepair.metrics import Floats


def thresholds(labels: ArrayLike, probabilities: ArrayLike, missing: ArrayLike) -> Floats:
    """The probability of every class, shape (L,), above which lie as many unknown cells as labels are missing.

    Precision and recall of what is suggested are then about equal. 1 for a class that misses less than half a label.

    Args:
        labels, probabilities: (N, L), as for `rank`.
        missing: (L,), how many labels of each class are missing, as estimated.

    >>> thresholds([[-1], [-1], [-1]], [[0.9], [0.6], [0.1]], [2.2])
    array([0.6])
    """
    known, positive = check_cells(labels, probabilities)
    ranked = -np.sort(np.where(known == UNKNOWN, -positive, 0.0), axis=0)
    wanted = np.minimum(np.rint(missing).astype(int), (known == UNKNOWN).sum(0))
    last = ranked[np.maximum(wanted - 1, 0), np.arange(known.shape[1])]
    return np.where(wanted > 0, last, 1.0)


def likely(labels: ArrayLike, probabilities: ArrayLike, limits: ArrayLike) -> NDArray[np.bool_]:
    """The unknown cells (N, L) whose probability reaches the threshold of their class, one for all or (L,).

    >>> likely([[-1, -1], [1, -1]], [[0.9, 0.2], [0.8, 0.6]], 0.5)
    array([[ True, False], [False,  True]])
    """
    known, positive = check_cells(labels, probabilities)
    chosen: NDArray[np.bool_] = (known == UNKNOWN) & (positive >= np.asarray(limits))
    return chosen
