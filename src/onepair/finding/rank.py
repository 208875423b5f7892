"""Which cells of a label matrix to look at first."""

import numpy as np
from numpy.typing import ArrayLike

from onepair.finding.suggestions import Suggestions
from onepair.labels import POSITIVE, UNKNOWN, Labels, validate_labels
from onepair.metrics import Floats


def rank(labels: ArrayLike, probabilities: ArrayLike) -> Suggestions:
    """Every cell as a suggestion, by the probability that there is something to find in it.

    An unknown label may be *missing*, with the probability that it is positive. An observed one may be *wrong*: a
    positive with the probability that it is negative, a negative with the probability that it is positive. Equal
    probabilities stay in the order of the matrix.

    Args:
        labels: (N, L) of 1 (positive), 0 (negative), -1 (unknown).
        probabilities: (N, L), of each cell to be truly positive, given all that is known, its own label included.

    >>> found = rank([[1, -1, 0]], [[0.7, 0.9, 0.05]])
    >>> list(zip(found.label.tolist(), found.kind.tolist(), found.probability.round(2).tolist()))
    [(1, 'missing', 0.9), (0, 'wrong', 0.3), (2, 'wrong', 0.05)]
    """
    known, positive = check_cells(labels, probabilities)
    finding = np.where(known == POSITIVE, 1 - positive, positive).ravel()
    order = np.argsort(-finding, kind="stable")
    row, label = np.divmod(order, known.shape[1])
    kind = np.where(known.ravel()[order] == UNKNOWN, "missing", "wrong")
    return Suggestions(row, label, finding[order], kind)


def check_cells(labels: ArrayLike, probabilities: ArrayLike) -> tuple[Labels, Floats]:
    """Labels and probabilities of one shape, or a sentence on what is not right about them."""
    known, positive = validate_labels(labels), np.asarray(probabilities, np.float64)
    if positive.shape != known.shape:
        raise ValueError(f"labels and probabilities must have one shape, got {known.shape} and {positive.shape}")
    outside = ~((positive >= 0) & (positive <= 1))
    if outside.any():
        row, column = (int(i) for i in np.argwhere(outside)[0])
        raise ValueError(f"probabilities: row {row}, column {column} is {positive[row, column]}, not from 0 to 1")
    return known, positive
