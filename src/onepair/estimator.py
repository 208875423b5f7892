"""OPML on feature matrices, by scikit-learn's contract: a convex problem, solved to convergence."""
# ruff: noqa: N803, N806 (X, C and W are the names that users of scikit-learn know)

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import issparse
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted, validate_data

from onepair.correction import label_correction, training_ap
from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, Labels, validate_labels
from onepair.metrics import mean_average_precision

Floats = NDArray[np.floating]
Unknown = Literal["negative", "ignore"]

_LEAST_CURVATURE = 1e-6
_RIDGE = 1e-6  # of the high-rank penalty, as in `high_rank_penalty`
_ROWS = 4096  # that are looked at at once


class OPMLClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A linear multi-label classifier that learns from labels with holes, down to one positive label per row.

        minimise  Σ_rows soft OPML(X W + b, y)  +  v / 2C · ‖W‖²,   v = the sum of the features' variances

    The loss is `soft_opml_loss` with a constant share γ = `smoothing` for every unknown label, and `opml_loss` where
    γ = 0 or all labels are known. It is convex: L-BFGS finds its one solution, wherever it starts. With v in the
    penalty the same C fits features of any number and any unit: X, 1000 · X and 1000 + X lead to the same predictions.

    `epsilon`, `label_num` and `high_rank_weight` make it OPML-SP. After each solution the targets are estimated anew
    from its scores, and the problem is solved again from there, `rounds` times.

    Labels y are a matrix (rows, classes) of 1 (positive), 0 (negative), and -1 or NaN (unknown).

    Args:
        C: inverse strength of the l2 penalty.
        alpha, beta: as in `opml_loss`.
        smoothing: share γ of an unknown label that counts as positive. A little of it keeps rare classes from being
            learnt by what all others are like.
        unknown: what an unknown label counts as: "negative" but for its share γ, or "ignore" to leave it out.
        epsilon: if given, later rounds take γ = sigmoid(score) · AP^epsilon of the class, as in the paper.
        label_num: if given, later rounds take the Obsnum · label_num · (1 - AP) highest-scored unknowns of a class as
            positive.
        high_rank_weight: λ of the high-rank penalty of all rows' predictions. The problem is not convex with it.
        rounds: how often the targets are estimated anew, if `epsilon` or `label_num` asks for it.
        tol: the solution is found when no weight alone could lower the objective, per row, by more than about tol² / 2.
        max_iter: steps of L-BFGS, at most, for each solution.

    Attributes:
        coef_: (classes, features).
        intercept_: (classes,).
        classes_: 0 … classes - 1, the columns of y.
        n_iter_: steps that were taken.

    >>> X, y = [[0.0, 1.0], [1.0, 0.0], [0.0, 0.0]], [[1, -1], [-1, 1], [0, 0]]
    >>> OPMLClassifier(C=10).fit(X, y).predict(X)
    array([[1, 0],
           [0, 1],
           [0, 0]])
    """

    coef_: Floats
    intercept_: Floats
    classes_: NDArray[np.intp]
    n_iter_: int

    def __init__(
        self,
        *,
        C: float = 3.0,
        alpha: float = 0.6,
        beta: float = 0.9,
        smoothing: float = 0.01,
        unknown: Unknown = "negative",
        epsilon: float | None = None,
        label_num: float | None = None,
        high_rank_weight: float | None = None,
        rounds: int = 2,
        tol: float = 1e-3,
        max_iter: int = 1000,
    ) -> None:
        self.C = C
        self.alpha = alpha
        self.beta = beta
        self.smoothing = smoothing
        self.unknown = unknown
        self.epsilon = epsilon
        self.label_num = label_num
        self.high_rank_weight = high_rank_weight
        self.rounds = rounds
        self.tol = tol
        self.max_iter = max_iter

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from features X (rows, features), dense or sparse, and labels y (rows, classes) with holes."""
        return self._learn(X, y, more=False)

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:
        """Learn from further rows, without the earlier ones; `classes` is there for scikit-learn and not needed.

        What was learnt before becomes a Gaussian prior: the earlier solution, as firm in each weight as the curvature
        of the earlier rows' loss there. The first call does what `fit` does.
        """
        return self._learn(X, y, more=hasattr(self, "coef_"))

    def _learn(self, X: Any, y: Any, *, more: bool) -> Self:
        self._check_options()
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=not more)
        if issparse(X) and not X.has_canonical_format:  # of several entries for one cell squares would be wrong
            X = X.copy()
            X.sum_duplicates()
        observed = read_labels(y)
        check_consistent_length(X, observed)
        if more and len(self.classes_) != observed.shape[1]:
            raise ValueError(f"y has {observed.shape[1]} classes, but had {len(self.classes_)} in the first call")
        if not more:
            self.classes_ = np.arange(observed.shape[1])
            self.centre_, self.scale_ = _centre_and_scale(X)
            self.coef_ = np.zeros((observed.shape[1], X.shape[1]), X.dtype)
            self.intercept_ = np.zeros(observed.shape[1], X.dtype)
            self.precision_ = np.full((X.shape[1] + 1, observed.shape[1]), 1 / self.C, X.dtype)
            self.precision_[-1] = 0  # the intercept is free
            self.n_iter_ = 0

        features = Features(X, self.centre_.astype(X.dtype), self.scale_)
        weights = np.vstack([self.coef_.T * self.scale_, self.intercept_ + self.coef_ @ self.centre_])
        weights = weights.astype(X.dtype)
        prior = Prior(weights, self.precision_)
        adapts = self.epsilon is not None or self.label_num is not None
        gamma: float | Floats = self.smoothing
        targets = observed
        for number in range(1 + self.rounds * adapts):
            if number > 0:
                gamma, targets = self._estimate(features.scores(weights), observed)
            sums = log_sums(targets, gamma, alpha=self.alpha, beta=self.beta, unknown=self.unknown, dtype=X.dtype)
            weights = self._solve(features, sums, prior, weights)

        self.precision_ = self.precision_ + features.curvature(sums, weights)
        self.coef_ = np.ascontiguousarray(weights[:-1].T) / self.scale_
        self.intercept_ = (weights[-1] - self.coef_ @ self.centre_).astype(X.dtype)
        return self

    def _estimate(self, scores: Floats, observed: Labels) -> tuple[float | Floats, Labels]:
        """The shares γ and the targets of the next round, from the scores of this one."""
        class_ap = training_ap(scores, observed)
        gamma = (
            self.smoothing if self.epsilon is None else expit(scores) * class_ap.astype(scores.dtype) ** self.epsilon
        )
        if self.label_num is None:
            return gamma, observed
        return gamma, label_correction(scores, observed, class_ap, label_num=self.label_num)

    def _solve(self, features: "Features", sums: "list[LogSum]", prior: "Prior", start: Floats) -> Floats:
        """The weights (features + 1, classes) of the least objective; the last row are the intercepts."""
        objective = make_objective(features, sums, prior, high_rank_weight=float(self.high_rank_weight or 0))
        # In units of the curvature at the start all weights are alike to L-BFGS, which halves its steps.
        unit = np.sqrt(len(features) / (prior.precision + features.curvature(sums, start) + _LEAST_CURVATURE))

        def in_units(flat: Floats) -> tuple[float, Floats]:
            value, gradient = objective(flat.reshape(start.shape).astype(start.dtype) * unit)
            return value, (gradient * unit).astype(np.float64).ravel()

        limits = {"maxiter": self.max_iter, "maxfun": 2 * self.max_iter, "gtol": self.tol, "ftol": 0, "maxcor": 5}
        result = minimize(in_units, (start / unit).ravel(), jac=True, method="L-BFGS-B", options=limits)
        steepest = np.abs(result.jac).max()
        if steepest > self.tol:
            warnings.warn(
                f"stopped after {result.nit} steps where the gradient is {steepest:.1e}, above tol = {self.tol}; "
                "allow more with max_iter, or strengthen the penalty with a smaller C",
                ConvergenceWarning,
                stacklevel=4,
            )
        self.n_iter_ += int(result.nit)
        weights: Floats = result.x.reshape(start.shape).astype(start.dtype) * unit
        return weights

    def _check_options(self) -> None:
        for name in ("alpha", "beta"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(f"{name} must lie between 0 and 1, both excluded, got {getattr(self, name)}")
        if not 0 <= self.smoothing < 1:
            raise ValueError(f"smoothing must be at least 0 and below 1, got {self.smoothing}")
        for name in ("C", "epsilon", "tol"):
            if not (getattr(self, name) is None or 0 < getattr(self, name) < np.inf):
                raise ValueError(f"{name} must be a finite number above 0, got {getattr(self, name)}")
        for name in ("label_num", "high_rank_weight", "rounds", "max_iter"):
            if not (getattr(self, name) is None or 0 <= getattr(self, name) < np.inf):
                raise ValueError(f"{name} must be a finite number of at least 0, got {getattr(self, name)}")
        if self.unknown not in ("negative", "ignore"):
            raise ValueError(f"unknown must be one of 'negative', 'ignore', got {self.unknown!r}")

    def decision_function(self, X: Any) -> Floats:
        """Scores (rows, classes), logits: the higher, the more likely."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)
        scores: Floats = X @ self.coef_.T + self.intercept_
        return scores

    def predict_proba(self, X: Any) -> Floats:
        """The sigmoid of the scores, (rows, classes); not calibrated."""
        probabilities: Floats = expit(self.decision_function(X))
        return probabilities

    def predict(self, X: Any) -> NDArray[np.int64]:
        """1 where the score is above 0, else 0, (rows, classes)."""
        return (self.decision_function(X) > 0).astype(np.int64)

    def score(self, X: Any, y: Any) -> float:
        """The mean average precision, see `ranking_score`, where unknown labels count as what they do in training."""
        return ranking_score(self, X, y, unknown=self.unknown)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.two_d_labels = True
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = False
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.multi_label = True
        return tags


def ranking_score(estimator: Any, X: Any, y: Any, *, unknown: Unknown = "negative") -> float:
    """The mean average precision of any fitted estimator with scores (rows, classes): for `scoring=` of a grid search.

    Unknown labels count as negative or, with `functools.partial(ranking_score, unknown="ignore")`, not at all. Where
    only positives are ever observed, they have to count: a ranking of positives alone is always perfect.
    """
    score = estimator.decision_function if hasattr(estimator, "decision_function") else estimator.predict_proba
    labels = read_labels(y)
    return mean_average_precision(score(X), np.maximum(labels, NEGATIVE) if unknown == "negative" else labels).value


def read_labels(y: Any) -> Labels:
    """Labels in the one alphabet: -1 or NaN becomes unknown.

    >>> read_labels([[1, np.nan], [0, -1]])
    array([[ 1, -1],
           [ 0, -1]], dtype=int8)
    """
    if y is None:
        raise ValueError("OPMLClassifier requires y to be passed, but the target y is None")
    given = check_array(y, ensure_2d=False, ensure_all_finite="allow-nan", input_name="y")
    if given.ndim != 2:
        raise ValueError(
            f"Unknown label type: y must be a matrix (rows, classes) of 1, 0, and -1 or NaN for unknown, got shape "
            f"{given.shape}. Only binary classification is supported, in a column for every class"
        )
    labels = validate_labels(np.where(np.isnan(given), UNKNOWN, given) if given.dtype.kind == "f" else given)
    if (labels == UNKNOWN).all():
        raise ValueError("y: every label is unknown, so there is nothing to learn or to judge by")
    return labels


class LogSum(NamedTuple):
    """A term of the loss, log(constant + Σ_l exp(sign · s_l + log_weight_l)) for each row of scores s."""

    sign: int
    constant: float
    log_weights: Floats  # (N, L), -inf for a label that is not in the sum

    def __call__(self, scores: Floats) -> tuple[Floats, Floats]:
        """The values (N, 1), and every label's share in the sum (N, L): the size of the derivative in its score."""
        terms = self.sign * scores
        terms += self.log_weights
        highest = terms.max(1, keepdims=True).clip(min=0)  # so that no exponent is above 0
        terms -= highest
        np.exp(terms, out=terms)
        total = terms.sum(1, keepdims=True) + self.constant * np.exp(-highest)
        terms /= total
        return np.log(total) + highest, terms


class Prior(NamedTuple):
    """What is known before the rows are: Gaussian, (features + 1, classes) as the weights."""

    centre: Floats
    precision: Floats


def log_sums(
    targets: Labels, gamma: float | Floats, *, alpha: float, beta: float, unknown: Unknown, dtype: Any
) -> list[LogSum]:
    """The terms of `soft_opml_loss`; those of `opml_loss` where no unknown label has a share γ above 0."""
    targets = np.asfortranarray(targets)  # as the scores are
    positive = (targets == POSITIVE).astype(dtype)
    uncertain = ((targets == UNKNOWN) & (unknown == "negative")).astype(dtype)
    soft_positive = uncertain * np.asarray(gamma, dtype)
    negative = (targets == NEGATIVE) + uncertain - soft_positive
    constants = float(alpha / (1 - alpha)), float(beta / (1 - beta))
    with np.errstate(divide="ignore"):
        sums = [LogSum(-1, constants[0], np.log(positive)), LogSum(1, constants[1], np.log(negative))]
        if soft_positive.any():
            sums.append(LogSum(-1, constants[0], np.log(soft_positive)))
    return sums


def one_pair(scores: Floats, sums: list[LogSum]) -> tuple[float, Floats]:
    """The loss, summed over the rows, and its gradient, (N, L)."""
    loss, gradient = 0.0, np.zeros_like(scores)
    for term in sums:
        values, shares = term(scores)
        loss += float(values.sum(dtype=np.float64))
        gradient += shares if term.sign > 0 else -shares
    return loss, gradient


def high_rank(scores: Floats) -> tuple[float, Floats]:
    """-log det of the smaller Gram matrix of the predictions (Eq. 8), and its gradient in the scores, (N, L)."""
    predicted = expit(scores.astype(np.float64))
    tall = predicted if len(scores) >= scores.shape[1] else predicted.T
    gram = tall.T @ tall + _RIDGE * np.eye(tall.shape[1])
    gradient = -2 * np.linalg.solve(gram, tall.T).T
    gradient = gradient if tall is predicted else gradient.T
    return -float(np.linalg.slogdet(gram).logabsdet), (gradient * predicted * (1 - predicted)).astype(scores.dtype)


@dataclass(frozen=True, eq=False)
class Features:
    """Features about their means, in units of how much they vary: (X - centre) / scale, never made of a sparse X."""

    X: Any  # (N, D)
    centre: Floats  # (D,)
    scale: float

    def __len__(self) -> int:
        return int(self.X.shape[0])

    def scores(self, weights: Floats) -> Floats:
        """The scores (N, L), column by column in memory: sums over the few classes of all rows at once are fast so."""
        coef = weights[:-1] / self.scale
        scores: Floats = np.asfortranarray(self.X @ coef) if issparse(self.X) else (coef.T @ self.X.T).T
        scores += weights[-1] - self.centre @ coef
        return scores

    def gradient(self, by_score: Floats) -> Floats:
        """The gradient in the weights (features + 1, classes), by that in the scores."""
        part, total = by_score / self.scale, by_score.sum(0)
        return np.vstack([self.X.T @ part - np.outer(self.centre, total / self.scale), total])

    def curvature(self, sums: list[LogSum], weights: Floats) -> Floats:
        """The diagonal of the loss's second derivative in the weights, (features + 1, classes)."""
        scores = self.scores(weights)
        by_score = np.zeros_like(scores)
        for term in sums:
            shares = term(scores)[1]
            by_score += shares * (1 - shares)
        total, centre = by_score.sum(0), self.centre / self.scale
        if issparse(self.X):
            X = self.X / self.scale
            squares = X.T.power(2) @ by_score - 2 * centre[:, None] * (X.T @ by_score) + np.outer(centre**2, total)
        else:
            squares = np.square((self.X - self.centre) / self.scale).T @ by_score
        return np.vstack([np.maximum(squares, 0), total])


def make_objective(
    features: Features, sums: list[LogSum], prior: Prior, *, high_rank_weight: float = 0.0
) -> Callable[[Floats], tuple[float, Floats]]:
    """The objective per row, and its gradient, as a function of the weights."""
    n = len(features)

    def objective(weights: Floats) -> tuple[float, Floats]:
        scores = features.scores(weights)
        value, by_score = one_pair(scores, sums)
        if high_rank_weight > 0:
            penalty, by_penalty = high_rank(scores)
            value, by_score = value + n * high_rank_weight * penalty, by_score + n * high_rank_weight * by_penalty
        moved = weights - prior.centre
        gradient = prior.precision * moved
        value += 0.5 * float(np.vdot(gradient, moved))
        gradient += features.gradient(by_score)
        return value / n, gradient / n

    return objective


def _centre_and_scale(X: Any) -> tuple[Floats, float]:
    """The features' means (D,), and the root of the sum of their variances, or 1 where nothing varies.

    In units of the largest value, so that no square is beyond the numbers there are.
    """
    peak = float(abs(X).max()) or 1.0
    mean = np.asarray(X.mean(0, dtype=np.float64)).ravel() / peak
    if issparse(X):
        squares = np.square(X.data / peak - mean[X.indices]).sum()
        squares += (X.shape[0] - np.bincount(X.indices, minlength=X.shape[1])) @ np.square(mean)
    else:
        blocks = (X[start : start + _ROWS] for start in range(0, X.shape[0], _ROWS))
        squares = sum(np.square(block / peak - mean).sum() for block in blocks)
    variance = float(squares / X.shape[0])
    varies = variance > 1e-24 * float(np.square(mean).sum())
    return mean * peak, peak * math.sqrt(variance) if varies else 1.0
