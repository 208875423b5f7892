import functools
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.special import expit
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, f1_score, get_scorer, log_loss, roc_auc_score
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from onepair import CalibratedMultiLabel, OPMLClassifier, mean_average_precision, observe_fraction, observe_positives
from onepair.linear.estimator import ranking_score, read_labels
from onepair.methods import create_method
from onepair.probability.evaluation import estimated_map
from tests.linear.problems import fit, make_problem

NOT_OURS = {
    **dict.fromkeys(
        (
            "check_estimators_dtypes",
            "check_classifier_data_not_an_array",
            "check_fit2d_1feature",
            "check_sample_weights_pandas_series",
            "check_sample_weights_not_an_array",
            "check_sample_weights_shape",
            "check_sample_weights_not_overwritten",
        ),
        "labels are called 1 and 2, which is not our alphabet",
    ),
    **dict.fromkeys(
        ("check_estimator_sparse_array", "check_estimator_sparse_matrix"),
        "wants two probabilities for a single class; a multi-label classifier gives one a class",
    ),
    **dict.fromkeys(
        (
            "check_classifiers_classes",
            "check_classifiers_train",
            "check_decision_proba_consistency",
            "check_class_weight_classifiers",
        ),
        "y is a column of class names, or the prediction should be one",
    ),
    **dict.fromkeys(
        ("check_sample_weight_equivalence_on_dense_data", "check_sample_weight_equivalence_on_sparse_data"),
        "rows make folds and the units of columns, whatever they weigh",
    ),
}


@parametrize_with_checks([OPMLClassifier(C=1.0, folds=2)], expected_failed_checks=lambda estimator: NOT_OURS)
def test_contract_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def problem():
    X, full = make_problem()
    return X, observe_fraction(full, known=0.6), full


# What it learns


@pytest.mark.parametrize("noise", [1.0, 4.0])
def test_with_few_labels_known_it_is_no_worse_than_logistic_regression_of_these(noise):
    X, full = make_problem(1000, 20, 6, noise=noise)
    test_X, test_full = make_problem(1000, 20, 6, noise=noise, seed=1)
    observed, by_class = observe_fraction(full, known=0.3), []
    for labels in observed.T:
        known = labels >= 0
        by_class.append(LogisticRegression().fit(X[known], labels[known]).decision_function(test_X))
    plain = mean_average_precision(np.column_stack(by_class), test_full).value
    found = OPMLClassifier().fit(X, observed)
    assert mean_average_precision(found.decision_function(test_X), test_full).value > plain - 0.01


def test_learns_from_single_positives():
    X, full = make_problem()
    test_X, test_full = make_problem(seed=1)
    model = OPMLClassifier().fit(X, observe_positives(full))
    assert mean_average_precision(model.decision_function(test_X), test_full).value > 0.8


@pytest.mark.parametrize("observe", [lambda full: full, lambda full: observe_fraction(full, known=0.5)])
@pytest.mark.parametrize("method", ["opml-plus", "bce"])
def test_as_many_rows_score_above_0_as_are_thought_positive(observe, method):
    X, full = make_problem(300)
    test_X, test_full = make_problem(300, seed=1)
    model = OPMLClassifier(method=method, C=1.0).fit(X, observe(full))
    np.testing.assert_allclose((model.out_of_fold_ > 0).mean(0), full.mean(0), atol=0.07)
    np.testing.assert_allclose(model.predict(test_X).mean(0), test_full.mean(0), atol=0.12)
    np.testing.assert_array_equal(model.predict(test_X), model.predict_proba(test_X) > 0.5)


def test_out_of_fold_scores_are_those_of_the_fit(problem):
    X, observed, _ = problem
    model = OPMLClassifier(method="bce", C=2.0, folds=3, random_state=5).fit(X, observed)
    found = fit(X, observed, "bce", C=2.0, folds=3, seed=5, tolerance=1e-3)
    level = found.intercept - model.intercept_
    assert model.out_of_fold_.shape == observed.shape
    assert model.out_of_fold_.dtype == np.float32
    np.testing.assert_allclose(model.out_of_fold_, found.out_of_fold(X) - level, atol=1e-5)
    np.testing.assert_array_equal(model.coef_, found.coef)


