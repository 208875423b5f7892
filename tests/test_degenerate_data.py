# ruff: noqa: N803 (X is scikit-learn's name)
"""The estimator on data that hardly is any: an answer that is finite, or a sentence."""

import numpy as np
import pytest

from onepair import OPMLClassifier, observe_positives
from tests.linear.problems import make_problem


def degenerate(kind):
    X, full = make_problem(rows=40)
    X, y = X.copy(), observe_positives(full).astype(float)
    if kind == "constant columns":
        X[:, 1], X[:, 2], X[:, 3] = 0.0, 7.0, 1e30
    elif kind == "all columns constant":
        X[:] = 3.0
    elif kind == "one row":
        X, y = X[:1], y[:1]
    elif kind == "equal rows":
        X, y = X[:1].repeat(9, 0), y[:1].repeat(9, 0)
    elif kind == "one class":
        y = y[:, :1]
    elif kind == "a class of unknown labels":
        y[:, 0] = np.nan
    elif kind == "all positive":
        y[:] = 1
    elif kind == "all negative":
        y[:] = 0
    elif kind == "1e30":
        X *= 1e30
    elif kind == "a column of 1e30":
        X[:, 0] *= 1e30
    elif kind == "an outlier of 1e30":
        X[0, 0] = 1e30
    elif kind == "1e-300":
        X *= 1e-300
    elif kind == "more columns than rows":
        X, y = np.hstack([X[:3]] * 20), y[:3]
    return X, y


DEGENERATE = (
    "constant columns",
    "all columns constant",
    "one row",
    "equal rows",
    "one class",
    "a class of unknown labels",
    "all positive",
    "all negative",
    "1e30",
    "a column of 1e30",
    "an outlier of 1e30",
    "1e-300",
    "more columns than rows",
)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("kind", DEGENERATE)
def test_degenerate_data_has_a_finite_answer(kind):
    X, y = degenerate(kind)
    for options in ({}, {"method": "bce-known"}, {"method": "opml-sp", "C": 1.0, "max_iter": 20}, {"method": "ridge"}):
        with np.errstate(all="raise", under="ignore"):
            model = OPMLClassifier(**options).fit(X, y)
        scores, chances = model.decision_function(X), model.predict_proba(X)
        assert np.isfinite(scores).all(), options
        assert np.isfinite(model.coef_).all(), options
        assert ((chances >= 0) & (chances <= 1)).all(), options
        assert model.predict(X).shape == y.shape, options


@pytest.mark.parametrize(
    ("X", "y", "sentence"),
    [
        (np.array([[np.nan, 1.0]]), np.ones((1, 2)), "NaN"),
        (np.array([[np.inf, 1.0]]), np.ones((1, 2)), "infinity"),
        (np.empty((0, 2)), np.ones((0, 2)), "0 sample"),
        (np.empty((2, 0)), np.ones((2, 1)), "0 feature"),
        (np.ones((2, 2)), -np.ones((2, 2)), "every label is unknown"),
        (np.ones((2, 2)), np.ones((3, 2)), "inconsistent numbers of samples"),
    ],
    ids=["NaN", "infinite", "no rows", "no columns", "all unknown", "other rows"],
)
def test_what_cannot_be_fitted_is_a_sentence(X, y, sentence):
    with pytest.raises(ValueError, match=sentence):
        OPMLClassifier().fit(X, y)
    model = OPMLClassifier().fit(np.eye(2), np.eye(2))
    with pytest.raises(ValueError, match="NaN"):
        model.predict(np.full((1, 2), np.nan))
