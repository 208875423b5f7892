# ruff: noqa: N803 (X and C are scikit-learn's names)
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import minimize
from sklearn.base import clone
from torch.nn.functional import softplus

from onepair import OPMLClassifier, mean_average_precision, observe_fraction, observe_positives
from onepair.label_matrix import LabelMatrix
from onepair.linear import solver
from onepair.linear.solver import Design, Objective, in_order, measure_columns, solve, workers
from onepair.methods import METHODS, create_method
from onepair.methods.opml_sp import label_correction
from onepair.metrics import one_block
from tests.linear.problems import fit, make_problem, standardised, thin
from tests.methods.training import LIVELY

COLUMNS = 6


@pytest.fixture
def stays_sparse(monkeypatch):
    """A sparse matrix is taken as such, however small."""
    monkeypatch.setattr(solver, "_SMALL", 0)


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
    monkeypatch.setattr(solver, "_BLOCK", 7 * COLUMNS)
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
    monkeypatch.setattr(solver, "_SMALL", small)
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
    monkeypatch.setattr(solver, "_SMALL", small)
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
    monkeypatch.setattr(solver, "_MOST_DIRECTIONS", 0)
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


IN_ROWS = [name for name, info in METHODS.items() if info.solvable]


def solution(X, labels, name, *, strength, row_weights=None, **options):
    """The solver's weights by column, and its intercepts."""
    design, method = Design.of(X), create_method(name, **options)
    method.begin(torch.from_numpy(labels))
    objective = Objective(
        design, method.eval(), labels.shape[1], strength=strength, run=in_order, row_weights=row_weights
    )
    start = torch.zeros(design.directions + 1, labels.shape[1], dtype=design.dtype)
    found = solve(objective, start, tolerance=1e-9, max_iter=1000)
    assert found.residual <= 1e-9
    return design.feature_weights(found.weights[:-1]).numpy(), found.weights[-1].numpy()


# The losses of a row, written out


def bce(scores, positive, negative, unknown):
    return (positive * softplus(-scores) + (1 - positive) * softplus(scores)).sum()


def one_pair(alpha, beta):
    def loss(scores, positive, negative, unknown):
        pulled = alpha + (positive * torch.exp(-scores)).sum(1)
        pushed = beta + ((negative + unknown) * torch.exp(scores)).sum(1)
        return (pulled.log() + pushed.log()).sum()

    return loss


def smoothed(scores, positive, negative, unknown):
    alpha, beta, share = 0.6 / 0.4, 0.9 / 0.1, 0.01
    pulled = alpha + (positive * torch.exp(-scores)).sum(1)
    softly = alpha + (share * unknown * torch.exp(-scores)).sum(1)
    pushed = beta + ((negative + (1 - share) * unknown) * torch.exp(scores)).sum(1)
    return (pulled.log() + softly.log() + pushed.log()).sum()


def plus(scores, positive, negative, unknown):
    alpha, beta, trust, missing = 0.3 / 0.7, 0.15 / 0.85, 0.1, 1.0
    rest = beta / (alpha + beta)
    kept_low = rest * softplus(-scores) + (1 - rest) * softplus(scores)
    weight = negative + trust / (trust + missing) * unknown
    return (positive * torch.log(alpha + torch.exp(-scores)) + weight * kept_low).sum()


LOSSES = {"bce": bce, "opml": one_pair(1.5, 0.4 / 0.6), "zlpr": one_pair(1, 1), "opml-ls": smoothed, "opml-plus": plus}


def slow_solution(X, labels, loss, *, strength):
    """The same of standardised columns, by scipy and autograd."""
    features, given = torch.from_numpy(standardised(X)), torch.from_numpy(labels)
    kinds = [(given == value).double() for value in (1, 0, -1)]
    shape = (X.shape[1] + 1, labels.shape[1])

    def objective(values):
        weights = torch.tensor(values.reshape(shape), requires_grad=True)
        total = loss(features @ weights[:-1] + weights[-1], *kinds) + strength / 2 * weights[:-1].square().sum()
        total.backward()
        return total.item(), weights.grad.numpy().ravel()

    options = {"maxiter": 10_000, "maxfun": 10_000, "ftol": 1e-15, "gtol": 1e-9}
    found = minimize(objective, np.zeros(np.prod(shape)), jac=True, method="L-BFGS-B", options=options)
    return found.x.reshape(shape)[:-1], found.x.reshape(shape)[-1]