def test_options_reach_the_method(problem):
    X, observed, _ = problem
    model = OPMLClassifier(C=1.0, method="opml")
    one, other = (clone(model).set_params(options=options).fit(X, observed) for options in (None, {"alpha": 0.2}))
    assert np.abs(one.coef_ - other.coef_).max() > 0.01


def test_stopping_early_is_said_where_there_is_a_solution(problem):
    X, observed, _ = problem
    with pytest.warns(ConvergenceWarning, match="stopped after 1 steps where scores would still change by"):
        OPMLClassifier(method="zlpr", C=1.0, max_iter=1, tol=1e-6).fit(X, observed)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        OPMLClassifier(method="hill", C=1.0, max_iter=1, tol=1e-6).fit(X, observed)


def test_single_precision_stays_single(problem):
    X, observed, _ = problem
    single, double = (OPMLClassifier(C=1.0).fit(X.astype(dtype), observed) for dtype in (np.float32, np.float64))
    assert single.coef_.dtype == single.intercept_.dtype == np.float32
    assert single.decision_function(X.astype(np.float32)).dtype == np.float32
    assert double.coef_.dtype == double.intercept_.dtype == np.float64
    np.testing.assert_allclose(single.coef_, double.coef_, atol=0.01)


def test_class_nobody_observed_and_features_that_do_not_vary():
    observed = np.array([[1, -1, -1], [-1, -1, 1], [1, -1, -1], [0, -1, 1]])
    model = OPMLClassifier().fit(np.ones((4, 2)), observed)
    assert (model.coef_ == 0).all()
    assert np.isfinite(model.decision_function(np.ones((1, 2)))).all()


# Labels


@pytest.mark.parametrize(
    "write",
    [
        lambda labels: np.where(labels == -1, np.nan, labels),
        lambda labels: np.where(labels == -1, None, labels.astype(object)),
        lambda labels: labels.tolist(),
        lambda labels: pd.DataFrame(np.where(labels == -1, np.nan, labels), columns=list("abcd")),
        lambda labels: sparse.csr_array((labels[labels >= 0], np.nonzero(labels >= 0)), labels.shape),
    ],
    ids=["NaN", "None", "lists", "DataFrame", "sparse"],
)
def test_unknown_labels_may_be_written_in_any_way(problem, write):
    X, observed, _ = problem
    given = write(observed)
    np.testing.assert_array_equal(read_labels(given), observed)
    one, other = (OPMLClassifier(method="bce", C=1.0).fit(X, labels) for labels in (observed, given))
    np.testing.assert_array_equal(one.coef_, other.coef_)


def test_columns_of_a_frame_name_the_classes(problem):
    X, observed, _ = problem
    frame = pd.DataFrame(observed, columns=["cat", "dog", "cow", "pig"])
    weighted = OPMLClassifier(method="bce", C=1.0, class_weight={"cow": 0}).fit(X, frame)
    assert weighted.classes_.tolist() == ["cat", "dog", "cow", "pig"]
    assert (weighted.coef_[2] == 0).all()
    assert OPMLClassifier(C=1.0).fit(X, observed).classes_.tolist() == [0, 1, 2, 3]


def test_balanced_classes_count_by_their_positives(problem):
    X, _, full = problem
    counts = full.sum(0)
    weights = dict(enumerate((counts.mean() / counts).tolist()))
    named, balanced = (OPMLClassifier(C=1.0, class_weight=each).fit(X, full) for each in (weights, "balanced"))
    np.testing.assert_allclose(balanced.coef_, named.coef_, atol=1e-6)


def test_labels_are_read_into_the_alphabet():
    np.testing.assert_array_equal(read_labels([[True, False]]), [[1, 0]])
    np.testing.assert_array_equal(read_labels(np.array([[1, None]], object)), [[1, -1]])


