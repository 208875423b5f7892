# ruff: noqa: N803 (X and C are scikit-learn's names)
import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from scipy.spatial.distance import cdist
from sklearn.linear_model import LogisticRegression, Ridge

from onepair import OPMLClassifier, mean_average_precision, observe_fraction, observe_positives
from onepair.errors import ConfigError
from onepair.label_matrix import LabelMatrix
from onepair.linear.fit import (
    FIRST_C,
    RidgeTargets,
    ValidationRows,
    _folds,
    _vertex,
    fit_kernel,
    fit_linear,
    leave_one_out,
    ridge_solution,
    ridge_without,
)
from onepair.linear.solver import Design
from onepair.methods import create_method
from onepair.probability.evaluation import estimated_map
from tests.linear.problems import fit, make_problem, standardised


def scores_of(found, X):
    return X @ found.coef.T + found.intercept


# Folds


def test_folds_are_as_large_as_each_other_and_drawn_by_the_seed():
    fold = _folds(22, 5, seed=0)
    assert sorted(np.bincount(fold).tolist()) == [4, 4, 4, 5, 5]
    assert (fold == _folds(22, 5, seed=0)).all()
    assert (fold != _folds(22, 5, seed=1)).any()
    assert np.bincount(_folds(3, 5, seed=0)).tolist() == [1, 1, 1]


@pytest.mark.parametrize("method", ["bce", "ridge"])
def test_labels_of_a_row_do_not_change_the_models_that_score_it_out_of_fold(method):
    X, full = make_problem(60)
    changed, row = full.copy(), 7
    changed[row] = 1 - changed[row]
    one, other = (fit(X, labels, method, tolerance=1e-8) for labels in (full, changed))
    own = one.fold[row]
    np.testing.assert_allclose(one.fold_coef[own], other.fold_coef[own], atol=1e-6)
    for number in set(range(5)) - {own}:
        assert np.abs(one.fold_coef[number] - other.fold_coef[number]).max() > 1e-3


def test_a_fold_is_fitted_to_the_other_rows():
    """Columns are in units of all rows, and the penalty is as strong for each of those that are left."""
    X, full = make_problem(60)
    found = fit(X, full, "bce", C=2.0, folds=3, tolerance=1e-8)
    kept, Z = found.fold != 1, standardised(X)
    for coef, column in zip(found.fold_coef[1], full.T, strict=True):
        expected = LogisticRegression(C=1 / (6 / 2.0 * kept.mean()), tol=1e-10).fit(Z[kept], column[kept])
        np.testing.assert_allclose(coef * X.std(0), expected.coef_[0], atol=1e-5)


def test_out_of_fold_scores_are_of_the_model_without_the_row_at_one_level():
    X, full = make_problem(60)
    found = fit(X, full, "ridge", C=2.0, folds=3)
    Z, scores = standardised(X), found.out_of_fold(X)
    models = [Ridge(alpha=3 * np.mean(found.fold != part)).fit(Z[found.fold != part], full[found.fold != part])
              for part in range(3)]  # fmt: skip
    level = np.mean([model.intercept_ for model in models], axis=0)
    for row in range(60):
        np.testing.assert_allclose(scores[row], Z[row] @ models[found.fold[row]].coef_.T + level, atol=1e-5)
    some = np.array([50, 3])
    np.testing.assert_array_equal(found.out_of_fold(X[some], some), scores[some])


def test_out_of_fold_scores_tell_less_than_the_fit():
    X, full = make_problem(60, 40)
    found = fit(X, full, "bce", C=10.0)
    assert estimated_map(found.out_of_fold(X), full) < estimated_map(scores_of(found, X), full) - 0.05


def test_one_row_has_scores_of_nothing_out_of_fold():
    X, full = make_problem(1)
    for method in ("bce", "ridge", "opml-plus"):
        found = fit(X, full, method)
        assert (found.out_of_fold(X) == 0).all()
        assert np.isfinite(scores_of(found, X)).all()


# The penalty


def test_much_noise_asks_for_a_strong_penalty_and_clean_labels_for_a_weak_one():
    random = np.random.default_rng(1)
    noisy = random.normal(size=(300, 60))
    weak = (0.7 * noisy[:, :3] + random.normal(size=(300, 3)) > 0.5).astype(np.int8)
    alike = 5 * random.normal(size=(300, 1)) + random.normal(size=(300, 10))  # what matters is small
    truth = random.normal(size=(10, 3))
    clean = (alike @ (truth - truth.mean(0)) > 0.5).astype(np.int8)
    assert fit(noisy, weak, "bce", C="auto", tolerance=1e-3).C < 1
    assert fit(alike, clean, "bce", C="auto", tolerance=1e-3).C > 100