@pytest.mark.parametrize("C", [0.1, 30.0])
@pytest.mark.parametrize("name", LOSSES)
def test_solution_is_that_of_another_solver(name, C):
    X, full = make_problem()
    X = X * [1, 2, 30, 1, 1, 1] + [0, 0, 0, 5, 0, 0]
    labels = observe_fraction(full, known=0.6)
    found = solution(X, labels, name, strength=6 / C)
    expected = slow_solution(X, labels, LOSSES[name], strength=6 / C)
    for mine, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, other, atol=2e-5)


def test_estimator_gives_the_solution_in_units_of_the_features():
    X, full = make_problem()
    X = X * [1, 2, 30, 1, 1, 1] + [0, 0, 0, 5, 0, 0]
    model = OPMLClassifier(method="zlpr", C=2.0, tol=1e-8).fit(X, full)
    weights, _ = slow_solution(X, full, LOSSES["zlpr"], strength=6 / 2.0)
    np.testing.assert_allclose(model.coef_, (weights / X.std(0)[:, None]).T, atol=2e-5)


def test_a_solution_is_reached_from_anywhere():
    X, full = make_problem()
    design, method = Design.of(X), create_method("opml")
    method.begin(torch.from_numpy(full))
    objective = Objective(design, method.eval(), 4, strength=1.0, run=in_order)
    starts = torch.zeros(7, 4, dtype=torch.float64), 3 * torch.randn(7, 4, dtype=torch.float64)
    found = [solve(objective, start, tolerance=1e-8, max_iter=500).weights for start in starts]
    np.testing.assert_allclose(found[0], found[1], atol=1e-5)


def test_max_iter_is_the_most_steps():
    X, full = make_problem()
    for most in (1, 4):
        found = fit(X, full, "opml", max_iter=most, tolerance=1e-12)
        assert found.iterations == most
        assert not found.converged


# Threads


