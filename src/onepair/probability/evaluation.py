"""How good scores and decisions are, judged by the labels that are known."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from onepair.errors import UserError
from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, Labels
from onepair.metrics import Floats, average_precision, coverage, precision_recall_f1, ranking_loss
from onepair.probability.decisions import Decisions
from onepair.probability.incomplete import Inference, infer
from onepair.probability.observation import Process
from onepair.words import counted

_FEWEST_NEGATIVES = 10  # known ones of a class, to judge it by
_LEAST_BALANCE = 0.5  # share of negatives that is known, by that of positives
_MOST_NAMES = 5  # of classes, in a sentence
_DRAWS = 50  # for an interval
_BLOCK = 2**19  # cells that are looked at at once: with all that is made of them they stay in the cache
_OVERALL = ("map", "precision", "recall", "f1")


class EvaluationError(UserError, ValueError):
    """There is nothing to judge by."""


class ClassFigures(NamedTuple):
    """Of one class; NaN where its labels do not tell."""

    ap: float
    precision: float
    recall: float
    f1: float


class Figure(NamedTuple):
    """An estimate and the ends of its interval of 95 %."""

    value: float
    low: float
    high: float


class Estimated(NamedTuple):
    """Figures that known labels do not tell, as expected from the probabilities of unknown ones."""

    assumption: str  # what they rest on
    map: Figure
    precision: Figure
    recall: Figure
    f1: Figure
    classes: dict[str, ClassFigures]


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
    lacking: str = ""  # a sentence on what is missing to tell all figures
    estimated: Estimated | None = None  # what stands in their place, if labels are unknown

    def to_dict(self) -> dict[str, Any]:
        """For JSON, which has no NaN: None stands for it."""
        classes = {name: _without_nan(figures._asdict()) for name, figures in self.classes.items()}
        found = {**_without_nan(self._replace(classes={})._asdict()), "classes": classes}
        if self.estimated is not None:
            found["estimated"] = {
                "assumption": self.estimated.assumption,
                **{name: _without_nan(getattr(self.estimated, name)._asdict()) for name in _OVERALL},
                "classes": {name: _without_nan(each._asdict()) for name, each in self.estimated.classes.items()},
            }
        return found


def evaluate(
    scores: ArrayLike,
    labels: Labels,
    decisions: Decisions,
    classes: Sequence[str],
    *,
    process: Process = "auto",
    asked: ArrayLike | None = None,
) -> Evaluation:
    """Average precision by class, and precision, recall and F1 of the decisions.

    All of them but recall need negatives. Of a class with hardly any known negatives they are NaN: whatever is
    predicted would seem right. Where labels are unknown, what to expect of all labels is estimated beside.

    Args:
        scores: (N, L), logits.
        labels: (N, L); unknown ones are left out.
        decisions: of the model that made the scores.
        classes: the names of the labels.
        process, asked: how labels came to be known, as for `onepair.probability.observation.recognise`.
    """
    if not (labels == POSITIVE).any():
        raise EvaluationError(
            f"none of {counted(len(labels), 'image')} has a positive label, so there is nothing to judge by"
        )
    predicted = decisions.labels(scores)
    inference = infer(scores, labels, process=process, asked=asked) if (labels == UNKNOWN).any() else None
    telling = np.ones(len(classes), bool) if inference is None else _telling(labels, inference.probabilities)
    class_ap = np.where(telling, average_precision(scores, labels), np.nan)
    precision, recall, f1 = precision_recall_f1(predicted, labels)
    precision, f1 = (np.where(telling, each, np.nan) for each in (precision, f1))
    overall = precision_recall_f1(predicted, labels, average="overall")
    every = bool(telling.all())
    return Evaluation(
        images=len(labels),
        map=float(np.nanmean(class_ap)) if not np.isnan(class_ap).all() else math.nan,
        averaged_classes=int((~np.isnan(class_ap)).sum()),
        precision=overall.precision if every else math.nan,
        recall=overall.recall,
        f1=overall.f1 if every else math.nan,
        ranking_loss=ranking_loss(scores, labels) if every else math.nan,
        coverage=coverage(scores, labels) if every else math.nan,
        classes={
            name: ClassFigures(*map(float, figures))
            for name, *figures in zip(classes, class_ap, precision, recall, f1, strict=True)
        },
        lacking="" if every else _lacking(~telling, classes),
        estimated=None if inference is None else _estimate(np.asarray(scores), predicted, inference, classes),
    )


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


def _estimate(
    scores: NDArray[Any], predicted: NDArray[np.bool_], inference: Inference, classes: Sequence[str]
) -> Estimated:
    """Expected figures, with an interval from drawing rows anew, and the number of missing labels within its own.

    Classes are looked at some at a time: of many, all together would take gigabytes.
    """
    rows, total = len(scores), inference.total
    error = math.log(max(float(total.high), 1e-9) / max(float(total.low), 1e-9)) / 4 if total.low > 0 else 0.5
    random, chances = np.random.default_rng(0), np.full(rows, 1 / rows)
    draws = [(0.0, np.ones(rows))]  # what is expected, and then of other rows and numbers
    for _ in range(_DRAWS):
        draws.append((error * random.normal(), random.multinomial(rows, chances).astype(np.float64)))
    size = max(1, _BLOCK // rows)
    blocks = [slice(start, start + size) for start in range(0, len(classes), size)]
    counts = np.concatenate(
        [_counts(scores[:, own], predicted[:, own], inference.probabilities[:, own], draws) for own in blocks], axis=2
    )
    value, *drawn = (
        np.array([_mean_ap(ap, there), *_shares(right.sum(), chosen.sum(), positives.sum())])
        for ap, right, chosen, positives, there in counts
    )
    # A row drawn twice confirms itself, which lifts the AP of rare classes: the draws are moved back about the value.
    ends = np.clip(np.quantile(drawn, [0.025, 0.975], axis=0) + value - np.median(drawn, axis=0), 0, 1)
    overall = [Figure(*map(float, each)) for each in zip(value, *ends, strict=True)]
    by_class = np.stack([counts[0, 0], *_shares(*counts[0, 1:4])])
    named = {name: ClassFigures(*map(float, each)) for name, each in zip(classes, by_class.T, strict=True)}
    return Estimated(inference.observation.assumption, overall[0], overall[1], overall[2], overall[3], named)


def _counts(
    scores: NDArray[Any], predicted: NDArray[np.bool_], probabilities: Floats, draws: Sequence[tuple[float, Floats]]
) -> Floats:
    """AP of some classes, how many of their labels are right, predicted and positive, and the chance that any is
    positive, (D, 5, L), by each draw.

    A cell counts as positive by its probability p. Average precision adds up the precision at each positive, which that
    one is sure to be part of: p_i (1 + Σ p_j of those above) / i is expected of the i-th. A draw is what the logarithm
    of the unsure ones is moved by, and how often each row counts.
    """
    unsure = (probabilities > 0) & (probabilities < 1)
    order = np.argsort(-scores, axis=0, kind="stable")
    found = []
    for moved, weights in draws:
        chance = np.where(unsure, np.minimum(probabilities * math.exp(moved), 1), probabilities)
        mass = chance * weights[:, None]
        right, chosen, positives = (mass * predicted).sum(0), weights @ predicted, mass.sum(0)
        falling, often = np.take_along_axis(mass, order, 0), weights[order]
        expected = np.cumsum(falling, axis=0) - falling + often
        gains = falling * expected / np.maximum(np.cumsum(often, axis=0), 1e-9)
        ap = np.where(positives > 0, gains.sum(0) / np.maximum(positives, 1e-9), np.nan)
        there = -np.expm1(weights @ np.log1p(-np.minimum(chance, 1 - 1e-12)))
        found.append([ap, right, chosen, positives, there])
    return np.array(found)


def _mean_ap(ap: Floats, there: Floats) -> float:
    """The mean over the classes that have a positive, by their chance to have one."""
    told = ~np.isnan(ap)
    return float(np.average(ap[told], weights=np.maximum(there[told], 1e-12))) if told.any() else math.nan


def _shares(right: Floats, chosen: Floats, positives: Floats) -> tuple[Floats, Floats, Floats]:
    """Precision, recall and F1."""
    return (
        right / np.maximum(chosen, 1e-9),
        right / np.maximum(positives, 1e-9),
        2 * right / np.maximum(chosen + positives, 1e-9),
    )


def _without_nan(figures: dict[str, Any]) -> dict[str, Any]:
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in figures.items()
    }
