"""Algorithm 1 of the paper: which unknown labels are taken for positive, and the precision that says how many."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from onepair.label_matrix import LabelMatrix
from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, Labels
from onepair.metrics import Floats, average_precision
from onepair.score_blocks import HighestUnknown, ScoreBlocks, rank_positives


def training_ap(scores: Any, observed: Labels) -> Floats:
    """AP of every class, (L,), where all but observed positives is negative; 0 without positives."""
    return np.nan_to_num(average_precision(scores, np.maximum(observed, NEGATIVE)))


def label_correction(scores: NDArray[Any], observed: Labels, class_ap: Floats, *, label_num: float) -> Labels:
    """The observed labels (N, L), where the highest-scored unknowns of every class are positive.

        Cornum_l = Obsnum_l · label_num · (1 - AP_l), rounded

    Among equal scores the first rows win. label_num is 0.8 on VOC, 1.2 on COCO, 1.1 on NUS, 22 on CUB in the paper.

    >>> observed = np.array([[1], [1], [-1], [-1], [0]], np.int8)
    >>> scores = np.array([[5.0], [1.0], [2.0], [3.0], [4.0]])
    >>> label_correction(scores, observed, np.array([0.5]), label_num=1.0).T
    array([[ 1,  1, -1,  1,  0]], dtype=int8)
    """
    counts = _counts((observed == POSITIVE).sum(0), label_num, class_ap)
    corrected = observed.copy()
    for column, count in enumerate(counts.tolist()):
        unknown = np.flatnonzero(observed[:, column] == UNKNOWN)
        corrected[unknown[_highest(scores[unknown, column], count)], column] = POSITIVE
    return corrected


def correction_by_blocks(
    blocks: ScoreBlocks, observed: LabelMatrix, *, label_num: float | None
) -> tuple[Floats, LabelMatrix]:
    """`training_ap`, and the labels by `label_correction` with it, of scores that come in blocks; the same to the bit.

    Without `label_num` the labels stay as they are.
    """
    shown = observed.count(POSITIVE)
    highest = None
    if label_num is not None:
        most = np.minimum(_counts(shown, label_num, np.zeros(len(shown))), observed.count(UNKNOWN))
        highest = HighestUnknown(observed, most)
    ranks = rank_positives(blocks, observed, highest=highest)
    class_ap = np.zeros(len(shown))
    for label in np.flatnonzero(shown).tolist():
        positive, _, reached = ranks.of(label)
        class_ap[label] = np.mean(positive / reached)
    if highest is None or label_num is None:
        return class_ap, observed
    counts = np.minimum(_counts(shown, label_num, class_ap), highest.most)
    row, column, _ = highest.found(counts)
    return class_ap, observed.with_entries(row, column, POSITIVE)


def _counts(shown: NDArray[Any], label_num: float, class_ap: Floats) -> NDArray[np.int_]:
    """Cornum (L,), how many labels of each class are corrected."""
    return np.rint(shown * label_num * (1 - class_ap)).astype(int)


def _highest(scores: NDArray[Any], count: int) -> NDArray[np.bool_]:
    """The mask of the `count` highest scores; selecting the lowest of them is much faster than sorting all."""
    if count >= len(scores):
        return np.ones(len(scores), bool)
    if count == 0:
        return np.zeros(len(scores), bool)
    lowest = np.partition(scores, -count)[-count]
    above, level = scores > lowest, scores == lowest
    chosen: NDArray[np.bool_] = above | (level & (level.cumsum() <= count - above.sum()))
    return chosen
