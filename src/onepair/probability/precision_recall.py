"""What the labels of a model are worth to whoever uses them: how many are right, and how many are found."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from onepair.errors import import_pandas
from onepair.labels import POSITIVE, UNKNOWN, Indices, Labels
from onepair.metrics import Floats
from onepair.probability.intervals import TAILS, Interval
from onepair.words import counted

if TYPE_CHECKING:
    import pandas

PRECISIONS = (0.5, 0.7, 0.8, 0.9, 0.95)
DRAWS = 80  # for an interval
_GROUPS = 200  # of images that are drawn together for an interval
_SUREST, _STEP = 8.0, 0.1  # logits of labels lie within, and are counted by such steps
_BINS = round(2 * _SUREST / _STEP)
_POSTERIOR_SUREST, _POSTERIOR_BINS = 28.0, 280
_WIDTH = 2 * _POSTERIOR_SUREST / _POSTERIOR_BINS
_BLOCK = 2**20  # cells that are looked at at once


def share_of(share: Interval) -> str:
    """A share in words, for those who do not think in percent; its ends where it is hardly known.

    >>> share_of(Interval(0.14, 0.1, 0.2)), share_of(Interval(0.72, 0.6, 0.8)), share_of(Interval(0.4, 0.1, 0.8))
    ('1 in 7', '7 in 10', '1 in 10 to 8 in 10')
    """
    if not share.is_informative:
        return f"{_fraction(share.low)} to {_fraction(share.high)}"
    return _fraction(share.value)


def _fraction(share: float) -> str:
    if share < 0.01:
        return "next to none"
    return f"1 in {round(1 / share)}" if share < 0.4 else f"{round(10 * share)} in 10"


def in_ten(share: Interval) -> str:
    """How many of ten are right, with their interval.

    >>> in_ten(Interval(0.52, 0.4, 0.7)), in_ten(Interval(0.5, 0.1, 0.9))
    ('about 5 are right (4 to 7)', '1 to 9 are right')
    """
    value, low, high = (f"{10 * each:.0f}" for each in share)
    if not share.is_informative:
        return f"{low} to {high} are right"
    return f"about {value} are right ({low} to {high})" if low != high else f"{value} are right"


class Cut(NamedTuple):
    """What is found where so many of the labels must be right."""

    precision: float
    probability: float | None  # from which on labels are taken; None: from none on
    recall: Interval


class PrecisionRecall(NamedTuple):
    """Precision and recall of all labels together, with intervals of 95 %."""

    images: int  # that tell
    precision: Interval | None  # of the labels above their thresholds; None if there is none
    recall: Interval
    cuts: tuple[Cut, ...]

    @property
    def sentence(self) -> str:
        """One sentence for everybody.

        >>> cut = Cut(0.9, 0.8, Interval(0.14, 0.1, 0.2))
        >>> PrecisionRecall(400, Interval(0.5, 0.4, 0.7), Interval(0.74, 0.7, 0.8), (cut,)).sentence.split(": ")[1]
        'of 10 labels it gives, about 5 are right (4 to 7), and it finds 7 in 10 of all; to have 9 right, 1 in 7'
        """
        by = f"by {counted(self.images, 'image')}"
        if self.precision is None:
            return f"{by}: it gives no label, as none is at its threshold"
        vague = not (self.precision.is_informative and self.recall.is_informative)
        told = f"{by}: of 10 labels it gives, {in_ten(self.precision)}, and it finds {share_of(self.recall)} of all"
        better = next((each for each in self.cuts if each.precision == 0.9), None)
        if better is not None and self.precision.value < better.precision:
            told += f"; to have 9 right, {share_of(better.recall)}"
        return f"{told}. Complete 50 images to know: onepair audit" if vague else told

    def to_frame(self) -> "pandas.DataFrame":
        """Return a DataFrame with a row per precision: the probability that labels need, and the recall with its ends.

        The columns are precision, probability, recall, low and high.
        """
        rows = [(each.precision, each.probability, *each.recall) for each in self.cuts]
        return import_pandas().DataFrame(rows, columns=["precision", "probability", "recall", "low", "high"])

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "images": self.images,
            "precision": None if self.precision is None else self.precision._asdict(),
            "recall": self.recall._asdict(),
            "cuts": [{**each._asdict(), "recall": each.recall._asdict()} for each in self.cuts],
        }


def precision_recall(
    chances: Floats,
    predicted: NDArray[np.bool_],
    labels: Labels,
    probabilities: Floats,
    moves: Sequence[tuple[float, float]] = (),
    series: Indices | None = None,
) -> PrecisionRecall:
    """Precision and recall of labels above their thresholds, and recall where a precision is asked for.

    Cells are counted in bins of their chance, by groups of images. An interval holds what other images of this kind
    would give, by drawing groups with replacement, and other labels where these are unknown.

    Args:
        chances: (N, L), by the model, of a label to be right: labels are taken from a chance on.
        predicted: (N, L), the labels above their thresholds.
        labels: (N, L).
        probabilities: (N, L), of each cell to be positive given all that is known: 1 or 0 where it is known.
        moves: of the logits of unknown cells, by a factor and a step: what is expected first, and then `DRAWS` others.
        series: (N,), which images belong together, by number, and are drawn together; by default each is its own.

    Examples:
        >>> labels = np.array([[1], [1], [0], [0]])
        >>> chances = np.array([[0.9], [0.6], [0.7], [0.1]])
        >>> found = precision_recall(chances, chances > 0.5, labels, labels.astype(float))
        >>> round(found.precision.value, 2), found.recall.value, found.cuts[-1].recall.value
        (0.67, 1.0, 0.5)
    """
    random, member = np.random.default_rng(0), np.arange(len(labels)) if series is None else series
    groups = min(int(member.max()) + 1, _GROUPS)
    group = (random.permutation(int(member.max()) + 1) % groups)[member]
    counts = np.zeros((4, groups * 2 * _BINS))  # labels taken, known positives, unknown ones, and positives of these
    unsure = np.zeros(2 * _BINS * _POSTERIOR_BINS)
    size = max(1, _BLOCK // labels.shape[1])
    for own in (slice(start, start + size) for start in range(0, len(labels), size)):
        place = ((_logits(chances[own], _SUREST) + _SUREST) / _STEP).astype(np.intp) + _BINS * predicted[own]
        cell = (group[own, None] * 2 * _BINS + place).ravel()
        unknown = labels[own] == UNKNOWN
        parts = np.ones(unknown.shape), labels[own] == POSITIVE, unknown, np.where(unknown, probabilities[own], 0)
        for total, weights in zip(counts, parts, strict=True):
            total += np.bincount(cell, weights.ravel(), len(total))
        unsure += _by_posterior(place[unknown], probabilities[own][unknown])
    chosen, known, open_, expected = counts.reshape(4, groups, 2 * _BINS)
    shares = _shares(unsure.reshape(2 * _BINS, _POSTERIOR_BINS), moves)
    curves = []
    for draw in range(1 + DRAWS):
        weights = random.multinomial(groups, np.full(groups, 1 / groups)) if draw else np.ones(groups)
        number, hits, cells = weights @ chosen, weights @ known, weights @ open_
        positive = weights @ expected * (shares[draw] if len(shares) else 1)
        if draw:
            share = np.divide(positive, cells, out=np.zeros(2 * _BINS), where=cells > 0)
            positive = random.binomial(np.rint(cells).astype(np.intp), np.clip(share, 0, 1)).astype(np.float64)
        curves.append(_figures(number, hits + positive))
    values = np.array([each[0] for each in curves])
    low, high = np.nanquantile(values if predicted.any() else np.nan_to_num(values), TAILS, axis=0)
    intervals = [
        Interval(float(value), float(min(value, end)), float(max(value, other)))
        for value, end, other in zip(values[0], low, high, strict=True)
    ]
    cuts = tuple(map(Cut, PRECISIONS, curves[0][1], intervals[2:]))
    return PrecisionRecall(len(labels), intervals[0] if predicted.any() else None, intervals[1], cuts)


def _figures(number: Floats, hits: Floats) -> tuple[list[float], list[float | None]]:
    """Precision and recall of what is predicted, recall at each of the precisions; the probabilities for these."""
    total = max(hits.sum(), 1e-9)
    own = number[_BINS:].sum()
    figures = [hits[_BINS:].sum() / own if own else np.nan, hits[_BINS:].sum() / total]
    taken, right = (np.cumsum((each[:_BINS] + each[_BINS:])[::-1]) for each in (number, hits))
    precision = right / np.maximum(taken, 1e-9)
    limits: list[float | None] = []
    for wanted in PRECISIONS:
        good = np.flatnonzero((taken > 0) & (precision >= wanted - 1e-9))
        figures.append(right[good[-1]] / total if len(good) else 0.0)
        limits.append(float(expit(_SUREST - _STEP * (good[-1] + 1))) if len(good) else None)
    return figures, limits


def _by_posterior(place: NDArray[np.intp], probabilities: Floats) -> NDArray[np.intp]:
    """How many unknown cells each bin has of each posterior logit."""
    own = ((_logits(probabilities, _POSTERIOR_SUREST) + _POSTERIOR_SUREST) / _WIDTH).astype(np.intp)
    return np.bincount(place * _POSTERIOR_BINS + own, minlength=2 * _BINS * _POSTERIOR_BINS)


def _shares(counts: Floats, moves: Sequence[tuple[float, float]]) -> Floats:
    """How many times what is expected of the unknown cells in each bin each move makes of it (moves, bins)."""
    middles = (np.arange(_POSTERIOR_BINS) + 0.5) * _WIDTH - _POSTERIOR_SUREST
    factors, steps = np.array(moves).reshape(-1, 2, 1).swapaxes(0, 1)
    numbers = expit(factors * middles + steps) @ counts.T
    shares: Floats = numbers / np.maximum(numbers[:1], 1e-12)
    return shares


def _logits(chances: Floats, surest: float) -> Floats:
    """Logits within what is counted."""
    most = expit(surest - 1e-6)
    found: Floats = logit(np.clip(chances, 1 - most, most))
    return found
