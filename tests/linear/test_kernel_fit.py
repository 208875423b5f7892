# ruff: noqa: N803

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from scipy.spatial.distance import cdist

from onepair import OPMLClassifier, mean_average_precision
from onepair.errors import ConfigError
from onepair.label_matrix import LabelMatrix
from onepair.linear import fit as kernel_fit
from onepair.linear.fit import fit_kernel, fit_linear
from onepair.methods import create_method


def rings(rows=400, seed=0):
    """Rows in the plane, with a class inside a circle and another outside: no line separates them."""
    X = np.random.default_rng(seed).normal(size=(rows, 2)).astype(np.float32)
    inside = (X**2).sum(1) < 1.2
    return X, np.stack([inside, ~inside], axis=1).astype(np.int8)


def fitted(X, y, fit=fit_kernel, method="bce", **options):
    return fit(X, LabelMatrix.of(y), make=lambda: create_method(method), **options)


def test_it_bends():
    (X, y), (test, truth) = rings(), rings(seed=1)
    bent = fitted(X, y)
    assert mean_average_precision(bent.scores(test), truth).value > 0.98
    assert mean_average_precision(bent.out_of_fold(X), y).value > 0.97
    straight = fitted(X, y, fit=fit_linear)
    assert mean_average_precision(straight.scores(test), truth).value < 0.7


def test_with_every_row_as_landmark_it_is_kernel_ridge_regression():
    X, y = rings(rows=60)
    X = X.astype(np.float64)
    found = fitted(X, y, method="ridge", C=2.0)
    standard = (X - X.mean(0)) / X.std(0)
    distances = cdist(standard, standard, "sqeuclidean")
    median = np.quantile(distances[np.triu_indices(60, 1)], 0.5, method="lower")
    kernel = np.exp(-distances / (2 * median))
    # In one unit for all of its columns, the penalty D / C · ‖W‖² is trace(K, centred) / (N C) in the kernel's own.
    centred = kernel - kernel.mean(0) - kernel.mean(1)[:, None] + kernel.mean()
    dual = np.linalg.solve(centred + np.trace(centred) / 60 / 2.0 * np.eye(60), y - y.mean(0))
    np.testing.assert_allclose(found.scores(X), centred @ dual + y.mean(0), atol=1e-4)


def test_units_and_offsets_of_columns_do_not_matter():
    X, y = rings()
    other = X * np.float32([10, 1]) + np.float32([3, 0])
    plain, moved = fitted(X, y, C=1.0), fitted(other, y, C=1.0)
    np.testing.assert_allclose(moved.out_of_fold(other), plain.out_of_fold(X), atol=2e-2)


def test_the_number_of_threads_does_not_matter(monkeypatch):
    X, y = rings()
    monkeypatch.setattr(kernel_fit, "_ROWS", 64)
    threads, found = torch.get_num_threads(), []
    try:
        for number in (1, 3):
            torch.set_num_threads(number)
            found.append(fitted(X, y))
    finally:
        torch.set_num_threads(threads)
    assert np.array_equal(found[0].coef, found[1].coef)


def test_landmarks_are_drawn_by_the_seed():
    X, y = rings()
    few = [fitted(X, y, C=1.0, landmarks=50, seed=seed) for seed in (0, 0, 1)]
    assert few[0].coef.shape == (2, 50)
    assert np.array_equal(few[0].coef, few[1].coef)
    assert not np.array_equal(few[0].coef, few[2].coef)


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_few_rows_and_equal_ones(rows):
    X = np.ones((rows, 3), np.float32)
    assert np.isfinite(fitted(X, np.eye(rows, 2, dtype=np.int8)).scores(X)).all()


def test_what_cannot_be_done_is_said(monkeypatch):
    X, y = rings()
    with pytest.raises(ConfigError, match="X is sparse; choose a linear head"):
        OPMLClassifier(head="kernel").fit(csr_array(X), y)
    monkeypatch.setattr(kernel_fit, "_MOST_CELLS", 399)
    with pytest.raises(ConfigError, match="400 numbers for each of 400 rows, and there can be 399"):
        fitted(X, y)
    with pytest.raises(ValueError, match="head must be 'linear' or 'kernel', got 'cubic'"):
        OPMLClassifier(head="cubic").fit(X, y)


def test_estimator():
    (X, y), (test, truth) = rings(), rings(seed=1)
    y[np.arange(400) % 2 == 0] = -1
    estimator = OPMLClassifier(head="kernel").fit(X, y)
    assert (estimator.predict(test) == truth).mean() > 0.9
    assert estimator.coef_.shape == (2, 400)
    assert estimator.out_of_fold_.shape == y.shape
