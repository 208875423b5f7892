"""How good scores and decisions are, judged by the labels that are known."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from onepair.errors import UserError
from onepair.labels import POSITIVE, Labels
from onepair.metrics import average_precision, coverage, precision_recall_f1, ranking_loss
from onepair.probability.decisions import Decisions


class EvaluationError(UserError, ValueError):
    """There is nothing to judge by."""


class ClassFigures(NamedTuple):
    """Of one class; NaN where its labels do not tell."""

    ap: float
    precision: float
    recall: float
    f1: float


class Evaluation(NamedTuple):
    """Of all classes together, and of each."""

    images: int
    map: float
    averaged_classes: int
    precision: float
    recall: float
    f1: float
    ranking_loss: float
    coverage: float
    classes: dict[str, ClassFigures]

    def to_dict(self) -> dict[str, Any]:
        """For JSON, which has no NaN: None stands for it."""
        classes = {name: _without_nan(figures._asdict()) for name, figures in self.classes.items()}
        return {**_without_nan(self._replace(classes={})._asdict()), "classes": classes}


def evaluate(scores: ArrayLike, labels: Labels, decisions: Decisions, classes: Sequence[str]) -> Evaluation:
    """Average precision by class, and precision, recall and F1 of the decisions.

    Args:
        scores: (N, L), logits.
        labels: (N, L); unknown ones are left out.
        decisions: of the model that made the scores.
        classes: the names of the labels.
    """
    if not (labels == POSITIVE).any():
        raise EvaluationError(
            f"none of the {len(labels):,} images has a positive label, so there is nothing to judge by"
        )
    predicted = decisions.labels(scores)
    class_ap = average_precision(scores, labels)
    columns = zip(classes, class_ap, *precision_recall_f1(predicted, labels), strict=True)
    return Evaluation(
        images=len(labels),
        map=float(np.nanmean(class_ap)),
        averaged_classes=int((~np.isnan(class_ap)).sum()),
        **precision_recall_f1(predicted, labels, average="overall")._asdict(),
        ranking_loss=ranking_loss(scores, labels),
        coverage=coverage(scores, labels),
        classes={name: ClassFigures(*map(float, figures)) for name, *figures in columns},
    )


def _without_nan(figures: dict[str, Any]) -> dict[str, Any]:
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in figures.items()
    }
