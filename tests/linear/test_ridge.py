import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

from onepair import observe_fraction, observe_positives
from onepair.label_matrix import LabelMatrix
from onepair.linear.fit import RidgeTargets, leave_one_out, ridge_solution, ridge_without
from onepair.linear.solver import Design
from tests.linear.problems import fit, make_problem, standardised

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
