import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.special import expit
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, get_scorer, log_loss
from sklearn.model_selection import cross_val_predict
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from onepair import CalibratedMultiLabel, OPMLClassifier, mean_average_precision, observe_fraction
from tests.linear.problems import make_problem
from tests.linear.test_estimator import NOT_OURS

ESTIMATORS = {"own": OPMLClassifier(method="bce", C=1.0), "any": OneVsRestClassifier(LogisticRegression())}


@parametrize_with_checks(
    [CalibratedMultiLabel(OPMLClassifier(method="bce", C=1.0))],
    expected_failed_checks=lambda estimator: {
        **NOT_OURS,
        "check_classifier_multioutput": "a label is predicted above the threshold of its class, not above 0",
    },
)
def test_contract_of_scikit_learn(estimator, check):
    check(estimator)


def loss_of(chances, full):
    return np.mean([log_loss(truth, column, labels=[0, 1]) for truth, column in zip(full.T, chances.T, strict=True)])


@pytest.fixture(scope="module")
def problem():
    """Many features, so that scores of the rows that were fitted are too sure of themselves."""
    X, full = make_problem(400, 40, noise=3.0)
    return X[:200], full[:200], X[200:], full[200:]


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("known", [0.6, 1.0])
def test_probabilities_hold_and_labels_are_balanced(problem, estimator, known):
    X, full, test_X, test_full = problem
    observed = observe_fraction(full, known=known)
    model = CalibratedMultiLabel(clone(ESTIMATORS[estimator])).fit(X, observed)
    chances, scores = model.predict_proba(test_X), model.decision_function(test_X)
    assert chances.shape == model.out_of_fold_[:200].shape == (200, 4)
    assert ((chances >= 0) & (chances <= 1)).all()
    assert loss_of(chances, test_full) < loss_of(expit(scores), test_full) - 0.02
    assert model.thresholds_.shape == (4,)
    np.testing.assert_array_equal(model.predict(test_X), scores >= model.thresholds_)
    assert f1_score(test_full, model.predict(test_X), average="macro") > 0.6


def test_unknown_labels_are_not_taken_for_negative(problem):
    """They are shown as negative to an estimator that knows none; the probabilities know better."""
    X, full, test_X, test_full = problem
    base = OneVsRestClassifier(LogisticRegression())
    observed = observe_fraction(full, known=0.5)
    found = CalibratedMultiLabel(base).fit(X, observed).predict_proba(test_X).mean(0)
    naive = base.fit(X, observed.clip(0)).predict_proba(test_X).mean(0)
    np.testing.assert_allclose(found, test_full.mean(0), atol=0.12)
    assert (naive < test_full.mean(0) - 0.12).all()


def test_scores_of_the_own_estimator_are_those_of_its_fit(problem):
    X, full, *_ = problem
    model = CalibratedMultiLabel().fit(X, full)
    assert isinstance(model.estimator_, OPMLClassifier)
    np.testing.assert_array_equal(model.out_of_fold_, model.estimator_.out_of_fold_)


def test_other_estimators_are_fitted_once_more_for_each_fold(problem):
    X, full, *_ = problem
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
def test_estimators_that_have_probabilities_alone(problem, base, classes):
    X, full, test_X, test_full = (each[:, -classes:] if each.dtype == np.int8 else each for each in problem)
    model = CalibratedMultiLabel(base).fit(X, full)
    assert model.decision_function(test_X).shape == (200, classes)
    given = mean_average_precision(model.predict_proba(test_X), test_full).value
    assert given > mean_average_precision(np.zeros((200, classes)), test_full).value + 0.05


def test_a_class_of_one_value_has_a_score(problem):
    """Of a forest that has seen nothing else, the only probability is that of this value."""
    X, full, *_ = problem
    for value in (0, 1):
        labels = full.copy()
        labels[:, 1] = value
        model = CalibratedMultiLabel(RandomForestClassifier(5, random_state=0)).fit(X, labels)
        assert (model.decision_function(X)[:, 1] == value).all()


@pytest.mark.parametrize("container", [sparse.csr_array, pd.DataFrame, np.ndarray.tolist])
def test_features_of_any_kind(problem, container):
    X, full, *_ = problem
    X = X.round(1)
    base = OneVsRestClassifier(LogisticRegression())
    expected = CalibratedMultiLabel(base).fit(X, full)
    found = CalibratedMultiLabel(base).fit(container(X), full)
    np.testing.assert_allclose(found.out_of_fold_, expected.out_of_fold_, atol=1e-3)


def test_rules_are_those_of_decisions(problem):
    X, full, *_ = problem
    base = OPMLClassifier(method="bce", C=1.0)
    counted = CalibratedMultiLabel(base, rule="count").fit(X, full)
    precise = CalibratedMultiLabel(base, rule="precision", precision=0.95).fit(X, full)
    np.testing.assert_array_equal((counted.out_of_fold_ >= counted.thresholds_).sum(0), full.sum(0))
    assert (precise.thresholds_ > counted.thresholds_).all()
    with pytest.raises(ValueError, match="there is no rule 'f2'"):
        CalibratedMultiLabel(base, rule="f2").fit(X, full)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_scorers_judge_one_class_the_right_way_round(problem, estimator):
    X, full, *_ = problem
    model = CalibratedMultiLabel(clone(ESTIMATORS[estimator])).fit(X, full[:, :1])
    assert model.predict_proba(X).shape == (200, 1)
    assert get_scorer("roc_auc")(model, X, full[:, :1]) > 0.8


def test_names_of_classes_are_kept(problem):
    X, full, *_ = problem
    frame = pd.DataFrame(full, columns=list("abcd"))
    assert CalibratedMultiLabel(OPMLClassifier(method="bce", C=1.0)).fit(X, frame).classes_.tolist() == list("abcd")
