"""Decisions against a search over all thresholds, and probabilities on rows that were held out."""

import json

import numpy as np
import pytest
from scipy.special import expit

from onepair.errors import ConfigError
from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, observe_positives
from onepair.probability import thresholds as decisions
from onepair.probability.calibration import expected_calibration_error
from onepair.probability.infer import infer
from onepair.probability.thresholds import StoredThresholds, Thresholds, fit_decisions

SLOPES, INTERCEPTS = np.array([0.4, 1.5, 0.7, 2.0, 0.9]), np.array([-1.5, -2.5, -0.5, -1.0, -2.0])


def generate(rows, seed, *, ties=False):
    random = np.random.default_rng(seed)
    scores = random.normal(0, 2, (rows, len(SLOPES)))
    scores = scores.round() if ties else scores
    return scores, (random.random(scores.shape) < expit(scores * SLOPES + INTERCEPTS)).astype(np.int8)


def with_a_positive(scores, labels):
    rows = (labels == POSITIVE).any(1)
    return scores[rows], labels[rows]


def slow_threshold(scores, labels, rule, precision):
    """Try every score as a threshold."""
    tried = []
    for threshold in sorted(set(scores.tolist()), reverse=True):
        predicted = scores >= threshold
        right, positives = (labels[predicted] == POSITIVE).sum(), (labels == POSITIVE).sum()
        if rule == "f1":
            worth = 2 * right / (predicted.sum() + positives)
        elif rule == "precision":
            worth = predicted.sum() if right >= precision * predicted.sum() - 1e-9 else 0
        else:
            worth = -abs(int(predicted.sum()) - int(positives))
        tried.append((worth, threshold))
    return max(tried, key=lambda each: each[0])[1]


@pytest.mark.parametrize("calibration", ["platt", "isotonic"])
def test_likely_labels_are_those_at_least_as_likely_right_as_wrong(calibration):
    scores, labels = generate(300, 2)
    scores[:, 4] = -9  # a class that no image shows
    labels[:, 4] = NEGATIVE
    decisions = fit_decisions(scores, labels, rule="likely", calibration=calibration)
    np.testing.assert_array_equal(decisions.labels(scores), decisions.probabilities(scores) >= 0.5)
    assert decisions.labels(scores)[:, :4].any(0).all()
    assert not decisions.labels(scores)[:, 4].any()
    assert not decisions.pooled.any()


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize(("rule", "precision"), [("f1", 0.9), ("precision", 0.8), ("precision", 0.3), ("count", 0.9)])
def test_thresholds_are_those_of_a_search_over_all(rule, precision, ties):
    scores, labels = generate(300, 0, ties=ties)
    decisions = fit_decisions(scores, labels, rule=rule, precision=precision)
    for column, threshold in enumerate(decisions.thresholds.tolist()):
        if np.isfinite(threshold):
            expected = slow_threshold(scores[:, column], labels[:, column], rule, precision)
            np.testing.assert_array_equal(scores[:, column] >= threshold, scores[:, column] >= expected)
            assert threshold not in scores[:, column] or threshold == scores[:, column].min()
        else:
            best = max(labels[scores[:, column] >= each, column].mean() for each in scores[:, column])
            assert best < precision
    assert np.isfinite(decisions.thresholds).sum() >= 3


def test_a_precision_that_is_asked_for_is_kept_on_other_rows():
    decisions = fit_decisions(*generate(20_000, 0), rule="precision", precision=0.7)
    scores, labels = generate(20_000, 1)
    predicted = decisions.labels(scores)
    often = np.flatnonzero(predicted.sum(0) >= 1000)
    assert len(often) >= 3
    for column in often:
        assert labels[predicted[:, column], column].mean() == pytest.approx(0.7, abs=0.05)


def test_as_many_are_predicted_as_there_are():
    decisions = fit_decisions(*generate(20_000, 0), rule="count")
    scores, labels = generate(20_000, 1)
    np.testing.assert_allclose(decisions.labels(scores).mean(0), labels.mean(0), rtol=0.1)


