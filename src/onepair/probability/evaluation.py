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
from onepair.probability.estimation import OVERALL, ClassFigures, Estimated, estimate
from onepair.probability.incomplete import infer
from onepair.probability.observation import Process
from onepair.words import counted

_FEWEST_NEGATIVES = 10  # known ones of a class, to judge it by
_LEAST_BALANCE = 0.5  # share of negatives that is known, by that of positives
_MOST_NAMES = 5  # of classes, in a sentence


class EvaluationError(UserError, ValueError):
    """There is nothing to judge by."""


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
                "averaged_classes": self.estimated.averaged_classes,
                **{name: _without_nan(getattr(self.estimated, name)._asdict()) for name in OVERALL},
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
    predicted would seem right. So is the precision of a class that is never predicted. Where labels are unknown, what
    to expect of all labels is estimated beside.

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
        lacking="" if every else _lacking(~telling, classes),
        estimated=None if inference is None else estimate(np.asarray(scores), predicted, labels, inference, classes),
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


def _without_nan(figures: dict[str, Any]) -> dict[str, Any]:
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in figures.items()
    }
