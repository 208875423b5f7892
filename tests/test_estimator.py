# ruff: noqa: N803 (X is scikit-learn's name)
import functools
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from onepair import OPMLClassifier, mean_average_precision, observe_positives
from onepair.correction import label_correction, training_ap
from onepair.estimator import ranking_score, read_labels
from onepair.losses import high_rank_penalty, opml_loss, soft_opml_loss
from onepair.penalised_opml import Features, Prior, high_rank, log_sums, make_objective, one_pair

NOT_OURS = {
    **dict.fromkeys(
        ("check_estimators_dtypes", "check_classifier_data_not_an_array", "check_fit2d_1feature"),
        "labels are called 1 and 2, which is not our alphabet",
    ),
    **dict.fromkeys(
        ("check_estimator_sparse_array", "check_estimator_sparse_matrix"),
        "wants two probabilities for a single class; a multi-label classifier gives one a class",
    ),
    **dict.fromkeys(
        ("check_classifiers_classes", "check_classifiers_train", "check_decision_proba_consistency"),
        "y is a column of class names, or the prediction should be one",
    ),
}


@parametrize_with_checks([OPMLClassifier()], expected_failed_checks=lambda estimator: NOT_OURS)
def test_contract_of_scikit_learn(estimator, check):
    check(estimator)