@pytest.mark.parametrize("calibration", ["platt", "isotonic"])
def test_probabilities_of_held_out_rows_are_calibrated(calibration):
    decisions = fit_decisions(*generate(3000, 0), calibration=calibration)
    scores, labels = generate(3000, 1)
    before, after = (
        expected_calibration_error(each, labels) for each in (expit(scores), decisions.probabilities(scores))
    )
    assert before > 0.1
    assert after < 0.02


def test_a_curve_is_chosen_where_no_line_fits_and_else_a_line():
    scores, labels = generate(1000, 0)
    assert fit_decisions(scores, labels).to_dict()["calibration"]["kind"] == "platt"
    bent = np.where(scores > 0, 100 * scores, scores)  # of the same rank
    assert fit_decisions(bent, labels).to_dict()["calibration"]["kind"] == "isotonic"


@pytest.mark.parametrize("calibration", ["platt", "isotonic"])
def test_labels_with_holes_do(calibration):
    """A third of the cells of each row is unknown."""
    scores, labels = generate(4000, 0)
    holes = labels.copy()
    holes[np.random.default_rng(2).random(holes.shape) < 1 / 3] = UNKNOWN
    whole, partial = (fit_decisions(scores, each, calibration=calibration) for each in (labels, holes))
    test_scores, test_labels = generate(4000, 1)
    assert expected_calibration_error(partial.probabilities(test_scores), test_labels) < 0.02
    agreement = (whole.labels(test_scores) == partial.labels(test_scores)).mean(0)
    assert (agreement > 0.9).all()


def test_positives_alone_do():
    """One positive of each row is known, and nothing else."""
    scores, labels = with_a_positive(*generate(6000, 0))
    observed = observe_positives(labels, seed=3)
    assert not (observed == NEGATIVE).any()
    decisions = fit_decisions(scores, observed, rule="count")
    test_scores, test_labels = with_a_positive(*generate(6000, 1))
    before, after = (
        expected_calibration_error(each, test_labels)
        for each in (expit(test_scores), decisions.probabilities(test_scores))
    )
    assert after < before / 2
    predicted, true = decisions.labels(test_scores).sum(), test_labels.sum()
    assumed_negative = fit_decisions(scores, np.maximum(observed, NEGATIVE), rule="count").labels(test_scores).sum()
    assert predicted == pytest.approx(true, rel=0.1)
    assert abs(predicted - true) < abs(assumed_negative - true)


def test_a_curve_from_positives_alone_is_refused():
    scores, labels = with_a_positive(*generate(100, 0))
    with pytest.raises(ConfigError, match="needs known negatives"):
        fit_decisions(scores, observe_positives(labels, seed=0), calibration="isotonic")


@pytest.mark.parametrize("value", [POSITIVE, NEGATIVE, UNKNOWN])
def test_labels_of_one_kind_leave_the_scores_as_they_are(value):
    scores, labels = generate(10, 0)
    decisions = fit_decisions(scores, np.full_like(labels, value))
    np.testing.assert_allclose(decisions.probabilities(scores), expit(scores))


def test_a_class_without_positives_is_never_predicted_by_count_or_precision():
    scores, labels = generate(50, 0)
    labels[:, 2] = NEGATIVE
    for rule in ("count", "precision"):
        assert fit_decisions(scores, labels, rule=rule, precision=0.1).thresholds[2] == np.inf


@pytest.mark.parametrize("calibration", ["platt", "isotonic"])
def test_they_survive_json(calibration):
    scores, labels = generate(200, 0)
    decisions = fit_decisions(scores, labels, calibration=calibration, rule="precision", precision=0.99)
    assert np.isinf(decisions.thresholds).any()
    text = json.dumps(decisions.to_dict(), allow_nan=False)
    read = Thresholds.from_stored(StoredThresholds.model_validate_json(text), classes=scores.shape[1])
    np.testing.assert_array_equal(read.labels(scores), decisions.labels(scores))
    np.testing.assert_array_equal(read.probabilities(scores), decisions.probabilities(scores))
    assert read.rule == "precision 0.99"
    np.testing.assert_array_equal(read.pooled, decisions.pooled)


