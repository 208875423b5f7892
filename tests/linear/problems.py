# ruff: noqa: N803 (X is scikit-learn's name)
"""Small problems that linear classifiers are tested on."""

import numpy as np

from onepair.label_matrix import LabelMatrix
from onepair.linear.fit import fit_linear
from onepair.methods import METHODS, create_method


def make_problem(rows=120, features=6, classes=4, *, seed=0, noise=1.0):
    """Features and full labels that depend on them, in the same way for every seed."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(rows, features))
    truth = np.random.default_rng(0).normal(size=(features, classes))
    return X, (X @ truth + noise * random.normal(size=(rows, classes)) > 0.5).astype(np.int8)


def thin(X):
    """The same features, most of them 0."""
    return np.where(np.abs(X) < 1, 0, X)


def standardised(X):
    return (X - X.mean(0)) / X.std(0)


def fit(X, labels, method, **options):
    """`fit_linear` with a method of this name."""
    return fit_linear(
        X,
        LabelMatrix.of(labels),
        make=lambda: create_method(method),
        **{"rounds": METHODS[method].rounds, "C": 1.0, "tolerance": 1e-7, **options},
    )
