# ruff: noqa: N803 (X is scikit-learn's name)
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from onepair import OPMLClassifier, mean_average_precision, observe_fraction, observe_positives
from onepair.linear import solver as module
from onepair.linear.solver import Design, measure_columns
from tests.linear.problems import fit, make_problem, standardised, thin

COLUMNS = 6


@pytest.fixture
def stays_sparse(monkeypatch):
    """A sparse matrix is taken as such, however small."""
    monkeypatch.setattr(module, "_SMALL", 0)


def scores_of(X, observed, **options):
    return OPMLClassifier(**options).fit(X, observed).decision_function(X)


# Columns


@settings(max_examples=8)
@given(
    st.lists(st.tuples(st.floats(-6, 6), st.sampled_from([1, -1])), min_size=COLUMNS, max_size=COLUMNS),
    st.lists(st.floats(-1e4, 1e4), min_size=COLUMNS, max_size=COLUMNS),
)
def test_unit_and_offset_of_a_dense_column_do_not_matter(units, offsets):
    X, full = make_problem(60)
    moved = (X + offsets) * [sign * 10.0**power for power, sign in units]
    np.testing.assert_allclose(scores_of(moved, full, C=1.0), scores_of(X, full, C=1.0), atol=1e-3)


@pytest.mark.parametrize(("factor", "offset"), [(1000, 5), (1, 1e5), (1e160, 0), (1e-300, 0)])
def test_unit_and_offset_of_all_columns_do_not_matter(factor, offset):
    X, full = make_problem(60)
    np.testing.assert_allclose(scores_of(factor * X + offset, full), scores_of(X, full), atol=1e-3)


@pytest.mark.parametrize("factor", [1e20, 1e-30])
def test_unit_does_not_matter_in_single_precision(factor):
    X, full = make_problem()
    observed = observe_positives(full)
    moved = (factor * X).astype(np.float32)
    np.testing.assert_allclose(scores_of(moved, observed, C=1.0), scores_of(X, observed, C=1.0), atol=1e-2)


def test_dense_columns_are_measured_by_mean_and_spread():
    X = make_problem()[0] * [1, 10, 0.1, 1, 1, 1] + 3
    columns = measure_columns(X)
    np.testing.assert_allclose(columns.centre, X.mean(0))
    np.testing.assert_allclose(columns.unit, X.std(0))


def test_blocks_of_rows_are_measured_as_one(monkeypatch):
    X = make_problem()[0]
    whole = measure_columns(X)
    monkeypatch.setattr(module, "_BLOCK", 7 * COLUMNS)
    parts = measure_columns(X)
    np.testing.assert_allclose(parts.centre, whole.centre, atol=1e-15)
    np.testing.assert_allclose(parts.unit, whole.unit)


@pytest.mark.parametrize("value", [0.0, 7.0, 1e30])
@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
@pytest.mark.usefixtures("stays_sparse")
def test_a_constant_column_has_no_weight_and_leaves_the_others_alone(container, value):
    X, full = make_problem()
    X = thin(X) if container is not np.asarray else X
    more = container(np.column_stack([X, np.full(len(X), value)]))
    with_it, without = fit(more, full, "bce", C=(COLUMNS + 1) / COLUMNS), fit(container(X), full, "bce", C=1.0)
    assert (with_it.coef[:, -1] == 0).all()
    np.testing.assert_allclose(with_it.coef[:, :-1], without.coef, atol=1e-5)
    np.testing.assert_allclose(with_it.intercept, without.intercept, atol=1e-5)


@pytest.mark.parametrize(
    ("container", "small"), [(sparse.csr_array, 0), (sparse.csc_matrix, 0), (sparse.coo_array, 2**25)]
)
def test_sparse_features_give_what_dense_ones_of_the_same_values_give(container, small, monkeypatch):
    monkeypatch.setattr(module, "_SMALL", small)
    X, full = make_problem()
    X, observed = thin(X) * [1, 2, 3, 1, 1, 50], observe_fraction(full, known=0.5)
    dense, found = (OPMLClassifier(method="opml-ls", C=1.0, tol=1e-7).fit(each, observed) for each in (X, container(X)))
    np.testing.assert_allclose(found.decision_function(container(X)), dense.decision_function(X), atol=1e-5)
    np.testing.assert_allclose(found.out_of_fold_, dense.out_of_fold_, atol=1e-5)


def test_zeros_that_are_stored_are_zeros():
    X = thin(make_problem()[0])
    stored = sparse.csr_array(np.where(X == 0, 1.0, X))
    stored.data[stored.data == 1] = 0
    assert stored.nnz == X.size
    np.testing.assert_allclose(measure_columns(stored).unit, measure_columns(X).unit)


