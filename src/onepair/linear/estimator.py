"""Linear multi-label classifiers from labels with holes, by scikit-learn's contract."""
# ruff: noqa: N803, N806 (X and C are the names that users of scikit-learn know)

import warnings
from collections.abc import Mapping
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags, get_tags
from sklearn.utils.validation import (
    _check_sample_weight,
    check_array,
    check_consistent_length,
    check_is_fitted,
    validate_data,
)

from onepair.label_matrix import LabelMatrix
from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, Labels, is_missing, validate_labels
from onepair.linear.fit import FOLDS, LinearFit, Trial, fit_kernel, fit_linear
from onepair.methods import METHODS, create_method, find_method
from onepair.metrics import mean_average_precision
from onepair.models.backbone import Kernel
from onepair.probability.evaluation import estimated_map
from onepair.probability.thresholds import Rule, Thresholds, fit_decisions

Floats = NDArray[np.floating]
Unknown = Literal["negative", "ignore"]
DEFAULT_METHOD = "opml-plus"
_FEWEST_TO_HOLD_OUT = 20  # rows, for out-of-fold scores to tell where a class begins


class OPMLClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A multi-label classifier that learns from labels with holes, down to one positive label per row.

        minimise  Σ_rows loss(X W + b, y)  +  D / 2C · ‖W‖²

    Dense columns of X are taken in units of their own spread, so that neither their units nor their offsets matter;
    sparse matrices stay sparse. The strength of the penalty chooses itself, and every fit gives out-of-fold scores of
    its rows. Scores are above 0 for as many of the rows, out of fold, as a class is thought to have positives.

    Labels y are a matrix (rows, classes) of 1 (positive), 0 (negative), and -1, NaN or None (unknown): an array, a
    DataFrame, whose columns name the classes, or a sparse matrix, in which an entry that is not stored is unknown.

    Args:
        method: the loss, and what it makes of unknown labels; any of `onepair methods` that needs no images.
        C: inverse strength of the L2 penalty; "auto" tries some and takes the one with the highest estimated mAP of
            out-of-fold scores.
        head: "linear", or "kernel": the same on an RBF kernel between X, which must be dense, and 2,000 of its rows.
        options: of the method, as {"alpha": 0.3}.
        class_weight: how much each class counts: a mapping from names or numbers of classes, or "balanced", in inverse
            proportion to its known positives. A class that is not named counts 1.
        folds: how many models give out-of-fold scores.
        tol: by how much scores may still change where the solver stops, in the root mean square.
        max_iter: steps of the solver, at most, for each solution.
        random_state: of the folds, and of a method that draws.

    Attributes:
        coef_: (classes, features), or of a kernel (classes, landmarks).
        intercept_: (classes,).
        kernel_: the kernel between features and landmarks, as a torch module, or None.
        classes_: 0 … classes - 1, the columns of y, or their names where y is a DataFrame; of a single column 0 and 1,
            its values.
        C_: the inverse strength of the penalty that was chosen.
        trials_: the strengths that were tried, each with its estimated mAP.
        out_of_fold_: (rows, classes), scores of the training rows by models that were not fitted to them.
        n_iter_: steps that were taken.

    Examples:
        >>> X, y = [[0.0, 1.0], [1.0, 0.0], [0.0, 0.0], [0.1, 0.1]], [[1, -1], [-1, 1], [0, 0], [0, 0]]
        >>> OPMLClassifier(C=10).fit(X, y).predict(X)
        array([[1, 0],
               [0, 1],
               [0, 0],
               [0, 0]])
    """

    coef_: Floats
    intercept_: Floats
    kernel_: Kernel | None
    classes_: NDArray[Any]
    C_: float
    trials_: list[Trial]
    out_of_fold_: NDArray[np.float32]
    n_iter_: int

    def __init__(
        self,
        *,
        method: str = DEFAULT_METHOD,
        C: float | Literal["auto"] = "auto",
        head: Literal["linear", "kernel"] = "linear",
        options: Mapping[str, Any] | None = None,
        class_weight: Mapping[Any, float] | Literal["balanced"] | None = None,
        folds: int = FOLDS,
        tol: float = 1e-3,
        max_iter: int = 500,
        random_state: int = 0,
    ) -> None:
        self.method = method
        self.C = C
        self.head = head
        self.options = options
        self.class_weight = class_weight
        self.folds = folds
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn from features X (rows, features), dense or sparse, and labels y (rows, classes) with holes."""
        self._check_options()
        names = column_names(y)
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32])
        if issparse(X):
            X = csr_array(X)
            if not X.has_canonical_format:  # of several entries for one cell squares would be wrong
                X = X.copy()
                X.sum_duplicates()
        observed = read_labels(y)
        check_consistent_length(X, observed)
        names = np.arange(observed.shape[1]) if names is None else names
        # One column is a binary problem to scikit-learn's scorers, which would turn its scores round for classes [0].
        self.classes_ = names if len(names) > 1 else np.array([NEGATIVE, POSITIVE])
        found = (fit_kernel if self.head == "kernel" else fit_linear)(
            X,
            LabelMatrix.of(observed),
            make=lambda: create_method(self.method, **self._method_options()),
            rounds=METHODS[self.method].rounds,
            C=self.C,
            folds=self.folds,
            row_weights=None if sample_weight is None else _check_sample_weight(sample_weight, X),
            class_weights=self._class_weights(observed, names),
            tolerance=self.tol,
            max_iter=self.max_iter,
            seed=self.random_state,
        )
        self._warn_unless_converged(found)
        self.C_, self.trials_, self.n_iter_ = found.C, list(found.trials), found.iterations
        scores = found.out_of_fold(X)
        judged = scores if len(observed) >= _FEWEST_TO_HOLD_OUT else found.scores(X)
        level = _level(judged, observed, found.priors)
        self.coef_, self.intercept_ = found.coef, (found.intercept - level).astype(found.intercept.dtype)
        self.kernel_ = found.kernel
        self.out_of_fold_ = scores - level.astype(np.float32)
        return self

    def _method_options(self) -> dict[str, Any]:
        info = METHODS[self.method]
        return {**info.run_options(epochs=info.rounds, seed=self.random_state), **(self.options or {})}

    def _warn_unless_converged(self, found: LinearFit) -> None:
        if not found.converged and METHODS[self.method].convex:
            warnings.warn(
                f"stopped after {found.iterations} steps where scores would still change by {found.residual:.1e}, "
                f"above tol = {self.tol}; allow more with max_iter, or strengthen the penalty with a smaller C",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _class_weights(self, observed: Labels, names: NDArray[Any]) -> Floats | None:
        if self.class_weight is None:
            return None
        if self.class_weight == "balanced":
            positives = (observed == POSITIVE).sum(0)
            given = positives > 0
            weights = np.ones(observed.shape[1])
            weights[given] = positives[given].mean() / positives[given]
            return weights
        if not isinstance(self.class_weight, Mapping):
            raise ValueError(f"class_weight must be a mapping, 'balanced' or None, got {self.class_weight!r}")
        index = {name: number for number, name in enumerate(names.tolist())}
        weights = np.ones(observed.shape[1])
        for name, weight in self.class_weight.items():
            if name not in index:
                raise ValueError(f"class_weight names the class {name!r}, which y does not have")
            if not 0 <= weight < np.inf:
                raise ValueError(f"class_weight must hold finite numbers of at least 0, got {weight!r} for {name!r}")
            weights[index[name]] = weight
        return weights

    def _check_options(self) -> None:
        info = find_method(self.method)
        if not info.solvable:
            why = "looks at every place of an image" if info.needs_places else "needs many small steps"
            raise ValueError(f"method {self.method} {why}, and cannot be solved for on rows of X; choose another")
        if self.head not in ("linear", "kernel"):
            raise ValueError(f"head must be 'linear' or 'kernel', got {self.head!r}")
        for name, least in (("folds", 2), ("max_iter", 1)):
            if not (isinstance(getattr(self, name), int) and getattr(self, name) >= least):
                raise ValueError(f"{name} must be a whole number of at least {least}, got {getattr(self, name)!r}")
        if not (isinstance(self.tol, int | float) and 0 < self.tol < np.inf):
            raise ValueError(f"tol must be a finite number above 0, got {self.tol!r}")
        if self.C != "auto" and not (isinstance(self.C, int | float) and 0 < self.C < np.inf):
            raise ValueError(f"C must be a finite number above 0, or 'auto', got {self.C!r}")

    def decision_function(self, X: Any) -> Floats:
        """Scores (rows, classes), logits: the higher, the more likely."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)
        if self.kernel_ is not None:
            X = self.kernel_(torch.from_numpy(X)).numpy()
        scores: Floats = X @ self.coef_.T + self.intercept_
        return scores

    def predict_proba(self, X: Any) -> Floats:
        """The sigmoid of the scores, (rows, classes); `CalibratedMultiLabel` has calibrated ones."""
        probabilities: Floats = expit(self.decision_function(X))
        return probabilities

    def predict(self, X: Any) -> NDArray[np.int64]:
        """1 where the score is above 0, else 0, (rows, classes)."""
        return (self.decision_function(X) > 0).astype(np.int64)

    def score(self, X: Any, y: Any) -> float:
        """The estimated mean average precision, see `ranking_score`."""
        return ranking_score(self, X, y)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.two_d_labels = True
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = False
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.multi_label = True
        return tags


def _level(scores: Floats, observed: Labels, priors: Floats | None) -> Floats:
    """The score (L,) above which each class has as many rows as it is thought to have positives.

    These are the rows that are known to be, and the share of the others that the class priors say, or else that of the
    known ones, if negatives are known. A class without a known positive stays as it is.
    """
    rows = len(observed)
    positive, negative = ((observed == value).sum(0) for value in (POSITIVE, NEGATIVE))
    noted = np.where(negative > 0, positive / np.maximum(positive + negative, 1), 0)
    share = noted if priors is None else priors
    number = np.clip(np.rint(np.maximum(share * rows, positive)).astype(int), 1, max(1, rows - 1))
    ranked = -np.sort(-scores, axis=0)
    last = np.take_along_axis(ranked, number[None] - 1, 0)[0]
    after = np.take_along_axis(ranked, np.minimum(number, rows - 1)[None], 0)[0]
    return np.where(positive > 0, (last + after) / 2, 0.0)


def ranking_score(estimator: Any, X: Any, y: Any, *, unknown: Unknown | None = None) -> float:
    """The mean average precision of any fitted estimator with scores (rows, classes): for `scoring=` of a grid search.

    Args:
        estimator: has `decision_function` or `predict_proba`.
        X, y: as for `OPMLClassifier`.
        unknown: None estimates what unknown labels are; "negative" counts them so; "ignore" leaves them out, which
            needs known negatives.
    """
    score = estimator.decision_function if hasattr(estimator, "decision_function") else estimator.predict_proba
    labels, scores = read_labels(y), score(X)
    if unknown is None:
        return estimated_map(scores, labels)
    return mean_average_precision(scores, np.maximum(labels, NEGATIVE) if unknown == "negative" else labels).value


def column_names(y: Any) -> NDArray[Any] | None:
    """The names of the classes, where y is a DataFrame."""
    return np.asarray(list(y.columns), object) if hasattr(y, "columns") else None


def read_labels(y: Any) -> Labels:
    """Labels in the one alphabet: -1, NaN and None are unknown, and so is what a sparse matrix does not store.

    Examples:
        >>> read_labels([[1, np.nan], [0, -1]])
        array([[ 1, -1],
               [ 0, -1]], dtype=int8)
    """
    if y is None:
        raise ValueError("OPMLClassifier requires y to be passed, but the target y is None")
    if issparse(y):
        entries = y.tocoo()
        labels = np.full(y.shape, UNKNOWN, np.int8)
        labels[entries.row, entries.col] = validate_labels(entries.data[None])[0] if entries.nnz else 0
    else:
        if hasattr(y, "to_numpy"):
            y = y.to_numpy()
        y = np.asarray(y)
        if y.dtype == object:  # None for what is unknown, or numbers of several kinds
            y = (
                np.array([[np.nan if is_missing(each) else each for each in row] for row in y], float)
                if y.ndim == 2
                else y
            )
        given = check_array(y, ensure_2d=False, ensure_all_finite="allow-nan", input_name="y")
        if given.ndim != 2:
            raise ValueError(
                f"Unknown label type: y must be a matrix (rows, classes) of 1, 0, and -1 or NaN for unknown, got shape "
                f"{given.shape}. Only binary classification is supported, in a column for every class"
            )
        labels = validate_labels(given)
    if (labels == UNKNOWN).all():
        raise ValueError("y: every label is unknown, so there is nothing to learn or to judge by")
    return labels


class CalibratedMultiLabel(MetaEstimatorMixin, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Any multi-label estimator, with probabilities that hold and a threshold for every class.

    Both are fitted to out-of-fold scores: those of `OPMLClassifier` come with its fit, and other estimators are fitted
    once more for each fold. Labels may have holes: what unknown ones are is estimated. An estimator that knows no
    unknown labels is shown them as negative.

    Args:
        estimator: has `decision_function` or `predict_proba`; by default `OPMLClassifier()`.
        rule: what thresholds aim at: "likely", "f1", "precision" or "count", see `onepair.probability.fit_decisions`.
        precision: of rule "precision".
        calibration: "platt", "isotonic" or "auto".
        folds: of an estimator that has no out-of-fold scores.
        random_state: of these folds.

    Attributes:
        estimator_: fitted to all rows.
        thresholds_: (classes,), of its scores.
        out_of_fold_: (rows, classes), the scores that probabilities and thresholds rest on.

    Examples:
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
        rule: Rule = "f1",
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
