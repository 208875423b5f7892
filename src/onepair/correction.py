"""Algorithm 1 of the paper: which unknown labels are taken for positive, and the precision that says how many."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from onepair.label_matrix import LabelMatrix
from onepair.labels import POSITIVE, UNKNOWN
from onepair.metrics import Floats
from onepair.score_blocks import HighestUnknown, ScoreBlocks, rank_positives


def label_correction(
    scores: ScoreBlocks, observed: LabelMatrix, *, label_num: float | None
) -> tuple[Floats, LabelMatrix]:
    """The average precision of every class, and the labels where the highest-scored unknowns of each are positive.

        Cornum_l = Obsnum_l · label_num · (1 - AP_l), rounded

    For AP, whatever was not observed positive counts as negative; without positives it is 0. Among equal scores the
    first rows win.

    Args:
        scores: (N, L), in blocks of rows; they are gone through twice.
        observed: (N, L).
        label_num: 0.8 on VOC, 1.2 on COCO, 1.1 on NUS, 22 on CUB in the paper; None: the labels stay as they are.

    Returns:
        AP (L,) and the labels (N, L).

    Examples:
        >>> from onepair.score_blocks import one_block
        >>> observed = LabelMatrix.of([[1], [1], [-1], [-1], [0]])
        >>> scores = np.array([[5.0], [1.0], [2.0], [3.0], [4.0]])
        >>> class_ap, corrected = label_correction(one_block(scores), observed, label_num=1.5)
        >>> class_ap, corrected.tolist()
        (array([0.7]), [[1], [1], [-1], [1], [0]])
    """
    shown = observed.count(POSITIVE)
    highest = None
    if label_num is not None:
        most = np.minimum(_counts(shown, label_num, np.zeros(len(shown))), observed.count(UNKNOWN))
        highest = HighestUnknown(observed, most)
    ranks = rank_positives(scores, observed, highest=highest)
    class_ap = np.zeros(len(shown))
    for label in np.flatnonzero(shown).tolist():
        positive, _, reached = ranks.of(label)
        class_ap[label] = np.mean(positive / reached)
    if highest is None or label_num is None:
        return class_ap, observed
    row, column, _ = highest.found(np.minimum(_counts(shown, label_num, class_ap), highest.most))
    return class_ap, observed.with_entries(row, column, POSITIVE)


def _counts(shown: NDArray[Any], label_num: float, class_ap: Floats) -> NDArray[np.int_]:
    """Cornum (L,), how many labels of each class are corrected."""
    return np.rint(shown * label_num * (1 - class_ap)).astype(int)