@pytest.mark.usefixtures("stays_sparse")
def test_several_entries_for_a_cell_of_a_sparse_matrix_are_their_sum():
    X, full = make_problem()
    once = sparse.csr_array(thin(X))
    data, places = np.repeat(once.data, 2) * np.tile([3.0, -2.0], once.nnz), np.repeat(once.indices, 2)
    twice = sparse.csr_array((data, places, once.indptr * 2), X.shape)
    one, other = (OPMLClassifier(C=1.0).fit(each, full) for each in (once, twice))
    np.testing.assert_allclose(one.coef_, other.coef_, atol=1e-9)
    assert twice.nnz == 2 * once.nnz  # what was given is as it was


@pytest.mark.parametrize("small", [0, 2**25], ids=["stays sparse", "becomes dense"])
@pytest.mark.parametrize("share", [0.05, 1.0])
def test_a_large_column_among_sparse_ones_does_not_drown_the_others(share, small, monkeypatch):
    monkeypatch.setattr(module, "_SMALL", small)
    random = np.random.default_rng(0)
    words = (random.random((400, 40)) < 0.1).astype(np.float32)
    full = (words @ random.normal(size=(40, 3)) > 0.5).astype(np.int8)
    salary = np.where(random.random((400, 1)) < share, 1e6 + 2e5 * random.normal(size=(400, 1)), 0).astype(np.float32)
    precision, spread = [], []
    for X in (words, np.hstack([words, salary])):
        model = OPMLClassifier(method="bce", C=30.0).fit(sparse.csr_array(X[:200]), full[:200])
        precision.append(mean_average_precision(model.decision_function(sparse.csr_array(X[200:])), full[200:]).value)
        spread.append(float(Design.of(sparse.csr_array(X)).spread.max()))
    assert precision[0] > 0.9
    assert precision[1] > precision[0] - 0.02
    assert spread[1] < 400 * spread[0]


# Directions


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("rows", [20, 80])
def test_directions_are_orthonormal_and_of_no_covariance(rows, dtype):
    X = make_problem(rows, 30)[0] @ np.random.default_rng(1).normal(size=(30, 30))
    X[5:10] = X[:5]  # fewer directions than rows
    design = Design.of(X.astype(dtype))
    atol = 1e-9 if dtype == np.float64 else 1e-3
    np.testing.assert_allclose(design.basis.T @ design.basis, np.eye(design.directions), atol=atol)
    np.testing.assert_allclose(design.matrix, standardised(X) @ design.basis.numpy(), atol=atol)
    products = design.matrix.T @ design.matrix
    np.testing.assert_allclose(products, torch.diag(design.spread), atol=atol * float(design.spread.max()))


@pytest.mark.parametrize(("rows", "method"), [(20, "opml"), (80, "opml"), (20, "bce-l2"), (80, "bce-l1")])
def test_the_basis_does_not_matter(rows, method, monkeypatch):
    """Covariance of columns or products of rows, or columns as they are: one solution."""
    X, full = make_problem(rows, 30)
    labels = observe_fraction(full, known=0.5)
    found = fit(X, labels, method)
    monkeypatch.setattr(module, "_MOST_DIRECTIONS", 0)
    assert Design.of(X).basis is None
    plain = fit(X, labels, method)
    np.testing.assert_allclose(found.coef, plain.coef, atol=1e-5)
    np.testing.assert_allclose(found.intercept, plain.intercept, atol=1e-5)


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
@pytest.mark.usefixtures("stays_sparse")
def test_scores_and_gradient_of_a_design_are_those_of_its_columns(container):
    X, random = thin(make_problem()[0]), np.random.default_rng(2)
    design, columns = Design.of(container(X)), measure_columns(X)
    assert (design.basis is None) == (container is not np.asarray)
    weights, intercept = (torch.from_numpy(random.normal(size=shape)) for shape in ((COLUMNS, 4), (4,)))
    seen = (X - columns.centre) / columns.unit
    by_column = design.feature_weights(weights).numpy()
    scores = design.scores(weights, intercept).numpy()
    np.testing.assert_allclose(scores, seen @ by_column + intercept.numpy(), atol=1e-12)
    coef, moved = columns.to_features(by_column, intercept.numpy())
    np.testing.assert_allclose(scores, X @ coef.T + moved, atol=1e-12)
    by_score = torch.from_numpy(random.normal(size=(len(X), 4)))
    gradient = design.feature_weights(design.gradient(by_score)).numpy()
    np.testing.assert_allclose(gradient, seen.T @ by_score.numpy(), atol=1e-12)