@pytest.mark.parametrize("precision", [0.0, 1.1, -1.0, float("nan")])
def test_impossible_precisions_are_refused(precision):
    with pytest.raises(ConfigError, match="precision"):
        fit_decisions(*generate(10, 0), rule="precision", precision=precision)


def test_other_words_are_refused():
    with pytest.raises(ConfigError, match="no calibration 'temperature'; choose from auto, platt, isotonic"):
        fit_decisions(*generate(10, 0), calibration="temperature")
    with pytest.raises(ConfigError, match="no rule 'recall'; choose from likely, f1, precision, count"):
        fit_decisions(*generate(10, 0), rule="recall")


def best_f1(scores, labels, column, decisions):
    predicted = decisions.labels(scores)[:, column]
    return 2 * (predicted & (labels[:, column] == 1)).sum() / max(predicted.sum() + labels[:, column].sum(), 1)


def test_a_rare_class_has_the_probability_of_the_others_for_a_threshold():
    """Its one known positive happens to score low: a threshold of its own would predict nearly every row."""
    scores, labels = generate(2000, 0)
    labels[:, 4] = NEGATIVE
    labels[np.argsort(scores[:, 4])[300], 4] = POSITIVE
    decisions = fit_decisions(scores, labels)
    np.testing.assert_array_equal(decisions.pooled, [False, False, False, False, True])
    assert decisions.labels(scores)[:, 4].mean() < 0.1
    read = Thresholds.from_stored(StoredThresholds.model_validate(decisions.to_dict()), classes=5)
    np.testing.assert_array_equal(read.pooled, decisions.pooled)


def test_what_was_stored_without_pooled_classes_is_read():
    stored = fit_decisions(*generate(200, 0)).to_dict()
    del stored["pooled"]
    assert not Thresholds.from_stored(StoredThresholds.model_validate(stored), classes=5).pooled.any()


@pytest.mark.parametrize("number", [1, 20, 200])
def test_known_negatives_beside_single_positives_make_nothing_worse(number):
    """Formerly one known negative in every class turned inference from unknown labels off."""
    random = np.random.default_rng(5)
    scores, labels = with_a_positive(*generate(2500, 0))
    test_scores, test_labels = with_a_positive(*generate(4000, 1))
    observed = observe_positives(labels, seed=3)
    with_negatives = observed.copy()
    for column in range(5):
        rows = random.choice(np.flatnonzero(labels[:, column] == NEGATIVE), number, replace=False)
        with_negatives[rows, column] = NEGATIVE
    before, after = (fit_decisions(scores, each) for each in (observed, with_negatives))
    f1 = [np.mean([best_f1(test_scores, test_labels, c, each) for c in range(5)]) for each in (before, after)]
    assert f1[1] > f1[0] - 0.02
    errors = [expected_calibration_error(each.probabilities(test_scores), test_labels) for each in (before, after)]
    assert errors[1] < errors[0] + 0.01


@pytest.mark.parametrize("calibration", ["platt", "isotonic"])
def test_decisions_of_some_classes_are_those_of_all(calibration):
    random = np.random.default_rng(0)
    labels = (random.random((200, 4)) < 0.4).astype(np.int8)
    scores = random.normal(size=labels.shape) + labels
    whole, columns = fit_decisions(scores, labels, calibration=calibration), np.array([2, 0])
    some = whole.of_classes(columns)
    np.testing.assert_array_equal(some.labels(scores[:, columns]), whole.labels(scores)[:, columns])
    np.testing.assert_array_equal(some.probabilities(scores[:, columns]), whole.probabilities(scores)[:, columns])


def test_known_cells_alone_stand_for_others():
    """A calibration is chosen by cells whose label is known, each as many as there are of its kind."""
    random = np.random.default_rng(0)
    scores = random.normal(size=(400, 3))
    truth = (random.random(scores.shape) < expit(2 * scores)).astype(np.int8)
    known = np.where(random.random(scores.shape) < 0.6, truth, UNKNOWN).astype(np.int8)
    weights = decisions._standing_for(infer(scores, known, process="at-random"), scores, known)
    assert (weights[known == UNKNOWN] == 0).all()
    assert weights[known != UNKNOWN].sum() == pytest.approx(scores.size, rel=0.25)
