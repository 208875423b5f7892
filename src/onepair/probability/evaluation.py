"""How good scores and decisions are, by the labels that are known, with unknown ones estimated."""

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import expit, logit

from onepair.errors import DataError, import_pandas
from onepair.label_matrix import LabelMatrix
from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, Indices, Labels
from onepair.metrics import (
    Floats,
    ScoreBlocks,
    average_precision,
    coverage,
    matrices,
    precision_recall_f1,
    rank_positives,
    ranking_loss,
)
from onepair.probability.infer import Inference, infer
from onepair.probability.intervals import TAILS, WIDEST, Interval, Z
from onepair.probability.observation import Observation, Process
from onepair.probability.precision_recall import DRAWS, PrecisionRecall, precision_recall
from onepair.probability.thresholds import Thresholds
from onepair.words import NOTHING, NUMBERS, counted, points

if TYPE_CHECKING:
    import pandas

_SHARPNESS_SD = 0.3  # of the logarithm of how steeply logits rise with the scores, before any known cell says
_SHAPE_SD = 0.1  # of the same, because a line is not quite their shape, whatever is known
_BLOCK = 2**19  # cells that are looked at at once: with all that is made of them they stay in the cache
_SUREST, _BINS = 28.0, 2_800  # logits of unknown cells lie within, and are counted in so many bins
OVERALL, _NAMES = ("map", "precision", "recall", "f1"), ("mAP", "precision", "recall", "F1")


class ClassFigures(NamedTuple):
    """Of one class; NaN where its labels do not tell."""

    ap: float
    precision: float
    recall: float
    f1: float


class Estimated(NamedTuple):
    """Figures that known labels do not tell, as expected from the probabilities of unknown ones."""

    assumption: str  # what they rest on
    map: Interval  # over the classes of which a positive is known: of others no ranking can be told
    precision: Interval
    recall: Interval
    f1: Interval
    classes: dict[str, ClassFigures]
    averaged_classes: int

    @property
    def over(self) -> str:
        """What the mAP is the mean of, where not of all classes."""
        every = len(self.classes)
        return f" over the {self.averaged_classes:,} of {every:,} classes with a known positive" * (
            self.averaged_classes < every
        )


def assumption(observation: Observation, labels: Labels) -> str:
    """What figures rest on where labels are unknown: the process by which they came to be known, by its name.

    Examples:
        >>> from onepair.probability.observation import recognise
        >>> labels = np.array([[1, -1], [-1, 1], [-1, 1]])
        >>> assumption(recognise(labels), labels)
        'if the process is single-positive'
    """
    free, known = observation.ignorable, labels != UNKNOWN
    if known.all():
        return "all labels are known"
    if observation.max_shown:
        name = "single-positive" if observation.max_shown == 1 else "few-positives"
    elif free.all():
        name = "regardless"
    else:
        name = "at-random" if ((labels == NEGATIVE) & ~free).any() else "positives-at-random"
    in_full, asked = int((free & known & ~observation.asked).all(1).sum()), int(observation.asked.sum())
    conditions = [f"{counted(in_full, 'image')} labelled in full"] * (in_full > 0)
    conditions += [f"{counted(asked, 'label')} asked for"] * (asked > 0)
    return " and ".join([f"if the process is {name}", *conditions])


def _with_interval(figure: Interval) -> str:
    """A figure and the ends of its interval; a dash where it is too wide to name one."""
    if math.isnan(figure.value):
        return NOTHING
    return (
        f"{points(figure.value) if figure.is_informative else NOTHING} ({points(figure.low)} to {points(figure.high)})"
    )


class Draw(NamedTuple):
    """How the logits of unknown cells are moved: by a factor, and then by a step."""

    factor: float
    step: float


