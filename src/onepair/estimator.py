"""OPML on feature matrices, by scikit-learn's contract: a convex problem, solved to convergence."""
# ruff: noqa: N803, N806 (X, C and W are the names that users of scikit-learn know)

import warnings
from typing import Any, Self

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
from onepair.labels import NEGATIVE, UNKNOWN, Labels, validate_labels
from onepair.metrics import mean_average_precision
from onepair.penalised_opml import (
    Features,
    Floats,
    LogSum,
    Prior,
    Unknown,
    centre_and_scale,
    log_sums,
    make_objective,
)

_LEAST_CURVATURE = 1e-6


class OPMLClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A linear multi-label classifier that learns from labels with holes, down to one positive label per row.

        minimise  Σ_rows soft OPML(X W + b, y)  +  v / 2C · ‖W‖²,   v = the sum of the features' variances

    The loss is `soft_opml_loss` with a constant share γ = `smoothing` for every unknown label, and `opml_loss` where
    γ = 0 or all labels are known. It is convex: L-BFGS finds its one solution, wherever it starts. With v in the
    penalty the same C fits features of any number and any unit: X, 1000 · X and 1000 + X lead to the same predictions.

    `epsilon`, `label_num` and `high_rank_weight` make it OPML-SP. After each solution the targets are estimated anew
    from its scores, and the problem is solved again from there, `rounds` times.

    Labels y are a matrix (rows, classes) of 1 (positive), 0 (negative), and -1 or NaN (unknown). For scores of rows
    that a model has not seen, fit and score the folds one by one: scikit-learn's `cross_val_predict`, asked for scores,
    numbers the values of every column anew, so that unknown labels become negative.

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
            self.centre_, self.scale_ = centre_and_scale(X)
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

    def _solve(self, features: Features, sums: list[LogSum], prior: Prior, start: Floats) -> Floats:
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
