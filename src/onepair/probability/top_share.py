"""How many positives there can be at most, where positives alone are known: what the highest scores show of it."""

import numpy as np
from numpy.typing import ArrayLike

from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, Labels
from onepair.metrics import Floats
from onepair.probability.counting import Z

_FEWEST = 10  # observed positives that tell of a class, and a tenth of them at least
_POOLED = 10.0  # cells of all classes together that every class sees beside its own
_UNSEEN = 2.0  # positives that may have been there beside those observed: a class that shows none may have some


def most_missing(scores: Floats, labels: Labels) -> tuple[Floats, float]:
    """The most positives that can be missing of each class, (L,), and of all together.

    If positives are as likely to be observed as each other, with a chance c, no part of the scores shows a larger share
    of observed positives than c. So the largest share that some top of the scores shows is c or less, and

        missing = observed (1 - c) / c

    is at most what it gives: about that where the top is pure, too many where even the highest scores are not all
    positive. Of many tops the one that looks best is a little too good, so the lower end of Wilson's interval of its
    share is taken: two standard errors below for each class, one for all together.

    Args:
        scores, labels: (N, L).
    """
    tops = np.array([_best_top(*column) for column in zip(scores.T, labels.T, strict=True)], np.float64)
    found, cells = tops.T
    observed, unknown = (labels == POSITIVE).sum(0), (labels == UNKNOWN).sum(0)
    together = unknown @ found / max(unknown @ cells, 1)  # the top of a class of which all is known is pure
    found, cells = found + _POOLED * together, cells + _POOLED
    least, share = (np.clip(_wilson_low(found, cells, z), 0.01, 0.99) for z in (Z, 1.0))
    by_class = np.minimum((observed + _UNSEEN) * (1 - least) / least, unknown)
    of_all = float(np.minimum(observed * (1 - share) / share, unknown).sum())
    return by_class, of_all


def _best_top(scores: Floats, labels: Labels) -> tuple[int, int]:
    """How many positives are observed among how many cells at the top; known negatives are left out."""
    candidates = labels != NEGATIVE
    order = np.argsort(-scores[candidates], kind="stable")
    falling, found = scores[candidates][order], np.cumsum(labels[candidates][order] == POSITIVE)
    if len(found) == 0 or found[-1] == 0:
        return 0, 0
    bound = _wilson_low(found, np.arange(1, len(found) + 1), Z)
    # Of many cuts some look good by chance, the smallest most of all.
    bound[found < min(max(_FEWEST, found[-1] / 10), found[-1])] = 0
    bound[:-1][falling[:-1] == falling[1:]] = 0  # no top ends between cells of one score
    best = int(np.argmax(bound))
    return int(found[best]), best + 1


def _wilson_low(found: ArrayLike, cells: ArrayLike, z: float) -> Floats:
    """The lower end of Wilson's interval of a share."""
    number = np.asarray(cells, np.float64)
    share = np.asarray(found, np.float64) / number
    error = z * np.sqrt(share * (1 - share) / number + z**2 / (4 * number**2))
    end: Floats = (share + z**2 / (2 * number) - error) / (1 + z**2 / number)
    return end
