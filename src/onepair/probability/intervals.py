"""Intervals: of shares, of how many labels of each class are missing, and by the bootstrap over images of figures of a
model and differences between two.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from onepair.labels import POSITIVE, UNKNOWN, Labels, validate_labels
from onepair.metrics import Floats, mean_average_precision, precision_recall_f1
from onepair.words import size

CONFIDENCE = 0.95
TAILS = ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2)
Z = 1.96  # standard errors to either end of an interval of 95 %
WIDEST = 0.5  # an interval of a share that says anything
WIDEST_FACTOR, FEW = 6.0, 10.0  # from end to end of an interval of a number, to say it; below so many it is said
RESAMPLES = 1000
_AT_ONCE = 100  # resamples; their counts of a few thousand images stay within a processor's cache


class Interval(NamedTuple):
    """Numbers, or arrays of one number per class, and the ends of their intervals of 95 %."""

    value: Any
    low: Any
    high: Any

    @property
    def is_wide(self) -> bool:
        """Whether the ends of the interval of a number are so far apart that no number between them should be said."""
        return bool(self.high > max(WIDEST_FACTOR * self.low, FEW))

    @property
    def in_words(self) -> str:
        """A number and its interval; of a wide one the sizes of its ends alone.

        >>> Interval(120.2, 60, 240).in_words, Interval(2500, 312, 5437).in_words, Interval(9, 0.2, 41).in_words
        ('120 (60 to 240)', '300 to 5,000', 'at most 40')
        """
        if not self.is_wide:
            return f"{self.value:,.0f} ({self.low:,.0f} to {self.high:,.0f})"
        return f"{size(self.low)} to {size(self.high)}" if self.low >= 1 else f"at most {size(self.high)}"

    @property
    def are_missing(self) -> str:
        """How many labels are missing; where that is hardly known, what tells it.

        >>> Interval(120.2, 60, 240).are_missing
        'about 120 are missing (60 to 240)'
        >>> Interval(2500, 312, 5437).are_missing
        'somewhere between 300 and 5,000 are missing: complete 50 images to know (onepair audit)'
        """
        if not self.is_wide:
            is_or_are = "is" if f"{self.value:.0f}" == "1" else "are"
            return f"about {self.value:,.0f} {is_or_are} missing ({self.low:,.0f} to {self.high:,.0f})"
        words = f"somewhere between {size(self.low)} and {size(self.high)}" if self.low >= 1 else self.in_words
        return f"{words} are missing: complete 50 images to know (onepair audit)"

    @property
    def is_informative(self) -> bool:
        """Whether the interval of a share is narrow enough to say anything."""
        return bool(self.high - self.low <= WIDEST)

    @property
    def excludes_zero(self) -> bool:
        """Whether a difference has one sign throughout the interval."""
        return bool(self.low > 0 or self.high < 0)


def wilson(found: ArrayLike, cells: ArrayLike, z: float = Z) -> tuple[Floats, Floats]:
    """Wilson's interval (1927) of a share that is seen in some cells: its ends, from 0 to 1 where there is no cell.

    >>> [[round(float(end), 3) for end in wilson(*counts)] for counts in ((7, 7), (5, 10), (0, 0))]
    [[0.646, 1.0], [0.237, 0.763], [0.0, 1.0]]
    """
    hits, number = np.asarray(found, np.float64), np.asarray(cells, np.float64)
    middle = hits + z**2 / 2
    squares = np.divide(hits**2, number, out=np.zeros(np.broadcast(hits, number).shape), where=number > 0)
    spread = np.sqrt(z**2 * (hits - squares + z**2 / 4))
    low, high = ((middle + sign * spread) / (number + z**2) for sign in (-1, 1))
    return np.maximum(low, 0), np.minimum(high, 1)


def pool(first: Interval, second: Interval) -> Interval:
    """Two estimates of one number from the same rows, weighed by how narrow their intervals are.

    Together they are no surer than the surer one.
    """
    precisions = [1 / np.maximum(each.high - each.low, 1e-9) ** 2 for each in (first, second)]
    share = precisions[1] / (precisions[0] + precisions[1])
    value = first.value + share * (second.value - first.value)
    reach = 0.5 / np.sqrt(np.maximum(*precisions))
    low, high = np.minimum(first.low, second.low), np.maximum(first.high, second.high)
    return Interval(value, np.maximum(value - reach, low), np.minimum(value + reach, high))


def count_missing(
    observed: Labels,
    probabilities: Floats,
    sample: Labels,
    sample_probabilities: Floats,
    *,
    weights: Floats | None = None,
) -> tuple[Interval, Interval]:
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
) -> Interval:
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
    return Interval(*(np.clip(end, 0, most) for end in (value, value - error, value + error)))


def paired_interval(difference: float, first: Floats, second: Floats) -> Interval:
    """The interval that holds 95 % of the differences, second minus first, of mAP on the same resamples."""
    low, high = np.quantile(second - first, TAILS)
    return Interval(difference, float(low), float(high))


class Figures(NamedTuple):
    """mAP, and precision, recall and F1 of all labels together."""

    map: Interval
    precision: Interval
    recall: Interval
    f1: Interval


def bootstrap_figures(
    scores: NDArray[Any], labels: Labels, predicted: NDArray[np.bool_], *, resamples: int = RESAMPLES, seed: int = 0
) -> Figures:
    """The figures of a model with the intervals that hold 95 % of them in resamples of the images.

    Resamples of a few labels that are all right are all right, too, which makes nothing sure: precision, recall and F1
    have at least Wilson's interval for as many labels, and so has the mAP of a ranking without a mistake for as many
    positives.

    Args:
        scores: (N, L).
        labels: (N, L), with at least one positive.
        predicted: (N, L), the labels that are predicted.
        resamples, seed: as for `resampled_maps`.
    """
    known = validate_labels(labels)
    hits, predictions, positives = (
        cells.sum(1, dtype=np.float64)
        for cells in (predicted & (known == POSITIVE), predicted & (known != UNKNOWN), known == POSITIVE)
    )
    drawn = np.concatenate(list(_draws(len(known), resamples, seed)), axis=1)  # (N, resamples)
    hit, chosen, there = (each @ drawn for each in (hits, predictions, positives))
    overall = precision_recall_f1(predicted, known, average="overall")
    values = (mean_average_precision(scores, known).value, *overall)
    resampled = (
        resampled_maps([scores], known, resamples=resamples, seed=seed)[0],
        hit / np.maximum(chosen, 1),
        hit / np.maximum(there, 1),
        2 * hit / np.maximum(chosen + there, 1),
    )
    ends = [np.quantile(each, TAILS) for each in resampled]
    of = (predictions.sum(), positives.sum(), (predictions.sum() + positives.sum()) / 2)
    perfect = positives.sum() if values[0] == 1 else 0.0
    least = [wilson(perfect, perfect) if perfect else (1.0, 0.0), *(wilson(hits.sum(), number) for number in of)]
    return Figures(
        *(
            Interval(float(value), float(min(low, lowest)), float(max(high, highest)))
            for value, (low, high), (lowest, highest) in zip(values, ends, least, strict=True)
        )
    )


def more_to_halve(images: int, population: int) -> int:
    """How many more images of a population make intervals half as wide: 1/m - 1/N = (1/n - 1/N) / 4 for m in the end.

    >>> more_to_halve(100, 10**9), more_to_halve(100, 1143), more_to_halve(1143, 1143)
    (300, 217, 0)
    """
    return math.ceil(1 / ((1 / images - 1 / population) / 4 + 1 / population) - images - 1e-6)


def resampled_maps(
    scores: Sequence[NDArray[Any]], labels: Labels, *, resamples: int = RESAMPLES, seed: int = 0
) -> Floats:
    """mAP of each run, (runs, resamples), on test images drawn anew with replacement, the same draws for all runs.

    A resample is how often each image was drawn. Counted that often, an image weighs in the average precision as its
    copies would, so every class is sorted once for all resamples, and sums along its order do the rest.

    Args:
        scores: of each run, (N, L).
        labels: (N, L).
        resamples, seed: how many draws, and of which random stream.

    >>> scores, labels = np.array([[0.9], [0.8], [0.7]]), np.array([[1], [0], [1]])
    >>> resampled_maps([scores, -scores], labels, resamples=4).shape
    (2, 4)
    """
    labels = validate_labels(labels)
    ranked = [[_rank(run[:, column], labels[:, column]) for column in range(labels.shape[1])] for run in scores]
    maps = []
    for counts in _draws(len(labels), resamples, seed):
        class_ap = np.array([[ranking.average_precision(counts) for ranking in run] for run in ranked])
        known = ~np.isnan(class_ap)
        maps.append(np.where(known, class_ap, 0).sum(axis=1) / np.maximum(known.sum(axis=1), 1))
    return np.concatenate(maps, axis=1)


def _draws(images: int, resamples: int, seed: int) -> Iterator[NDArray[np.float32]]:
    """How often each image is drawn, (images, some resamples), exact in single precision."""
    random = np.random.default_rng(seed)
    for start in range(0, resamples, _AT_ONCE):
        drawn = random.integers(images, size=(min(_AT_ONCE, resamples - start), images))
        counts = np.stack([np.bincount(each, minlength=images) for each in drawn], axis=1)
        yield counts.astype(np.float32)


class Ranking(NamedTuple):
    """The images of one class in order of their scores, cut where equal scores that hold a positive end."""

    order: NDArray[np.intp]  # images with a known label, best first, down to the last positive
    starts: NDArray[np.intp]  # where each piece of the order begins; all but its last images are negative or tied
    positives: NDArray[np.intp]  # images with a positive label, in the same order
    positive_starts: NDArray[np.intp]  # where those of each piece begin

    def average_precision(self, counts: NDArray[np.float32]) -> Floats:
        """AP for each resample, NaN where it drew no positive: 1/P Σ_pieces P_piece · ΣP / ΣN up to its end."""
        if len(self.positives) == 0:
            return np.full(counts.shape[1], np.nan)
        images = np.add.reduceat(counts[self.order], self.starts, axis=0).cumsum(axis=0)
        positives = np.add.reduceat(counts[self.positives], self.positive_starts, axis=0).astype(np.float64)
        found = positives.cumsum(axis=0)
        precision = found / np.maximum(images, 1)
        total = np.where(found[-1] > 0, found[-1], np.nan)
        average: Floats = (positives * precision).sum(axis=0) / total
        return average


def _rank(scores: NDArray[Any], labels: Labels) -> Ranking:
    known = np.flatnonzero(labels != UNKNOWN)
    order = known[np.argsort(-scores[known].astype(np.float64), kind="stable")]
    positive = labels[order] == POSITIVE
    ranked = -scores[order].astype(np.float64)
    ends = np.searchsorted(ranked, ranked[positive], side="right")  # of the equal scores each positive is among
    pieces, positive_starts = np.unique(ends, return_index=True)
    if len(pieces) == 0:
        nothing = np.zeros(0, np.intp)
        return Ranking(nothing, nothing, nothing, nothing)
    return Ranking(order[: pieces[-1]], np.r_[0, pieces[:-1]], order[positive], positive_starts)