def test_trials_are_judged_by_rows_that_were_left_out():
    X, full = make_problem(40)
    observed, told = observe_fraction(full, known=0.7), []
    found = fit(X, observed, "ridge", C="auto", on_trial=told.append)
    Z = standardised(X)
    known = [[column[column >= 0].mean(), (column == 0).sum() / (column < 1).sum()] for column in observed.T]
    targets = np.where(observed == -1, np.prod(known, axis=1), observed)
    for C, value in found.trials:
        alone = [
            Ridge(alpha=6 / C).fit(np.delete(Z, row, 0), np.delete(targets, row, 0)).predict(Z[[row]])[0]
            for row in range(40)
        ]
        assert value == pytest.approx(estimated_map(np.array(alone), observed))
    assert told == found.trials
    assert found.trials[0].C == FIRST_C
    best = max(found.trials, key=lambda trial: trial.estimated_map).C
    assert abs(np.log10(found.C / best)) <= 0.25 + 1e-9


@pytest.mark.parametrize("method", ["ridge", "opml"])
def test_trials_are_judged_by_validation_rows_where_there_are_some(method):
    X, full = make_problem(60)
    others, labels = make_problem(50, seed=1)
    found = fit(X, full, method, C="auto", validation=ValidationRows(others, LabelMatrix.of(labels)), folds=2)
    for C, value in found.trials:
        scores = scores_of(fit(X, full, method, C=C, folds=2), others)
        assert value == pytest.approx(estimated_map(scores, labels), abs=1e-9 if method == "ridge" else 5e-3)
    assert found.trials[0] != fit(X, full, method, C="auto", folds=2).trials[0]


def test_without_positives_to_judge_by_the_penalty_is_the_usual_one():
    X, full = make_problem(60)
    none = np.where(full == 1, -1, full)
    validation = ValidationRows(X[:9], LabelMatrix.of(none[:9]))
    for labels, given in ((none, None), (full, validation)):
        for method in ("opml-plus", "ridge"):
            found = fit(X, labels, method, C="auto", validation=given)
            assert found.C == FIRST_C
            assert found.trials == []
            assert np.isfinite(found.coef).all()


def test_no_more_rows_are_held_out_to_judge_by_than_are_enough(monkeypatch):
    """One fold of the five; the result still has out-of-fold scores of all."""
    X, full = make_problem(60)
    whole = fit(X, full, "bce", C="auto", tolerance=1e-3)
    monkeypatch.setattr("onepair.linear.fit._ENOUGH_ROWS", 12)
    part = fit(X, full, "bce", C="auto", tolerance=1e-3)
    own = part.fold == 0
    assert part.trials[0] != whole.trials[0]
    found = fit(X, full, "bce", C=FIRST_C, tolerance=1e-6)
    assert part.trials[0].estimated_map == pytest.approx(estimated_map(found.out_of_fold(X)[own], full[own]), abs=0.02)
    assert np.isfinite(part.out_of_fold(X)).all()


@pytest.mark.parametrize("method", ["bce", "ridge"])
def test_of_many_classes_some_that_have_positives_are_judged(method, monkeypatch):
    X, full = make_problem(60)
    full[:, 1] = 0
    monkeypatch.setattr("onepair.linear.fit._MOST_CLASSES", 3)
    found, judged = fit(X, full, method, C="auto", folds=2), full[:, [0, 2, 3]]
    assert found.trials[0] == pytest.approx(fit(X, judged, method, C="auto", folds=2).trials[0], abs=5e-3)
    assert found.coef.shape == (4, 6)


@pytest.mark.parametrize(
    "values", [(0.0, 1.0, 0.5), (0.5, 1.0, 0.0), (0.2, 0.3, 0.3), (0.3, 0.3, 0.2), (0.0, 1.0, 0.0)]
)
def test_vertex_is_that_of_the_parabola_through_three_values(values):
    square, slope, _ = np.polyfit([-1, 0, 1], values, 2)
    assert _vertex(*values) == pytest.approx(-slope / (2 * square))
    assert abs(_vertex(*values)) <= 0.5


@pytest.mark.parametrize("values", [(-np.inf, 1.0, 0.5), (0.5, 1.0, -np.inf), (1.0, 1.0, 1.0)])
def test_there_is_no_vertex_at_an_end_or_on_a_plain(values):
    assert _vertex(*values) == 0.0


# Priors