@pytest.mark.parametrize(
    ("y", "sentence"),
    [
        ([[1, 2], [0, 1]], "labels: row 0, column 1 holds 2"),
        ([1, 0], r"must be a matrix \(rows, classes\).*got shape \(2,\)"),
        ([[-1], [np.nan]], "every label is unknown"),
        ([[1], [np.inf]], "contains infinity"),
        ([[1]], "inconsistent numbers of samples"),
        (sparse.csr_array([[1], [7]]), "holds 7"),
        (sparse.csr_array((2, 1)), "every label is unknown"),
        (None, "requires y"),
    ],
)
def test_other_labels_are_refused(y, sentence):
    with pytest.raises(ValueError, match=sentence):
        OPMLClassifier().fit([[0.0], [1.0]], y)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"C": 0}, "C must be a finite number above 0, or 'auto', got 0"),
        ({"C": "some"}, "C must"),
        ({"C": np.inf}, "C must"),
        ({"tol": 0}, "tol must"),
        ({"max_iter": 0}, "max_iter must be a whole number of at least 1"),
        ({"folds": 1}, "folds must be a whole number of at least 2"),
        ({"folds": 2.5}, "folds must"),
        ({"method": "opml-plas"}, "there is no method 'opml-plas'; did you mean 'opml-plus'"),
        ({"method": "ll-r-boostlu"}, "looks at every place of an image"),
        ({"options": {"gamma": 1}}, "method 'opml-plus' has no option 'gamma'"),
        ({"class_weight": "heavy"}, "class_weight must be a mapping, 'balanced' or None"),
        ({"class_weight": {7: 1.0}}, "class_weight names the class 7, which y does not have"),
        ({"class_weight": {0: -1.0}}, "class_weight must hold finite numbers of at least 0, got -1.0 for 0"),
    ],
)
def test_wrong_options_are_refused_by_name(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        OPMLClassifier(**options).fit([[0.0], [1.0]], [[1, 0], [0, 1]])


@pytest.mark.parametrize("weights", [[1.0], [[1.0], [1.0]], [1.0, np.nan]])
def test_sample_weights_of_another_form_are_refused(weights):
    with pytest.raises(ValueError, match=r"[sS]ample.weight"):
        OPMLClassifier().fit([[0.0], [1.0]], [[1], [0]], sample_weight=weights)


# With the rest of scikit-learn


def test_pickle_and_clone(problem):
    X, observed, _ = problem
    model = OPMLClassifier(C=2.0).fit(X, observed)
    copy = pickle.loads(pickle.dumps(model))  # noqa: S301 (our own bytes)
    np.testing.assert_array_equal(copy.decision_function(X), model.decision_function(X))
    assert clone(model).get_params() == {**OPMLClassifier().get_params(), "C": 2.0}


def test_pipeline_and_grid_search(problem):
    X, observed, _ = problem
    pipeline, strengths = make_pipeline(StandardScaler(), OPMLClassifier(method="opml", folds=2)), [0.01, 1.0, 100.0]
    search = GridSearchCV(pipeline, {"opmlclassifier__C": strengths}, scoring=ranking_score, cv=3).fit(X, observed)
    holes = np.where(observed == -1, np.nan, observed)
    scores = [
        cross_val_score(pipeline.set_params(opmlclassifier__C=C), X, holes, cv=KFold(3)).mean() for C in strengths
    ]
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], scores)
    assert search.best_params_ == {"opmlclassifier__C": strengths[np.argmax(scores)]}
    assert len(set(scores)) == 3


@pytest.mark.parametrize("classes", [1, 2, 3])
@pytest.mark.parametrize("scorer", ["roc_auc", "average_precision", "f1_macro"])
def test_scorers_of_scikit_learn_judge_any_number_of_classes(problem, scorer, classes):
    X, _, full = problem
    y = full[:, :classes]
    model = OPMLClassifier(C=1.0).fit(X, y)
    scores = model.decision_function(X)
    assert scores.shape == y.shape
    judge = {"roc_auc": roc_auc_score, "average_precision": average_precision_score}.get(scorer)
    found = get_scorer(scorer)(model, X, y)
    assert found > 0.8
    assert judge is None or found == pytest.approx(judge(y, scores))