@pytest.fixture
def threads():
    """Sets the number of threads, and puts back what it was."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("name", ["opml-plus", "ridge"])
def test_number_of_threads_does_not_change_a_bit(name, container, threads, monkeypatch):
    monkeypatch.setattr(solver, "_BATCH", 2**8)
    monkeypatch.setattr(solver, "_ROWS", 64)
    monkeypatch.setattr(solver, "_SMALL", 0)  # a sparse matrix stays one
    X, full = make_problem(200)
    X = container(thin(X).astype(np.float32))
    fits = []
    for number in (1, 2, 4):
        threads(number)
        fits.append(fit(X, observe_fraction(full, known=0.6), name, C="auto", folds=2, tolerance=1e-3))
        assert torch.get_num_threads() == number
    for other in fits[1:]:
        for part in ("coef", "intercept", "fold_coef", "fold_intercept", "trials"):
            np.testing.assert_array_equal(getattr(other, part), getattr(fits[0], part))


def test_threads_are_put_back_after_an_error(threads):
    threads(2)
    with pytest.raises(KeyError), workers() as run:
        run({}.__getitem__, [torch.get_num_threads()])
    assert torch.get_num_threads() == 2


def test_batches_do_not_change_the_solution(monkeypatch):
    X, full = make_problem(400)
    whole = fit(X, full, "opml")
    monkeypatch.setattr(solver, "_BATCH", 2**8)
    parts = fit(X, full, "opml")
    np.testing.assert_allclose(parts.coef, whole.coef, atol=1e-5)


# Weights


def test_a_row_of_weight_two_counts_as_two_rows():
    """Every row of X has 3 in all, so that columns have the same units."""
    X, full = make_problem(60)
    weights = np.random.default_rng(0).integers(0, 4, 60)
    twice, labels, counts = np.tile(X, (2, 1)), np.vstack([full, 1 - full]), np.concatenate([weights, 3 - weights])
    weighted = OPMLClassifier(method="bce", C=1.0, tol=1e-8).fit(twice, labels, sample_weight=counts)
    repeated = OPMLClassifier(method="bce", C=1.0, tol=1e-8).fit(twice.repeat(counts, 0), labels.repeat(counts, 0))
    plain = OPMLClassifier(method="bce", C=1.0, tol=1e-8).fit(twice, labels)
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=1e-6)
    assert np.abs(weighted.coef_ - plain.coef_).max() > 0.1


def test_ridge_knows_weights():
    """It has no closed form then."""
    X, full = make_problem(60)
    twice, labels, counts = np.tile(X, (2, 1)), np.vstack([full, 1 - full]), np.repeat([3, 0], 60)
    weighted = OPMLClassifier(method="ridge", C=1.0, tol=1e-8).fit(twice, labels, sample_weight=counts)
    repeated = OPMLClassifier(method="ridge", C=1.0).fit(X.repeat(3, 0), full.repeat(3, 0))
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=1e-6)


def test_a_class_of_weight_0_has_no_influence():
    X, full = make_problem()
    options = {"method": "bce", "C": 1.0, "tol": 1e-8}
    found = OPMLClassifier(class_weight={2: 0.0}, **options).fit(X, full)
    without = OPMLClassifier(**options).fit(X, full[:, [0, 1, 3]])
    assert (found.coef_[2] == 0).all()
    np.testing.assert_allclose(found.coef_[[0, 1, 3]], without.coef_, atol=1e-6)


def test_a_class_of_weight_3_has_a_third_of_the_penalty():
    X, full = make_problem()
    options = {"method": "bce", "tol": 1e-8}
    found = OPMLClassifier(class_weight={1: 3.0}, C=1.0, **options).fit(X, full).coef_
    one, three = (OPMLClassifier(C=C, **options).fit(X, full).coef_ for C in (1.0, 3.0))
    np.testing.assert_allclose(found[1], three[1], atol=1e-6)
    np.testing.assert_allclose(found[[0, 2, 3]], one[[0, 2, 3]], atol=1e-6)


# Methods


@pytest.mark.parametrize("name", IN_ROWS)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_every_method_gives_finite_scores_and_the_same_bits_twice(name):
    X, full = make_problem(30, 3)
    observed = observe_positives(full)
    observed[::2] = observe_fraction(full, known=0.5)[::2]
    options = {key: value for key, value in LIVELY.get(name, {}).items() if key != "epochs"}
    model = OPMLClassifier(method=name, options=options, C=1.0, folds=2, max_iter=4)
    fits = [clone(model).fit(X, observed) for _ in range(2)]
    assert np.isfinite(fits[0].decision_function(X)).all()
    assert np.isfinite(fits[0].out_of_fold_).all()
    assert (fits[0].coef_ != 0).all()
    np.testing.assert_array_equal(fits[0].coef_, fits[1].coef_)
    np.testing.assert_array_equal(fits[0].out_of_fold_, fits[1].out_of_fold_)


@pytest.mark.parametrize("name", [name for name in IN_ROWS if METHODS[name].convex])
def test_convex_methods_reach_their_solution(name):
    X, full = make_problem(60)
    observed = observe_fraction(full, known=0.7)
    assert fit(X, observed, name, tolerance=1e-6).converged


def test_permanent_corrections_are_made_in_training_mode_only():
    method = create_method("ll-cp", delta=0.2)
    method.begin(torch.full((4, 5), -1, dtype=torch.int8))
    method.end_epoch(1, None)
    scores, rows = torch.randn(4, 5, generator=torch.Generator().manual_seed(0)), torch.arange(4)
    method.eval()
    first, second = method(scores, rows), method(scores, rows)
    assert first == second
    assert (method.targets == -1).all()
    method.train()
    method(scores, rows)
    assert (method.targets == 1).sum() == 4


def test_a_visit_shows_every_batch_once_in_training_mode():
    X, full = make_problem()
    method = create_method("ll-cp", delta=0.1)
    method.begin(torch.from_numpy(observe_positives(full)))
    method.end_epoch(1, None)
    objective = Objective(Design.of(X), method.eval(), 4, strength=1.0, run=in_order)
    weights = torch.randn(7, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    objective.gradient(weights)
    assert (method.targets == method.observed).all()
    objective.visit(weights)
    assert (method.targets != method.observed).sum() == 0.1 * full.size
    assert not method.training


@pytest.mark.parametrize("name", ["opml-correct", "opml-soft", "ll-cp"])
def test_rounds_make_targets_anew(name):
    X, full = make_problem(60)
    observed = observe_positives(full)
    one, three = (fit(X, observed, name, rounds=rounds) for rounds in (1, 3))
    assert np.abs(one.coef - three.coef).max() > 0.01


def test_a_round_solves_for_what_the_one_before_has_found():
    X, full = make_problem()
    observed = observe_positives(full)
    first = fit(X, observed, "opml")
    scores = X @ first.coef.T + first.intercept
    _, corrected = label_correction(one_block(scores), LabelMatrix.of(observed), label_num=0.8)
    second = fit(X, corrected, "opml")
    np.testing.assert_allclose(fit(X, observed, "opml-correct", rounds=2).coef, second.coef, atol=1e-5)
    assert np.abs(second.coef - first.coef).max() > 0.01
