"""Calibrated probabilities and thresholds for any multi-label estimator, fitted out of fold."""
# ruff: noqa: N803 (X is the name that users of scikit-learn know)

from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.utils import Tags, get_tags
from sklearn.utils.validation import check_is_fitted

from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN
from onepair.linear.estimator import OPMLClassifier, read_labels
from onepair.probability.thresholds import Thresholds, fit_decisions

Floats = NDArray[np.floating]


class CalibratedMultiLabel(MetaEstimatorMixin, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Any multi-label estimator, with probabilities that hold and a threshold for every class.

    Both are fitted to out-of-fold scores: those of `OPMLClassifier` come with its fit, and other estimators are fitted
    once more for each fold. Labels may have holes: what unknown ones are is estimated. An estimator that knows no
    unknown labels is shown them as negative.

    Args:
        estimator: has `decision_function` or `predict_proba`; by default `OPMLClassifier()`.
        rule: what thresholds aim at: "f1", "precision" or "count", see `onepair.probability.fit_decisions`.
        precision: of rule "precision".
        calibration: "platt", "isotonic" or "auto".
        folds: of an estimator that has no out-of-fold scores.
        random_state: of these folds.

    Attributes:
        estimator_: fitted to all rows.
        thresholds_: (classes,), of its scores.
        out_of_fold_: (rows, classes), the scores that probabilities and thresholds rest on.

    >>> X, y = [[0.0], [1.0], [2.0], [3.0], [4.0], [5.0]], [[0], [0], [0], [1], [1], [1]]
    >>> CalibratedMultiLabel(OPMLClassifier(C=1.0)).fit(X, y).predict(X).ravel()
    array([0, 0, 0, 1, 1, 1])
    """

    estimator_: Any
    thresholds_: Floats
    out_of_fold_: Floats
    decisions_: Thresholds

    def __init__(
        self,
        estimator: Any = None,
        *,
        rule: Literal["f1", "precision", "count"] = "f1",
        precision: float = 0.9,
        calibration: Literal["auto", "platt", "isotonic"] = "auto",
        folds: int = 5,
        random_state: int = 0,
    ) -> None:
        self.estimator = estimator
        self.rule = rule
        self.precision = precision
        self.calibration = calibration
        self.folds = folds
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the estimator to all rows, and probabilities and thresholds to its out-of-fold scores."""
        labels = read_labels(y)
        base = OPMLClassifier() if self.estimator is None else self.estimator
        knows_holes = isinstance(base, OPMLClassifier)
        shown = y if knows_holes else np.where(labels == UNKNOWN, NEGATIVE, labels)
        self.estimator_ = clone(base).fit(X, shown)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))
        self.classes_ = self.estimator_.classes_ if knows_holes else np.arange(max(2, labels.shape[1]))
        kept = getattr(self.estimator_, "out_of_fold_", None)
        self.out_of_fold_ = self._out_of_fold(base, X, shown) if kept is None else kept
        self.decisions_ = fit_decisions(
            self.out_of_fold_, labels, calibration=self.calibration, rule=self.rule, precision=self.precision
        )
        self.thresholds_ = self.decisions_.thresholds
        return self

    def _out_of_fold(self, base: Any, X: Any, shown: NDArray[Any]) -> Floats:
        matrix = X if hasattr(X, "shape") else np.asarray(X)
        rows = matrix.shape[0]
        take = matrix.iloc.__getitem__ if hasattr(matrix, "iloc") else matrix.__getitem__
        fold = np.random.RandomState(self.random_state).permutation(rows) % max(2, min(self.folds, rows))
        scores = np.empty(shown.shape)
        for number in np.unique(fold):
            own, others = np.flatnonzero(fold == number), np.flatnonzero(fold != number)
            scores[own] = _scores(clone(base).fit(take(others), shown[others]), take(own), shown.shape[1])
        return scores

    def decision_function(self, X: Any) -> Floats:
        """The scores (rows, classes) of the estimator."""
        check_is_fitted(self)
        return _scores(self.estimator_, X, self.out_of_fold_.shape[1])

    def predict_proba(self, X: Any) -> Floats:
        """The calibrated probability (rows, classes) of every label to be positive."""
        scores = self.decision_function(X)
        return self.decisions_.probabilities(scores)

    def predict(self, X: Any) -> NDArray[np.int64]:
        """1 where a score reaches the threshold of its class, else 0, (rows, classes)."""
        scores = self.decision_function(X)
        return self.decisions_.labels(scores).astype(np.int64)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = get_tags(
            OPMLClassifier() if self.estimator is None else self.estimator
        ).input_tags.sparse
        tags.target_tags.two_d_labels = tags.target_tags.multi_output = True
        tags.target_tags.single_output = False
        tags.classifier_tags.multi_class, tags.classifier_tags.multi_label = False, True
        return tags


def _scores(estimator: Any, X: Any, classes: int) -> Floats:
    """The scores (rows, classes) of a fitted estimator, of any of scikit-learn's forms."""
    if hasattr(estimator, "decision_function"):
        found = np.asarray(estimator.decision_function(X))
        return found[:, None] if found.ndim == 1 else found
    chances, values = estimator.predict_proba(X), estimator.classes_
    if not isinstance(chances, list):
        if classes > 1:
            return np.asarray(chances)
        chances, values = [chances], [values]
    # Of each class the probabilities of the values that it had: 0 and 1, or one of them alone.
    return np.column_stack([each @ (np.asarray(had) == POSITIVE) for each, had in zip(chances, values, strict=True)])