def test_a_named_class_alone_is_judged_the_right_way_round(problem):
    X, _, full = problem
    model = OPMLClassifier(C=1.0, class_weight={"cat": 2.0}).fit(X, pd.DataFrame(full[:, :1], columns=["cat"]))
    assert get_scorer("roc_auc")(model, X, full[:, :1]) > 0.8


def test_ranking_score_judges_any_estimator(problem):
    X, observed, full = problem
    model = OneVsRestClassifier(LogisticRegression()).fit(X, full)
    scores = model.decision_function(X)
    ignoring, as_negative = (functools.partial(ranking_score, unknown=each) for each in ("ignore", "negative"))
    assert ranking_score(model, X, observed) == estimated_map(scores, observed)
    assert ignoring(model, X, observed) == mean_average_precision(scores, observed).value
    assert as_negative(model, X, observed) == mean_average_precision(scores, observed.clip(0)).value
    own = OPMLClassifier(C=1.0).fit(X, full)
    assert own.score(X, observed) == estimated_map(own.decision_function(X), observed)
    positives = observe_positives(full)
    with pytest.raises(ValueError, match="no class has a known negative"):
        ignoring(own, X, positives)


def test_methods_are_told_of_their_rounds():
    X, full = make_problem(40)
    model = OPMLClassifier(method="gr", C=1.0, folds=2)
    assert create_method("gr", **model._method_options()).epochs == 10
    assert np.isfinite(model.fit(X, observe_positives(full)).coef_).all()


ESTIMATORS = {"own": OPMLClassifier(method="bce", C=1.0), "any": OneVsRestClassifier(LogisticRegression())}


@parametrize_with_checks(
    [CalibratedMultiLabel(OPMLClassifier(method="bce", C=1.0))],
    expected_failed_checks=lambda estimator: {
        **NOT_OURS,
        "check_classifier_multioutput": "a label is predicted above the threshold of its class, not above 0",
    },
)
def test_contract_of_scikit_learn_when_calibrated(estimator, check):
    check(estimator)


def loss_of(chances, full):
    return np.mean([log_loss(truth, column, labels=[0, 1]) for truth, column in zip(full.T, chances.T, strict=True)])


@pytest.fixture(scope="module")
def noisy():
    """Many features, so that scores of the rows that were fitted are too sure of themselves."""
    X, full = make_problem(400, 40, noise=3.0)
    return X[:200], full[:200], X[200:], full[200:]


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("known", [0.6, 1.0])
def test_probabilities_hold_and_labels_are_balanced(noisy, estimator, known):
    X, full, test_X, test_full = noisy
    observed = observe_fraction(full, known=known)
    model = CalibratedMultiLabel(clone(ESTIMATORS[estimator])).fit(X, observed)
    chances, scores = model.predict_proba(test_X), model.decision_function(test_X)
    assert chances.shape == model.out_of_fold_[:200].shape == (200, 4)
    assert ((chances >= 0) & (chances <= 1)).all()
    margin = 0.02 if known == 1 else 0  # how many unknown labels are positive is not certain
    assert loss_of(chances, test_full) < loss_of(expit(scores), test_full) - margin
    assert model.thresholds_.shape == (4,)
    np.testing.assert_array_equal(model.predict(test_X), scores >= model.thresholds_)
    assert f1_score(test_full, model.predict(test_X), average="macro") > 0.6


def test_unknown_labels_are_not_taken_for_negative(noisy):
    """They are shown as negative to an estimator that knows none; the probabilities know better."""
    X, full, test_X, test_full = noisy
    base = OneVsRestClassifier(LogisticRegression())
    observed = observe_fraction(full, known=0.5)
    found = CalibratedMultiLabel(base).fit(X, observed).predict_proba(test_X).mean(0)
    naive = base.fit(X, observed.clip(0)).predict_proba(test_X).mean(0)
    np.testing.assert_allclose(found, test_full.mean(0), atol=0.12)
    assert (naive < test_full.mean(0) - 0.12).all()