def estimate(
    scores: NDArray[Any], predicted: NDArray[np.bool_], labels: Labels, inference: Inference, classes: Sequence[str]
) -> Estimated:
    """Expected figures of these rows, with intervals.

    How many labels are missing is what is least known, and every figure follows it: a draw is a number of missing
    labels within its interval, how steeply their probabilities rise with the scores, and labels drawn by these.
    Classes are looked at some at a time: of many, all together would take gigabytes.

    Args:
        scores, predicted, labels: (N, L).
        inference: of these scores and labels.
        classes: the names of the labels.
    """
    size = max(1, _BLOCK // len(scores))
    blocks = [slice(start, start + size) for start in range(0, len(classes), size)]
    random = np.random.default_rng(0)
    moves = _moves(scores, labels, inference, random)
    counts = np.concatenate(
        [
            _counts(scores[:, own], predicted[:, own], labels[:, own], inference.probabilities[:, own], moves, random)
            for own in blocks
        ],
        axis=2,
    )
    seen = (labels == POSITIVE).any(0)
    ap, *numbers = np.moveaxis(counts, 1, 0)  # (D+1, L) each
    together = np.stack([ap[:, seen].mean(1), *_shares(*(each.sum(1) for each in numbers))], axis=1)
    overall = [Interval(*map(float, each)) for each in _intervals(together).T]
    value, low, high = _intervals(np.stack([ap, *_shares(*numbers)], axis=1))
    narrow = np.where(high - low <= WIDEST, value, np.nan)
    named = {name: ClassFigures(*map(float, each)) for name, each in zip(classes, narrow.T, strict=True)}
    rests_on = assumption(inference.observation, labels)
    return Estimated(rests_on, overall[0], overall[1], overall[2], overall[3], named, int(seen.sum()))


def _moves(scores: NDArray[Any], labels: Labels, inference: Inference, random: np.random.Generator) -> list["Draw"]:
    size = max(1, _BLOCK // len(scores))
    blocks = [slice(start, start + size) for start in range(0, labels.shape[1], size)]
    cells = np.sum([_by_logit(labels[:, own], inference.probabilities[:, own]) for own in blocks], axis=0)
    return draws(inference.total, sharpness_error(scores, labels, inference), cells, random)


def draws(total: Interval, error: float, cells: NDArray[np.intp], random: np.random.Generator) -> list[Draw]:
    """What is expected, and then other numbers of missing labels, in equal steps of their probability.

    Args:
        total: how many labels are missing.
        error: of the logarithm of the factor.
        cells: (bins,), how many unknown ones there are of each logit.
        random: what shuffles the factors.
    """
    middles = (np.arange(_BINS) + 0.5) * 2 * _SUREST / _BINS - _SUREST
    at = np.array([0.0, *(NormalDist().inv_cdf((each + 0.5) / DRAWS) for each in range(DRAWS))])
    factors = np.exp(error * np.append(0, random.permutation(at[1:])))
    return [
        Draw(factor, _step(cells, factor * middles, number))
        for factor, number in zip(factors, missing_at(total, at), strict=True)
    ]


def sharpness_error(scores: NDArray[Any], labels: Labels, inference: Inference) -> float:
    """The standard error of the logarithm of how steeply logits rise with the scores.

    Known cells tell it that could have been known had they been otherwise, by the Fisher information of a slope beside
    an intercept, Σ w (z - mean z)² with w = q (1-q): q is the chance of a known cell of logit z to be positive.
    """
    rates, observation = inference.rates, inference.observation
    rows, columns = np.nonzero((labels != UNKNOWN) & (observation.ignorable if observation.max_shown else True))
    logits = scores[rows, columns] * inference.platt.slope[columns] + inference.platt.intercept[columns]
    odds = np.log(np.maximum(rates.positive, 1e-300)) - np.log(np.maximum(rates.negative, 1e-300))
    chance = expit(logits + np.where(observation.ignorable[rows, columns], 0, odds[columns]))
    weights = chance * (1 - chance)
    mean = weights @ logits / max(weights.sum(), 1e-300)
    error = 1 / np.sqrt(1 / _SHARPNESS_SD**2 + weights @ (logits - mean) ** 2)
    return float(np.hypot(error, _SHAPE_SD))


def missing_at(total: Interval, at: Floats) -> Floats:
    """The numbers so many standard errors from the middle: their logarithm, ½ added, has one to either side."""
    value, low, high = (np.log(np.asarray(each, np.float64) + 0.5) for each in total)
    error = np.where(at < 0, value - low, high - value) / Z
    numbers: Floats = np.maximum(np.exp(value + at * error) - 0.5, 0)
    return numbers


def _step(cells: NDArray[np.intp], logits: Floats, number: float) -> float:
    """What moves the logits of so many cells each, to expect this number of positives among them."""
    wanted = np.clip(number, 1e-6, max(cells.sum() * (1 - 1e-6), 1e-6))
    found: float = brentq(lambda step: np.log(max(cells @ expit(logits + step), 1e-300) / wanted), -100, 100, xtol=1e-4)
    return found


def _by_logit(labels: Labels, probabilities: Floats) -> NDArray[np.intp]:
    """Unknown cells, counted by their logits."""
    edges = np.linspace(-_SUREST, _SUREST, _BINS + 1)
    return np.histogram(_unsure(probabilities)[labels == UNKNOWN], edges)[0]


def _unsure(probabilities: Floats) -> Floats:
    """Logits within what is counted."""
    found: Floats = np.clip(logit(probabilities), 0.01 - _SUREST, _SUREST - 0.01)
    return found


def _counts(
    scores: NDArray[Any],
    predicted: NDArray[np.bool_],
    labels: Labels,
    probabilities: Floats,
    moves: Sequence[Draw],
    random: np.random.Generator,
) -> Floats:
    """AP of some classes, and how many of their labels are right, predicted and positive, (D, 4, L): what is expected
    by the first of the moves, and what labels have that are drawn by the others.

    A cell counts as positive by its probability p. Average precision adds up the precision at each positive, which that
    one is sure to be part of: p_i (1 + Σ p_j of those above) / i is expected of the i-th. Cells of one score are above
    each other, and all have the rank of the last of them.
    """
    unknown, logits = labels == UNKNOWN, _unsure(probabilities)
    order = np.argsort(-scores, axis=0, kind="stable")
    last = _last_of_ties(np.take_along_axis(scores, order, 0))
    tied = bool((last != np.arange(len(scores))[:, None]).any())
    chosen, found = predicted.sum(0), []
    for number, (factor, step) in enumerate(moves):
        chance = np.where(unknown, expit(factor * logits + step), probabilities)
        if number:
            chance = (random.random(chance.shape) < chance).astype(np.float64)
        right, positives = (chance * predicted).sum(0), chance.sum(0)
        falling = np.take_along_axis(chance, order, 0)
        above = np.cumsum(falling, axis=0)
        above = np.take_along_axis(above, last, 0) if tied else above
        gains = falling * (above - falling + 1) / (last + 1)
        found.append([gains.sum(0) / np.maximum(positives, 1e-9), right, chosen, positives])
    return np.array(found)


def _last_of_ties(falling: NDArray[Any]) -> NDArray[np.intp]:
    """Where the run of equal scores ends that each of the falling scores (N, L) is in, by column.

    >>> _last_of_ties(np.array([[0.9], [0.5], [0.5], [0.1]])).ravel()
    array([0, 2, 2, 3])
    """
    ends = np.ones(falling.shape, bool)
    ends[:-1] = falling[:-1] != falling[1:]
    places = np.where(ends, np.arange(len(falling))[:, None], len(falling))
    last: NDArray[np.intp] = np.minimum.accumulate(places[::-1], axis=0)[::-1]
    return last


def _shares(right: Floats, chosen: Floats, positives: Floats) -> tuple[Floats, Floats, Floats]:
    """Precision, which nothing has of which nothing is predicted, recall and F1."""
    return (
        np.divide(right, chosen, out=np.full(right.shape, np.nan), where=chosen > 0),
        right / np.maximum(positives, 1e-9),
        2 * right / np.maximum(chosen + positives, 1e-9),
    )


def _intervals(figures: Floats) -> Floats:
    """Of what is expected, and drawn, (1+D, …): the first, and the ends that hold 95 % of the others, and it."""
    value, drawn = figures[0], figures[1:]
    low, high = np.quantile(drawn, TAILS, axis=0)
    return np.stack([value, np.minimum(low, value), np.maximum(high, value)])


_FEWEST_NEGATIVES = 10  # known ones of a class, to judge it by
_LEAST_BALANCE = 0.5  # share of negatives that is known, by that of positives
_MOST_NAMES = 5  # of classes, in a sentence


class Evaluation(NamedTuple):
    """Of all classes together, and of each; NaN where known labels do not tell."""

    images: int
    map: float
    averaged_classes: int
    precision: float
    recall: float
    f1: float
    ranking_loss: float
    coverage: float
    classes: dict[str, ClassFigures]
    precision_recall: PrecisionRecall  # of all labels together, estimated where labels are unknown
    lacking: str = ""  # a sentence on what is missing to tell all figures
    estimated: Estimated | None = None  # what stands in their place, if labels are unknown
    metrics: Mapping[str, float] = MappingProxyType({})  # others that were asked for, on the known labels

    @property
    def sentence(self) -> str:
        """What the labels of the model are worth, in one sentence."""
        return self.precision_recall.sentence

    @property
    def line(self) -> str:
        """mAP, precision, recall and F1 in a line: as known labels tell them, else estimated with their intervals."""
        images, estimated = counted(self.images, "image"), self.estimated
        if estimated is None or not self.lacking:
            told = [f"{name} {points(value)}" for name, value in zip(_NAMES, self[2:6], strict=True)]
            of_map = f"mAP {100 * self.map:.2f} over {counted(self.averaged_classes, 'class')}"
            return f"{', '.join([of_map, *told[1:]])}; {images}" if not math.isnan(self.map) else f"no mAP; {images}"
        figures = zip(_NAMES, estimated[1:5], strict=True)
        told = [f"{name} {_with_interval(each)}{estimated.over * (name == 'mAP')}" for name, each in figures]
        return f"estimated for all labels of {images}, {estimated.assumption} ({NUMBERS}): {', '.join(told)}"

    def to_frame(self) -> "pandas.DataFrame":
        """Return a DataFrame with a row for each class; its figures are estimates where labels are unknown."""
        classes = self.classes if self.estimated is None else self.estimated.classes
        return import_pandas().DataFrame([each._asdict() for each in classes.values()], index=[*classes])

    def __repr__(self) -> str:
        if self.estimated is None:
            figures = [f"{name} {100 * getattr(self, name):.1f}" for name in OVERALL]
        else:
            found = {name: getattr(self.estimated, name) for name in OVERALL}
            figures = [
                f"{name} about {100 * each.value:.0f} ({100 * each.low:.0f} to {100 * each.high:.0f})"
                for name, each in found.items()
            ]
        return f"Evaluation({counted(self.images, 'image')}: {', '.join(figures)} %)"

    def to_dict(self) -> dict[str, Any]:
        """For JSON, which has no NaN: None stands for it."""
        classes = {name: _without_nan(figures._asdict()) for name, figures in self.classes.items()}
        found = {**_without_nan(self._replace(classes={})._asdict()), "classes": classes}
        metrics = dict(found.pop("metrics"))
        found |= {"metrics": metrics} if metrics else {}
        found |= {"sentence": self.sentence, "precision_recall": self.precision_recall.to_dict()}
        if self.estimated is not None:
            found["estimated"] = {
                "assumption": self.estimated.assumption,
                "averaged_classes": self.estimated.averaged_classes,
                **{name: _without_nan(getattr(self.estimated, name)._asdict()) for name in OVERALL},
                "classes": {name: _without_nan(each._asdict()) for name, each in self.estimated.classes.items()},
            }
        return found


def evaluate(
    scores: ArrayLike,
    labels: Labels,
    decisions: Thresholds,
    classes: Sequence[str],
    *,
    process: Process = "auto",
    asked: ArrayLike | None = None,
    inference: Inference | None = None,
    series: Indices | None = None,
) -> Evaluation:
    """Average precision by class, and precision, recall and F1 of the decisions.

    All of them but recall need negatives. Of a class with hardly any known negatives they are NaN: whatever is
    predicted would seem right. So is the precision of a class that is never predicted. Where labels are unknown, what
    to expect of all labels is estimated beside.

    Args:
        scores: (N, L), logits.
        labels: (N, L); unknown ones are left out.
        decisions: of the model that made the scores.
        classes: the names of the labels.
        process, asked: how labels came to be known, as for `onepair.probability.observation.recognise`.
        inference: of these scores and labels, if it is at hand.
        series: (N,), which images belong together, by number: intervals of precision and recall rest on new series.
    """
    if not (labels == POSITIVE).any():
        raise DataError(
            f"none of {counted(len(labels), 'image')} has a positive label, so there is nothing to judge by"
        )
    predicted = decisions.labels(scores)
    matrix = np.asarray(scores)
    if not (labels == UNKNOWN).any():
        inference = None
    elif inference is None:
        inference = infer(scores, labels, process=process, asked=asked)
    telling = np.ones(len(classes), bool) if inference is None else _telling(labels, inference.probabilities)
    class_ap = np.where(telling, average_precision(scores, labels), np.nan)
    precision, recall, f1 = precision_recall_f1(predicted, labels)
    some = predicted.any(0)  # of a class that is never predicted, no prediction is right or wrong
    precision, f1 = np.where(telling & some, precision, np.nan), np.where(telling, f1, np.nan)
    overall = precision_recall_f1(predicted, labels, average="overall")
    every = bool(telling.all())
    return Evaluation(
        images=len(labels),
        map=float(np.nanmean(class_ap)) if not np.isnan(class_ap).all() else math.nan,
        averaged_classes=int((~np.isnan(class_ap)).sum()),
        precision=overall.precision if every and some.any() else math.nan,
        recall=overall.recall,
        f1=overall.f1 if every else math.nan,
        ranking_loss=ranking_loss(scores, labels) if every else math.nan,
        coverage=coverage(scores, labels) if every else math.nan,
        classes={
            name: ClassFigures(*map(float, figures))
            for name, *figures in zip(classes, class_ap, precision, recall, f1, strict=True)
        },
        precision_recall=find_precision_recall(matrix, labels, decisions, inference, series),
        lacking="" if every else _lacking(~telling, classes),
        estimated=None if inference is None else estimate(matrix, predicted, labels, inference, classes),
    )


def find_precision_recall(
    scores: NDArray[Any],
    labels: Labels,
    decisions: Thresholds,
    inference: Inference | None,
    series: Indices | None = None,
) -> PrecisionRecall:
    """Precision and recall of all labels together, and recall by precision; see `evaluate`."""
    moves = () if inference is None else _moves(scores, labels, inference, np.random.default_rng(0))
    probabilities = (labels == POSITIVE).astype(np.float64) if inference is None else inference.probabilities
    chances, predicted = decisions.probabilities(scores), decisions.labels(scores)
    return precision_recall(chances, predicted, labels, probabilities, moves, series)


def _telling(labels: Labels, probabilities: Floats) -> NDArray[np.bool_]:
    """Classes (L,) whose known negatives stand for the others: enough of them, and not far more seldom than positives.

    A class without unknown labels tells, whatever they are.
    """
    positive, negative, unknown = ((labels == value).sum(0) for value in (POSITIVE, NEGATIVE, UNKNOWN))
    shares = positive / np.maximum(probabilities.sum(0), 1e-9), negative / np.maximum((1 - probabilities).sum(0), 1e-9)
    enough = (negative >= _FEWEST_NEGATIVES) & (shares[1] >= _LEAST_BALANCE * shares[0])
    return np.asarray(enough | (unknown == 0))


def _lacking(without: NDArray[np.bool_], classes: Sequence[str]) -> str:
    names = [name for name, lacks in zip(classes, without, strict=True) if lacks]
    which = ", ".join(names) if len(names) <= _MOST_NAMES else f"{len(names)} of {len(classes)} classes"
    return f"too few negatives are known of {which} to tell average precision and precision; label some images in full"


def _without_nan(figures: dict[str, Any]) -> dict[str, Any]:
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in figures.items()
    }


Counts = NDArray[np.intp]


def estimated_map(scores: Any, labels: Any) -> float:
    """The mean over classes of `estimated_average_precision`; with all labels known, of the average precision itself.

    Args:
        scores: (N, L), numpy or torch, of rows that the model was not fitted to.
        labels: (N, L), known or unknown in any mix.

    Examples:
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

    Examples:
        >>> expected_hidden(np.array([0, 1, 9]), np.array([5, 1, 1]), least=1e-9).round(3)
        array([0.   , 0.693, 0.948])
    """
    all_positive = np.clip(observed / np.maximum(observed + unknown, 1), least, 1.0)
    beyond = observed * (-np.log(all_positive) - (1 - all_positive))
    return np.asarray((unknown * (all_positive - least) + beyond) / (1 - least))
