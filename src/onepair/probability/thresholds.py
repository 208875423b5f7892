"""From the scores of a model to probabilities and labels: calibration, and a threshold for every class."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import BaseModel, FiniteFloat
from scipy.special import expit, logit

from onepair.errors import ConfigError
from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, Indices, Labels
from onepair.metrics import Floats
from onepair.probability.calibration import (
    Calibrator,
    Platt,
    StoredCalibrator,
    calibrator_from,
    check_scores,
    fit_curves,
    fit_isotonic,
    fit_platt,
)
from onepair.probability.infer import Inference, infer
from onepair.probability.observation import Process

Calibration = Literal["auto", "platt", "isotonic"]
Rule = Literal["likely", "f1", "precision", "count"]
RULES: dict[Rule, str] = {  # and what they are for
    "likely": "what is at least as likely right as wrong",
    "f1": "best F1",
    "precision": "precision",
    "count": "expected count",
}


_FITS: dict[str, Callable[..., Calibrator]] = {"platt": fit_platt, "isotonic": fit_isotonic}
_FEWEST_POSITIVES = 5  # known ones of a class, to choose a threshold of its own by
_LEAST_RATE = 0.2  # of positives and of negatives that are observed, for them to choose a calibration by
_MOST_ROWS = 4_000  # to choose one by
_LEAST = 1e-3  # a likelihood below counts as this: no single surprise decides between kinds of calibration


@dataclass(frozen=True, eq=False)
class Thresholds:
    """What the scores of a model mean."""

    calibrator: Calibrator
    thresholds: Floats  # (L,): a label is predicted where its score is at least this; infinite if never
    rule: str  # what the thresholds aim at, in words
    pooled: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, bool))
    """(L,): classes of too few known positives for a threshold of their own, that have the probability of all others;
    empty where none is."""

    @classmethod
    def none(cls, classes: int) -> "Thresholds":
        """Of a model that nobody asks for more than its scores."""
        return cls(Platt(np.ones(classes), np.zeros(classes)), np.full(classes, np.inf), "none was fitted")

    def probabilities(self, scores: ArrayLike) -> Floats:
        """The calibrated probability (N, L) of every label to be positive."""
        return self.calibrator(scores)

    def labels(self, scores: ArrayLike) -> NDArray[np.bool_]:
        """The labels (N, L) that are predicted."""
        return np.asarray(np.asarray(scores) >= self.thresholds)

    def as_probabilities(self) -> Floats:
        """The calibrated probability (L,) from which each label is predicted; NaN for one that never is."""
        used = np.flatnonzero(np.isfinite(self.thresholds))
        found = np.full(len(self.thresholds), np.nan)
        found[used] = self.calibrator.of_cells(self.thresholds[used], used)
        return found

    def of_classes(self, columns: Indices) -> "Thresholds":
        """The same for some of the classes, in the order of `columns`."""
        pooled = self.pooled[columns] if len(self.pooled) else self.pooled
        return Thresholds(self.calibrator.of_classes(columns), self.thresholds[columns], self.rule, pooled)

    def to_dict(self) -> dict[str, Any]:
        finite = [None if np.isinf(threshold) else threshold for threshold in self.thresholds.tolist()]
        pooled = np.flatnonzero(self.pooled).tolist()
        return {"rule": self.rule, "thresholds": finite, "pooled": pooled, "calibration": self.calibrator.to_dict()}

    @classmethod
    def from_stored(cls, stored: "StoredThresholds", *, classes: int) -> "Thresholds":
        """What `to_dict` described; a `ValueError` if it is not about so many classes."""
        if len(stored.thresholds) != classes:
            raise ValueError(f"it has {len(stored.thresholds)} thresholds for {classes} classes")
        thresholds = [np.inf if each is None else each for each in stored.thresholds]
        calibrator = calibrator_from(stored.calibration, classes=classes)
        if not all(0 <= each < classes for each in stored.pooled):
            raise ValueError(f"its pooled thresholds are not of {classes} classes")
        pooled = np.isin(np.arange(classes), stored.pooled)
        return cls(calibrator, np.array(thresholds, float), stored.rule, pooled)


class StoredThresholds(BaseModel):
    """The form of `Thresholds.to_dict`."""

    rule: str
    thresholds: list[FiniteFloat | None]
    pooled: list[int] = []  # the classes of too few known positives for a threshold of their own
    calibration: StoredCalibrator


def fit_decisions(
    scores: ArrayLike,
    labels: ArrayLike,
    *,
    calibration: Calibration = "auto",
    rule: Rule = "f1",
    precision: float = 0.9,
    process: Process = "auto",
    asked: ArrayLike | None = None,
    inference: Inference | None = None,
) -> Thresholds:
    """Calibrate scores, and choose a threshold for every class.

    Labels may be incomplete: what can be said of the others follows from how they came to be known, see
    `onepair.probability.observation`, and the thresholds count an unknown label as positive by its probability. A class
    with fewer than five known positives has no threshold of its own, but the probability that is best for all others
    together; it is `pooled`.

    Args:
        scores: (N, L), of rows that the model was not fitted to.
        labels: (N, L).
        calibration: "platt", a line for each class; "isotonic", a rising curve, which needs known negatives; or "auto",
            the one that fits rows better that it was not fitted to.
        rule: what thresholds aim at: "likely", a probability of at least one half; "f1", the best F1 of each class;
            "precision", as many predictions as have at least the given precision; "count", as many predictions as there
            are positives, known or expected.
        precision: of rule "precision".
        process: how labels came to be known, as for `onepair.probability.observation.recognise`.
        asked: (N, L), true where a label is known because a model suggested to ask for it.
        inference: of these scores and labels, if it is at hand.

    Returns:
        The thresholds and the calibration; `labels` and `probabilities` of it take scores.

    Examples:
        >>> decisions = fit_decisions([[2.0], [1.0], [-1.0], [-2.0]], [[1], [0], [1], [0]])
        >>> decisions.labels([[0.0], [-1.6]])
        array([[ True],
               [False]])
    """
    for what, given, known_words in (("calibration", calibration, Calibration), ("rule", rule, Rule)):
        if given not in get_args(known_words):
            raise ConfigError(f"there is no {what} {given!r}; choose from {', '.join(get_args(known_words))}")
    if not 0 < precision <= 1:
        raise ConfigError(f"a precision lies above 0 and is at most 1, got {precision}")
    matrix, known = check_scores(scores, labels)
    calibrator, expected = _calibrate(matrix, known, calibration, process, asked, inference)
    if rule == "likely":
        return Thresholds(calibrator, calibrator.scores_at(0.5), RULES[rule])
    columns = zip(matrix.T, expected.T, strict=True)
    thresholds = np.array([_threshold(*column, rule, precision) for column in columns])
    pooled = ((known == POSITIVE).sum(0) < _FEWEST_POSITIVES) & (rule != "count")
    if pooled.any():
        together = _common_threshold(calibrator(matrix), expected, pooled, rule, precision)
        never = (rule == "precision") & (expected.sum(0) == 0)
        thresholds[pooled] = np.where(never, np.inf, calibrator.scores_at(together))[pooled]
    words = f"{RULES[rule]} {precision:g}" if rule == "precision" else RULES[rule]
    return Thresholds(calibrator, thresholds, words, pooled)


def _common_threshold(
    probabilities: Floats, expected: Floats, pooled: NDArray[np.bool_], rule: Rule, precision: float
) -> float:
    """The probability that is best for all classes together that have enough positives, or for all if none has."""
    own = np.ones(len(pooled), bool) if pooled.all() else ~pooled
    cells = probabilities[:, own].ravel(), expected[:, own].ravel()
    if not cells[1].any():
        return 0.5 if rule == "f1" else np.inf
    return float(expit(_threshold(logit(np.clip(cells[0], 1e-12, 1 - 1e-12)), cells[1], rule, precision)))


def _calibrate(
    scores: Floats,
    known: Labels,
    calibration: Calibration,
    process: Process,
    asked: ArrayLike | None,
    inference: Inference | None,
) -> tuple[Calibrator, Floats]:
    """A calibrator, and how probable each cell is to be positive: 1 or 0 where it is known."""
    positive, negative, unknown = known == POSITIVE, known == NEGATIVE, known == UNKNOWN
    if not positive.any() or not (negative.any() or unknown.any()):  # nothing to learn from
        classes = scores.shape[1]
        line = Platt(np.ones(classes), np.zeros(classes))
        return line, np.where(unknown, line(scores), positive)
    if not unknown.any():
        kind = _better_kind(scores, known, np.ones(known.shape)) if calibration == "auto" else calibration
        return _FITS[kind](scores, known), positive.astype(np.float64)
    if calibration == "isotonic" and (positive.any(0) & unknown.any(0) & ~negative.any(0)).any():
        raise ConfigError("an isotonic curve needs known negatives of every class; calibrate with platt")
    inference = inference or infer(scores, known, process=process, asked=asked)
    if calibration == "auto":
        calibration = _better_kind(scores, known, _standing_for(inference, scores, known))
    if calibration == "platt":
        return inference.platt, inference.probabilities
    counted = ~unknown | ~inference.observation.ignorable
    return fit_curves(scores, inference.probabilities, counted, inference.platt), inference.probabilities


def _standing_for(inference: Inference, scores: Floats, known: Labels) -> Floats:
    """How many cells of its kind each known cell stands for; nothing if too few are known to stand for all."""
    rates, observation = inference.rates, inference.observation
    fair = (known != UNKNOWN) & ~observation.asked
    if observation.max_shown or min(np.median(rates.positive), np.median(rates.negative)) < _LEAST_RATE:
        return np.where(fair & observation.ignorable, 1.0, 0.0)
    share = np.where(known == POSITIVE, rates.seen(inference.platt(scores)), rates.negative)
    weights: Floats = np.where(fair, np.where(observation.ignorable, 1.0, 1 / np.maximum(share, _LEAST_RATE)), 0.0)
    return weights


def _better_kind(scores: Floats, known: Labels, weights: Floats) -> Calibration:
    """The calibration of less log loss on the half of the rows that it is not fitted to, by cells of these weights."""
    rows = np.flatnonzero(weights.any(1))
    if len(rows) > _MOST_ROWS:
        rows = np.random.default_rng(0).choice(rows, _MOST_ROWS, replace=False)
    order = np.random.default_rng(0).permutation(rows)
    judged_by = np.where(weights > 0, known, UNKNOWN).astype(np.int8)
    halves = order[::2], order[1::2]
    losses: dict[Calibration, float] = {"platt": 0.0, "isotonic": 0.0}
    for fitted, held_out in (halves, halves[::-1]):
        if not all((judged_by[fitted] == value).any() for value in (POSITIVE, NEGATIVE)):
            return "platt"
        for kind in losses:
            probabilities = _FITS[kind](scores[fitted], judged_by[fitted], weights[fitted])(scores[held_out])
            likelihoods = np.where(known[held_out] == POSITIVE, probabilities, 1 - probabilities)
            losses[kind] -= (weights[held_out] * np.log(np.maximum(likelihoods, _LEAST))).sum()
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
