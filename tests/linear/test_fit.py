# ruff: noqa: N803 (X is scikit-learn's name)
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge

from onepair import observe_fraction
from onepair.label_matrix import LabelMatrix
from onepair.linear.fit import FIRST_C, ValidationRows, _folds, _vertex
from onepair.probability.selection_score import estimated_map
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
