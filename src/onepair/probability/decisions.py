"""From the scores of a model to probabilities and labels: calibration, and a threshold for every class."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import BaseModel, FiniteFloat

from onepair.errors import UserError
from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, Labels
from onepair.metrics import Floats
from onepair.probability.calibration import (
    Calibrator,
    Platt,
    StoredCalibrator,
    calibrator_from,
    check_scores,
    fit_isotonic,
    fit_platt,
)
from onepair.probability.observation import infer

Calibration = Literal["auto", "platt", "isotonic"]
Rule = Literal["f1", "precision", "count"]


_FITS: dict[str, Callable[[Floats, Labels], Calibrator]] = {"platt": fit_platt, "isotonic": fit_isotonic}
_LEAST = 1e-3  # a likelihood below counts as this: no single surprise decides between kinds of calibration


class DecisionError(UserError, ValueError):
    """Decisions that cannot be made as asked."""


@dataclass(frozen=True, eq=False)
class Decisions:
    """What the scores of a model mean."""

    calibrator: Calibrator
    thresholds: Floats  # (L,): a label is predicted where its score is at least this; infinite if never
    rule: str  # what the thresholds aim at, in words

    def probabilities(self, scores: ArrayLike) -> Floats:
        """The calibrated probability (N, L) of every label to be positive."""
        return self.calibrator(scores)

    def labels(self, scores: ArrayLike) -> NDArray[np.bool_]:
        """The labels (N, L) that are predicted."""
        return np.asarray(np.asarray(scores) >= self.thresholds)

    def to_dict(self) -> dict[str, Any]:
        finite = [None if np.isinf(threshold) else threshold for threshold in self.thresholds.tolist()]
        return {"rule": self.rule, "thresholds": finite, "calibration": self.calibrator.to_dict()}

    @classmethod
    def from_stored(cls, stored: "StoredDecisions", *, classes: int) -> "Decisions":
        """What `to_dict` described; a `ValueError` if it is not about so many classes."""
        if len(stored.thresholds) != classes:
            raise ValueError(f"it has {len(stored.thresholds)} thresholds for {classes} classes")
        thresholds = [np.inf if each is None else each for each in stored.thresholds]
        calibrator = calibrator_from(stored.calibration, classes=classes)
        return cls(calibrator, np.array(thresholds, float), stored.rule)


class StoredDecisions(BaseModel):
    """The form of `Decisions.to_dict`."""

    rule: str
    thresholds: list[FiniteFloat | None]
    calibration: StoredCalibrator


def fit_decisions(
    scores: ArrayLike,
    labels: ArrayLike,
    *,
    calibration: Calibration = "auto",
    rule: Rule = "f1",
    precision: float = 0.9,
) -> Decisions:
    """Calibrate scores, and choose a threshold for every class.

    Labels may be incomplete. Where every class has known labels of both kinds, its known cells are calibrated on;
    where only positives are known, what can be said of the others follows from `onepair.probability.observation`. The
    thresholds then count an unknown label as positive by its probability.

    Args:
        scores: (N, L), of rows that the model was not fitted to.
        labels: (N, L).
        calibration: "platt", a line for each class; "isotonic", a rising curve, which needs known negatives; or "auto",
            the one that fits rows better that it was not fitted to.
        rule: what thresholds aim at: "f1", the best F1 of each class; "precision", as many predictions as have at least
            the given precision; "count", as many predictions as there are positives, known or expected.
        precision: of rule "precision".

    >>> decisions = fit_decisions([[2.0], [1.0], [-1.0], [-2.0]], [[1], [0], [1], [0]])
    >>> decisions.labels([[0.0], [-1.6]])
    array([[ True],
           [False]])
    """
    for what, given, known_words in (("calibration", calibration, Calibration), ("rule", rule, Rule)):
        if given not in get_args(known_words):
            raise DecisionError(f"there is no {what} {given!r}; choose from {', '.join(get_args(known_words))}")
    if not 0 < precision <= 1:
        raise DecisionError(f"a precision lies above 0 and is at most 1, got {precision}")
    matrix, known = check_scores(scores, labels)
    calibrator, expected = _calibrate(matrix, known, calibration)
    columns = zip(matrix.T, expected.T, strict=True)
    thresholds = np.array([_threshold(*column, rule, precision) for column in columns])
    words = {"f1": "best F1", "precision": f"precision {precision:g}", "count": "expected count"}
    return Decisions(calibrator, thresholds, words[rule])


def _calibrate(scores: Floats, known: Labels, calibration: Calibration) -> tuple[Calibrator, Floats]:
    """A calibrator, and how probable each cell is to be positive: 1 or 0 where it is known."""
    positive, negative, unknown = known == POSITIVE, known == NEGATIVE, known == UNKNOWN
    if not positive.any() or not (negative.any() or unknown.any()):  # nothing to learn from
        classes = scores.shape[1]
        line = Platt(np.ones(classes), np.zeros(classes))
        return line, np.where(unknown, line(scores), positive)
    if not (positive.any(0) & unknown.any(0) & ~negative.any(0)).any():
        kind = _better_kind(scores, known) if calibration == "auto" else calibration
        calibrator = _FITS[kind](scores, known)
        return calibrator, np.where(unknown, calibrator(scores), positive)
    if calibration == "isotonic":
        raise DecisionError("an isotonic curve needs known negatives of every class; calibrate with platt")
    inference = infer(scores, known)
    return inference.platt, inference.observation.posterior(inference.platt(scores), known)


def _better_kind(scores: Floats, known: Labels) -> str:
    """The calibration of less log loss on the half of the rows that it is not fitted to."""
    order = np.random.default_rng(0).permutation(len(known))
    halves = order[::2], order[1::2]
    losses = dict.fromkeys(_FITS, 0.0)
    for fitted, judged in (halves, halves[::-1]):
        if not all((known[fitted] == value).any() for value in (POSITIVE, NEGATIVE)):
            return "platt"
        for kind, fit in _FITS.items():
            probabilities = fit(scores[fitted], known[fitted])(scores[judged])
            likelihoods = np.where(known[judged] == POSITIVE, probabilities, 1 - probabilities)
            losses[kind] -= np.log(np.maximum(likelihoods, _LEAST))[known[judged] != UNKNOWN].sum()
    return min(losses, key=losses.__getitem__)


def _threshold(scores: Floats, expected: Floats, rule: Rule, precision: float) -> float:
    """The threshold of one class, half-way between two rows: a rounding error elsewhere then changes no decision."""
    order = np.argsort(-scores, kind="stable")
    ranked, hits = scores[order], np.cumsum(expected[order])
    predicted, total = np.arange(1, len(ranked) + 1), hits[-1]
    cuts = np.append(ranked[:-1] != ranked[1:], True)  # equal scores are decided together
    if rule == "f1":
        if total == 0:
            return 0.0  # no positive to go by
        last = int(np.argmax(np.where(cuts, 2 * hits / (predicted + total), -1)))
    elif rule == "precision":
        good = np.flatnonzero(cuts & (hits >= precision * predicted - 1e-9))
        if len(good) == 0:
            return np.inf
        last = int(good[-1])
    else:
        distance = np.where(cuts, np.abs(predicted - total), np.inf)
        last = int(np.argmin(distance))
        if distance[last] > total:  # none at all comes closer
            return np.inf
    return float(ranked[last : last + 2].mean())
