"""What the best epoch is selected by where not all validation labels are known: an estimate of the mAP with all."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from onepair.label_matrix import LabelMatrix
from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN
from onepair.metrics import Floats, matrices
from onepair.score_blocks import ScoreBlocks, rank_positives

Counts = NDArray[np.intp]


def estimated_map(scores: Any, labels: Any) -> float:
    """The mean over classes of `estimated_average_precision`; with all labels known, of the average precision itself.

    Args:
        scores: (N, L), numpy or torch, of rows that the model was not fitted to.
        labels: (N, L), known or unknown in any mix.

    >>> estimated_map([[0.9], [0.8], [0.7]], [[1], [0], [1]])
    0.8333333333333333
    >>> round(estimated_map([[0.9], [0.8], [0.7]], [[1], [-1], [1]]), 3)
    0.869
    """
    return _mean(estimated_average_precision(scores, labels))


def estimated_map_by_blocks(blocks: ScoreBlocks, labels: LabelMatrix) -> float:
    """`estimated_map` of scores that come in blocks of rows; the same to the bit."""
    return _mean(_class_ap(blocks, labels))


def _mean(class_ap: Floats) -> float:
    averaged = class_ap[~np.isnan(class_ap)]
    if len(averaged) == 0:
        raise ValueError("no class has a known positive, so there is no average precision to estimate")
    return float(averaged.mean())


def estimated_average_precision(scores: Any, labels: Any) -> Floats:
    """The average precision that every class would have if all labels were known, shape (L,): its expected value.

    Average precision is the mean precision at the positives. At each observed one, of the cells that score no less, T
    are known positive, G known negative and U unknown. Two estimates of the precision there are combined,

        (T + H) / (T + G + U),   H = E_c min(U, (T-1) (1-c)/c),   c uniform from k to 1     (1)
        T / (T + G)                                                                         (2)

    (1) holds where the positives of a class are as likely to be observed as each other, with a chance c: then T-1
    observed beside the one at hand stand for (T-1)/c in all. c can not be read off the labels, and an estimate of it
    from the scores would change from epoch to epoch; what is known is that it lies above the share k of known cells, if
    negatives are noted no more often than positives. (2) holds where negatives are noted as often as positives, and
    counts by the share of the cells not known positive that are known negative: 0 if only positives are known, all if
    nothing is unknown.

    Made to compare models: as c is averaged over, the value itself is too high where nearly all positives are observed
    but no negatives, and too low where few positives are.

    NaN for a class without known positives.
    """
    score_matrix, label_matrix = matrices(scores, labels)
    return _class_ap([(slice(0, len(score_matrix)), score_matrix)], LabelMatrix.of(label_matrix))


def _class_ap(blocks: ScoreBlocks, labels: LabelMatrix) -> Floats:
    ranks = rank_positives(blocks, labels, negatives=True)
    negatives, unknowns = labels.count(NEGATIVE), labels.count(UNKNOWN)
    class_ap = np.full(labels.shape[1], np.nan)
    for label in np.flatnonzero(labels.count(POSITIVE)).tolist():
        positive, negative, reached = ranks.of(label)
        unknown = reached - positive - negative
        class_ap[label] = _mean_precision(positive, negative, unknown, negatives[label], unknowns[label], len(labels))
    return class_ap


def _mean_precision(
    positive: Counts, negative: Counts, unknown: Counts, negatives: int, unknowns: int, rows: int
) -> float:
    """The estimate of a class, from the cells of each kind that score no less than each positive, and those in all."""
    by_known = positive / (positive + negative)
    if unknowns == 0:
        return float(by_known.mean())
    hidden = expected_hidden(positive - 1, unknown, least=1 - unknowns / rows)
    by_all = (positive + hidden) / (positive + negative + unknown)
    weight = negatives / (negatives + unknowns)
    return float((weight * by_known + (1 - weight) * by_all).mean())


def expected_hidden(observed: Counts, unknown: Counts, *, least: float) -> Floats:
    """How many of some unknown cells are positive, where so many positives were observed with an unknown chance.

        E min(unknown, observed (1-c)/c),   c uniform from `least` to 1

    Up to c* = observed / (observed + unknown) all of the unknown would be positive; beyond it, the integral of
    (1-c)/c is -log c* - (1 - c*).

    >>> expected_hidden(np.array([0, 1, 9]), np.array([5, 1, 1]), least=1e-9).round(3)
    array([0.   , 0.693, 0.948])
    """
    all_positive = np.clip(observed / np.maximum(observed + unknown, 1), least, 1.0)
    beyond = observed * (-np.log(all_positive) - (1 - all_positive))
    return np.asarray((unknown * (all_positive - least) + beyond) / (1 - least))