def test_scores_of_the_own_estimator_are_those_of_its_fit(noisy):
    X, full, *_ = noisy
    model = CalibratedMultiLabel().fit(X, full)
    assert isinstance(model.estimator_, OPMLClassifier)
    np.testing.assert_array_equal(model.out_of_fold_, model.estimator_.out_of_fold_)


def test_other_estimators_are_fitted_once_more_for_each_fold(noisy):
    X, full, *_ = noisy
    base = OneVsRestClassifier(LogisticRegression())
    model = CalibratedMultiLabel(base, folds=4, random_state=3).fit(X, full)
    fold = np.random.RandomState(3).permutation(200) % 4
    splits = [(np.flatnonzero(fold != part), np.flatnonzero(fold == part)) for part in range(4)]
    np.testing.assert_allclose(
        model.out_of_fold_, cross_val_predict(base, X, full, cv=splits, method="decision_function")
    )


@pytest.mark.parametrize("classes", [1, 2, 4])
@pytest.mark.parametrize("base", [KNeighborsClassifier(30), OneVsRestClassifier(KNeighborsClassifier(30))])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.DataConversionWarning")  # of a single column
def test_estimators_that_have_probabilities_alone(noisy, base, classes):
    X, full, test_X, test_full = (each[:, -classes:] if each.dtype == np.int8 else each for each in noisy)
    model = CalibratedMultiLabel(base).fit(X, full)
    assert model.decision_function(test_X).shape == (200, classes)
    given = mean_average_precision(model.predict_proba(test_X), test_full).value
    assert given > mean_average_precision(np.zeros((200, classes)), test_full).value + 0.05


def test_a_class_of_one_value_has_a_score(noisy):
    """Of a forest that has seen nothing else, the only probability is that of this value."""
    X, full, *_ = noisy
    for value in (0, 1):
        labels = full.copy()
        labels[:, 1] = value
        model = CalibratedMultiLabel(RandomForestClassifier(5, random_state=0)).fit(X, labels)
        assert (model.decision_function(X)[:, 1] == value).all()


@pytest.mark.parametrize("container", [sparse.csr_array, pd.DataFrame, np.ndarray.tolist])
def test_features_of_any_kind(noisy, container):
    X, full, *_ = noisy
    X = X.round(1)
    base = OneVsRestClassifier(LogisticRegression())
    expected = CalibratedMultiLabel(base).fit(X, full)
    found = CalibratedMultiLabel(base).fit(container(X), full)
    np.testing.assert_allclose(found.out_of_fold_, expected.out_of_fold_, atol=1e-3)


def test_rules_are_those_of_decisions(noisy):
    X, full, *_ = noisy
    base = OPMLClassifier(method="bce", C=1.0)
    counted = CalibratedMultiLabel(base, rule="count").fit(X, full)
    precise = CalibratedMultiLabel(base, rule="precision", precision=0.95).fit(X, full)
    np.testing.assert_array_equal((counted.out_of_fold_ >= counted.thresholds_).sum(0), full.sum(0))
    assert (precise.thresholds_ > counted.thresholds_).all()
    with pytest.raises(ValueError, match="there is no rule 'f2'"):
        CalibratedMultiLabel(base, rule="f2").fit(X, full)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_scorers_judge_one_class_the_right_way_round(noisy, estimator):
    X, full, *_ = noisy
    model = CalibratedMultiLabel(clone(ESTIMATORS[estimator])).fit(X, full[:, :1])
    assert model.predict_proba(X).shape == (200, 1)
    assert get_scorer("roc_auc")(model, X, full[:, :1]) > 0.8


def test_names_of_classes_are_kept(noisy):
    X, full, *_ = noisy
    frame = pd.DataFrame(full, columns=list("abcd"))
    assert CalibratedMultiLabel(OPMLClassifier(method="bce", C=1.0)).fit(X, frame).classes_.tolist() == list("abcd")