def make_problem(rows=120, features=6, classes=4, *, seed=0):
    """Features and full labels that depend on them."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(rows, features))
    scores = X @ np.random.default_rng(0).normal(size=(features, classes)) + random.normal(size=(rows, classes))
    return X, (scores > 0.5).astype(np.int8)


def mixed_labels(shape, *, seed=0):
    return np.random.default_rng(seed).integers(-1, 2, shape).astype(np.int8)


@pytest.fixture(scope="module")
def problem():
    X, full = make_problem()
    return X, observe_positives(full), full


# The loss and its gradient


@pytest.mark.parametrize("unknown", ["negative", "ignore"])
@pytest.mark.parametrize("spread", [1.0, 300.0])
def test_loss_and_gradient_are_those_of_opml_loss(unknown, spread):
    scores = np.random.default_rng(1).normal(size=(7, 5)) * spread
    labels = mixed_labels(scores.shape)
    labels[0], labels[1], labels[2] = 1, 0, -1
    loss, gradient = one_pair(scores, log_sums(labels, 0.0, alpha=0.7, beta=0.2, unknown=unknown, dtype=np.float64))
    logits = torch.tensor(scores, requires_grad=True)
    expected = opml_loss(logits, torch.tensor(labels), alpha=0.7, beta=0.2, unknown=unknown, reduction="sum")
    expected.backward()
    assert loss == pytest.approx(expected.item())
    np.testing.assert_allclose(gradient, logits.grad.numpy(), atol=1e-12)


@pytest.mark.parametrize("unknown", ["negative", "ignore"])
def test_smoothing_is_that_of_soft_opml_loss(unknown):
    random = np.random.default_rng(2)
    scores, gamma = random.normal(size=(7, 5)), random.random((7, 5))
    labels = mixed_labels(scores.shape)
    labels[0] = 1
    sums = log_sums(labels, gamma, alpha=0.7, beta=0.2, unknown=unknown, dtype=np.float64)
    loss, gradient = one_pair(scores, sums)
    logits = torch.tensor(scores, requires_grad=True)
    expected = soft_opml_loss(
        logits, torch.tensor(labels), gamma=torch.tensor(gamma), alpha=0.7, beta=0.2, unknown=unknown, reduction="sum"
    )
    expected.backward()
    without = 0 if unknown == "negative" else 7 * np.log(0.7 / 0.3)  # the constant of a term that is left out
    assert loss == pytest.approx(expected.item() - without)
    np.testing.assert_allclose(gradient, logits.grad.numpy(), atol=1e-12)


@pytest.mark.parametrize("shape", [(9, 4), (3, 8)])
def test_high_rank_is_the_penalty_of_the_losses(shape):
    scores = np.random.default_rng(3).normal(size=shape)
    value, gradient = high_rank(scores)
    logits = torch.tensor(scores, requires_grad=True)
    expected = high_rank_penalty(logits.sigmoid())
    expected.backward()
    assert value == pytest.approx(expected.item())
    np.testing.assert_allclose(gradient, logits.grad.numpy(), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("high_rank_weight", [0.0, 0.1])
def test_gradient_of_the_objective_is_its_finite_difference(container, high_rank_weight):
    random = np.random.default_rng(4)
    X, labels = random.normal(size=(8, 3)), mixed_labels((8, 4))
    weights, prior = random.normal(size=(4, 4)), Prior(random.normal(size=(4, 4)), random.random((4, 4)))
    sums = log_sums(labels, 0.1, alpha=0.6, beta=0.4, unknown="negative", dtype=np.float64)
    features = Features(container(X), random.normal(size=3), 1.7)
    objective = make_objective(features, sums, prior, high_rank_weight=high_rank_weight)
    gradient = objective(weights)[1]
    for cell in np.ndindex(weights.shape):
        step = np.zeros_like(weights)
        step[cell] = 1e-5
        difference = (objective(weights + step)[0] - objective(weights - step)[0]) / 2e-5
        assert gradient[cell] == pytest.approx(difference, abs=1e-8)


# The solution


def objective_of(model, X, labels):
    """The objective as the docstring has it, by the loss of the package: a sum over the rows and the l2 penalty."""
    logits = torch.tensor(X @ model.coef_.T + model.intercept_)
    loss = soft_opml_loss(
        logits, torch.tensor(labels), gamma=torch.full_like(logits, model.smoothing),
        alpha=model.alpha, beta=model.beta, unknown=model.unknown, reduction="sum",
    ).item()  # fmt: skip
    return loss + X.var(0).sum() / (2 * model.C) * (model.coef_**2).sum()


def test_solution_is_the_minimum(problem):
    X, observed, _ = problem
    model = OPMLClassifier(tol=1e-7).fit(X, observed)
    least = objective_of(model, X, observed)
    for name in ("coef_", "intercept_"):
        values = getattr(model, name)
        for cell in np.ndindex(values.shape):
            moved = [least]
            for step in (1e-3, -1e-3):
                neighbour = clone(model)
                neighbour.coef_, neighbour.intercept_ = model.coef_.copy(), model.intercept_.copy()
                getattr(neighbour, name)[cell] += step
                moved.append(objective_of(neighbour, X, observed))
            assert min(moved) == least
            assert abs(moved[1] - moved[2]) / 2e-3 < 1e-4  # the gradient, of a sum over 120 rows


def test_two_starting_points_reach_one_solution(problem):
    X, observed, _ = problem
    model = OPMLClassifier(tol=1e-7).fit(X, observed)
    sums = log_sums(observed, model.smoothing, alpha=model.alpha, beta=model.beta, unknown="negative", dtype=X.dtype)
    precision = np.full((X.shape[1] + 1, 4), 1 / model.C)
    precision[-1] = 0
    start = np.random.default_rng(5).normal(size=precision.shape) * 3
    features = Features(X, model.centre_, model.scale_)
    weights = model._solve(features, sums, Prior(np.zeros_like(start), precision), start)
    np.testing.assert_allclose(weights[:-1].T / model.scale_, model.coef_, atol=1e-5)
    np.testing.assert_allclose(weights[-1] - model.coef_ @ model.centre_, model.intercept_, atol=1e-5)


def test_stopping_early_is_said(problem):
    X, observed, _ = problem
    with pytest.warns(ConvergenceWarning, match="stopped after 1 steps"):
        OPMLClassifier(max_iter=1).fit(X, observed)


@pytest.mark.parametrize(("factor", "offset"), [(1000, 5), (1, 1e5), (1e-3, -30), (1e160, 0), (1e-300, 0)])
def test_scale_and_place_of_the_features_do_not_matter(problem, factor, offset):
    X, observed, _ = problem
    moved = factor * X + offset
    one, other = OPMLClassifier().fit(X, observed), OPMLClassifier().fit(moved, observed)
    np.testing.assert_allclose(one.decision_function(X), other.decision_function(moved), atol=1e-4)


@pytest.mark.parametrize("factor", [1e20, 1e-30])
def test_scale_of_features_in_single_precision_does_not_matter(problem, factor):
    X, observed, _ = problem
    moved = (factor * X).astype(np.float32)
    one, other = OPMLClassifier().fit(X, observed), OPMLClassifier().fit(moved, observed)
    np.testing.assert_allclose(one.decision_function(X), other.decision_function(moved), atol=1e-2)


def test_a_column_far_from_zero_among_others(problem):
    X, observed, _ = problem
    year = np.column_stack([X, 2000 + 10 * X[:, 0]])
    one, other = OPMLClassifier().fit(year - year.mean(0), observed), OPMLClassifier().fit(year, observed)
    np.testing.assert_allclose(one.decision_function(year - year.mean(0)), other.decision_function(year), atol=1e-6)


def test_several_entries_for_a_cell_of_a_sparse_matrix_are_their_sum(problem):
    X, observed, _ = problem
    once = sparse.csr_array(X)
    twice = sparse.csr_array(
        (np.repeat(once.data, 2) * np.tile([3.0, -2.0], once.nnz), np.repeat(once.indices, 2), once.indptr * 2), X.shape
    )
    one, other = OPMLClassifier().fit(once, observed), OPMLClassifier().fit(twice, observed)
    np.testing.assert_allclose(one.coef_, other.coef_, atol=1e-9)
    assert twice.nnz == 2 * once.nnz  # what was given is as it was


@pytest.mark.parametrize("options", [{}, {"epsilon": 1.0, "label_num": 0.5, "high_rank_weight": 1e-3}])
def test_sparse_features_give_what_dense_ones_give(options):
    X, full = make_problem()
    X[np.abs(X) < 1] = 0
    observed = observe_positives(full)
    dense = OPMLClassifier(tol=1e-6, **options).fit(X, observed)
    for container in (sparse.csr_array, sparse.csc_matrix, sparse.coo_array):
        thin = OPMLClassifier(tol=1e-6, **options).fit(container(X), observed)
        np.testing.assert_allclose(thin.decision_function(container(X)), dense.decision_function(X), atol=1e-4)
        assert thin.predict_proba(container(X)).shape == (120, 4)


def test_single_precision_stays_single(problem):
    X, observed, _ = problem
    single, double = OPMLClassifier().fit(X.astype(np.float32), observed), OPMLClassifier().fit(X, observed)
    assert single.coef_.dtype == single.decision_function(X.astype(np.float32)).dtype == np.float32
    assert double.coef_.dtype == np.float64
    np.testing.assert_allclose(single.coef_, double.coef_, atol=0.01)


@pytest.mark.parametrize("smoothing", [0.0, 0.01])
def test_class_nobody_observed_and_features_that_do_not_vary(smoothing):
    observed = np.array([[1, -1, -1], [-1, -1, 1], [1, -1, -1], [0, -1, 1]])
    scores = OPMLClassifier(smoothing=smoothing).fit(np.ones((4, 2)), observed).decision_function(np.ones((1, 2)))
    assert np.isfinite(scores).all()
    assert scores[0, 1] < scores[0].max()


# Labels


def test_unknown_is_minus_one_or_nan(problem):
    X, observed, _ = problem
    holes = np.where(observed == -1, np.nan, observed)
    np.testing.assert_array_equal(OPMLClassifier().fit(X, observed).coef_, OPMLClassifier().fit(X, holes).coef_)


@pytest.mark.parametrize(
    ("y", "sentence"),
    [
        ([[1, 2], [0, 1]], "labels: row 0, column 1 holds 2"),
        ([1, 0], r"must be a matrix \(rows, classes\).*got shape \(2,\)"),
        ([[-1], [np.nan]], "every label is unknown"),
        ([[1], [np.inf]], "contains infinity"),
        (None, "requires y"),
    ],
)
def test_other_labels_are_refused(y, sentence):
    with pytest.raises(ValueError, match=sentence):
        OPMLClassifier().fit([[0.0], [1.0]], y)


@pytest.mark.parametrize(
    "options",
    [
        {"C": 0}, {"alpha": 1}, {"beta": 0}, {"smoothing": 1}, {"unknown": "positive"}, {"epsilon": 0},
        {"label_num": -1}, {"high_rank_weight": -1}, {"rounds": -1}, {"tol": 0}, {"max_iter": -1},
    ],
)  # fmt: skip
def test_wrong_options_are_refused_by_name(options):
    with pytest.raises(ValueError, match=f"^{next(iter(options))} must"):
        OPMLClassifier(**options).fit([[0.0], [1.0]], [[1], [0]])


def test_smoothing_is_for_unknown_labels_only(problem):
    X, _, full = problem
    smooth, plain = OPMLClassifier(smoothing=0.3).fit(X, full), OPMLClassifier(smoothing=0).fit(X, full)
    np.testing.assert_array_equal(smooth.coef_, plain.coef_)


def test_ignored_labels_have_no_say(problem):
    X, _, full = problem
    holes = full.copy()
    holes[::3, 1] = -1
    told, guessed = (OPMLClassifier(unknown=unknown).fit(X, holes) for unknown in ("ignore", "negative"))
    assert told.decision_function(X)[:, 1].mean() > guessed.decision_function(X)[:, 1].mean()


# OPML-SP


def test_a_round_solves_for_what_the_one_before_has_found(problem):
    X, observed, _ = problem
    first = OPMLClassifier(tol=1e-7).fit(X, observed)
    scores = first.decision_function(X)
    corrected = label_correction(scores, observed, training_ap(scores, observed), label_num=1.5)
    second = OPMLClassifier(tol=1e-7).fit(X, corrected)
    rounds = OPMLClassifier(tol=1e-7, label_num=1.5, rounds=1).fit(X, observed)
    np.testing.assert_allclose(rounds.coef_, second.coef_, atol=1e-4)
    assert np.abs(rounds.coef_ - first.coef_).max() > 0.01
    np.testing.assert_array_equal(OPMLClassifier(tol=1e-7, label_num=1.5, rounds=0).fit(X, observed).coef_, first.coef_)


def test_adaptive_smoothing_raises_likely_labels(problem):
    X, observed, _ = problem
    plain, adaptive = OPMLClassifier().fit(X, observed), OPMLClassifier(epsilon=0.5).fit(X, observed)
    unknown = observed == -1
    assert adaptive.decision_function(X)[unknown].mean() > plain.decision_function(X)[unknown].mean()


def test_high_rank_weight_raises_the_rank(problem):
    X, observed, _ = problem
    plain, ranked = OPMLClassifier().fit(X, observed), OPMLClassifier(high_rank_weight=0.3).fit(X, observed)
    assert high_rank(ranked.decision_function(X))[0] < high_rank(plain.decision_function(X))[0]


# More rows


def test_first_partial_fit_is_fit(problem):
    X, observed, _ = problem
    np.testing.assert_array_equal(
        OPMLClassifier().partial_fit(X, observed).coef_, OPMLClassifier().fit(X, observed).coef_
    )


def test_partial_fits_come_near_the_fit_of_all_rows():
    X, full = make_problem(1000)
    observed = observe_positives(full)
    whole, first = OPMLClassifier().fit(X, observed), OPMLClassifier().fit(X[:100], observed[:100])
    steps = OPMLClassifier()
    for start in range(0, 1000, 100):
        steps.partial_fit(X[start : start + 100], observed[start : start + 100])
    excess = {model: objective_of(model, X, observed) - objective_of(whole, X, observed) for model in (steps, first)}
    assert excess[steps] < 0.15 * excess[first]


def test_partial_fit_keeps_its_classes(problem):
    X, observed, _ = problem
    with pytest.raises(ValueError, match="y has 3 classes, but had 4"):
        OPMLClassifier().fit(X, observed).partial_fit(X, observed[:, :3])


# With the rest of scikit-learn


def test_learns_hidden_labels(problem):
    X, observed, _ = problem
    test_X, test_full = make_problem(seed=1)
    model = OPMLClassifier().fit(X, observed)
    assert mean_average_precision(model.decision_function(test_X), test_full).value > 0.8
    np.testing.assert_array_equal(model.predict(test_X), model.predict_proba(test_X) > 0.5)


def test_pickle_and_clone(problem):
    X, observed, _ = problem
    model = OPMLClassifier(C=2.0).fit(X, observed)
    copy = pickle.loads(pickle.dumps(model))  # noqa: S301 (our own bytes)
    np.testing.assert_array_equal(copy.decision_function(X), model.decision_function(X))
    assert clone(model).get_params() == {**OPMLClassifier().get_params(), "C": 2.0}


def test_pipeline_and_grid_search(problem):
    X, observed, _ = problem
    pipeline, strengths = make_pipeline(StandardScaler(), OPMLClassifier()), [0.01, 1.0, 100.0]
    search = GridSearchCV(pipeline, {"opmlclassifier__C": strengths}, scoring=ranking_score, cv=3).fit(X, observed)
    holes = np.where(observed == -1, np.nan, observed)
    scores = [
        cross_val_score(pipeline.set_params(opmlclassifier__C=C), X, holes, cv=KFold(3)).mean() for C in strengths
    ]
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], scores)
    assert search.best_params_ == {"opmlclassifier__C": strengths[np.argmax(scores)]}
    assert len(set(scores)) == 3


def test_ranking_score_judges_any_estimator(problem):
    X, observed, full = problem
    model = OneVsRestClassifier(LogisticRegression()).fit(X, full)
    holes = np.where(np.random.default_rng(7).random(full.shape) < 0.3, -1, full)
    expected = mean_average_precision(model.decision_function(X), holes).value
    assert functools.partial(ranking_score, unknown="ignore")(model, X, holes) == expected
    assert ranking_score(model, X, holes) == mean_average_precision(model.decision_function(X), holes.clip(0)).value
    assert OPMLClassifier(unknown="ignore").fit(X, holes).score(X, observed) == 1.0  # only positives are known


def test_labels_are_read_into_the_alphabet():
    np.testing.assert_array_equal(read_labels([[True, False]]), [[1, 0]])
    np.testing.assert_array_equal(read_labels(np.array([[1, None]], object)), [[1, -1]])


def test_does_not_load_torch():
    code = "import sys; from onepair import OPMLClassifier; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"