def test_methods_that_ask_for_class_priors_are_told():
    X, full = make_problem(300)
    observed = observe_fraction(full, known=0.5)
    found = fit(X, observed, "opml-plus", tolerance=1e-3)
    np.testing.assert_allclose(found.priors, full.mean(0), atol=0.06)
    assert fit(X, observed, "opml", tolerance=1e-3).priors is None


STRENGTH = 2.5
OBSERVED = {
    "full": lambda full: full,
    "half": lambda full: observe_fraction(full, known=0.5),
    "positives": observe_positives,
    "rows": lambda full: np.where(np.arange(len(full))[:, None] % 2, full, observe_positives(full)),
}

every_shape = pytest.mark.parametrize("shape", [(40, 6), (20, 30)], ids=["more rows", "more columns"])
every_kind = pytest.mark.parametrize("kind", OBSERVED)


def shares(labels):
    """The target of an unknown label, by class: the share of positives times the share of the others that is known."""
    found = []
    for column in labels.T.tolist():
        positive, negative, unknown = (column.count(value) for value in (1, 0, -1))
        known, others = positive + negative, negative + unknown
        found.append(positive / known * negative / others if known and others else 0.0)
    return np.array(found)


def problem(shape, kind):
    """The features, in the solver's design and standardised, and the targets: those of the solver and a matrix."""
    X, full = make_problem(*shape)
    X = X * np.linspace(1, 9, shape[1]) + 4
    labels = OBSERVED[kind](full)
    share, design = shares(labels), Design.of(X)
    targets = RidgeTargets.of(design, LabelMatrix.of(labels), torch.from_numpy(share))
    return design, standardised(X), targets, np.where(labels == -1, share, labels)


def weights_of(design, found):
    return design.feature_weights(found[:-1]).numpy().T, found[-1].numpy()


@every_kind
@every_shape
def test_closed_form_is_ridge_regression(shape, kind):
    design, Z, targets, T = problem(shape, kind)
    coef, intercept = weights_of(design, ridge_solution(design, targets, STRENGTH))
    expected = Ridge(alpha=STRENGTH).fit(Z, T)
    np.testing.assert_allclose(coef, expected.coef_, atol=1e-10)
    np.testing.assert_allclose(intercept, expected.intercept_, atol=1e-10)


@every_kind
@every_shape
def test_solution_without_rows_is_that_of_the_others(shape, kind):
    design, Z, targets, T = problem(shape, kind)
    left_out = np.array([0, 3, 4, 17])
    coef, intercept = weights_of(design, ridge_without(design, targets, STRENGTH, torch.from_numpy(left_out)))
    expected = Ridge(alpha=STRENGTH).fit(np.delete(Z, left_out, 0), np.delete(T, left_out, 0))
    np.testing.assert_allclose(coef, expected.coef_, atol=1e-9)
    np.testing.assert_allclose(intercept, expected.intercept_, atol=1e-9)


@every_kind
@every_shape
def test_leaving_one_out_is_solving_without_it(shape, kind):
    design, Z, targets, T = problem(shape, kind)
    rows = np.array([1, 2, 5, 19])
    found = leave_one_out(design, targets, STRENGTH, torch.from_numpy(rows)).numpy()
    for row, scores in zip(rows, found, strict=True):
        others = Ridge(alpha=STRENGTH).fit(np.delete(Z, row, 0), np.delete(T, row, 0))
        np.testing.assert_allclose(scores, others.predict(Z[[row]])[0], atol=1e-9)


@every_kind
def test_fit_is_ridge_regression_with_a_penalty_of_width_by_c(kind):
    X, full = make_problem(40)
    labels = OBSERVED[kind](full)
    found = fit(X, labels, "ridge", C=4.0)
    expected = Ridge(alpha=6 / 4.0).fit(standardised(X), np.where(labels == -1, shares(labels), labels))
    np.testing.assert_allclose(X @ found.coef.T + found.intercept, expected.predict(standardised(X)), atol=1e-6)
    assert found.converged


def test_folds_have_a_penalty_that_is_as_strong_for_each_row():
    X, full = make_problem(40)
    found = fit(X, full, "ridge", C=4.0, folds=4)
    for number in range(4):
        kept = found.fold != number
        expected = Ridge(alpha=6 / 4.0 * kept.mean()).fit(standardised(X)[kept], full[kept])
        np.testing.assert_allclose(found.fold_coef[number] * X.std(0), expected.coef_, atol=1e-9)


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
    monkeypatch.setattr("onepair.linear.fit._ROWS", 64)
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
    monkeypatch.setattr("onepair.linear.fit._MOST_CELLS", 399)
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
