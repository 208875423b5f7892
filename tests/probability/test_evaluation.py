"""Figures of incomplete labels: none where none can be told, and estimates that hold the truth."""

import json
import math

import numpy as np
import pytest
from scipy.special import expit
from sklearn.metrics import average_precision_score

from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, observe_positives
from onepair.metrics import precision_recall_f1
from onepair.probability.calibration import Platt
from onepair.probability.evaluation import (
    OVERALL,
    Draw,
    _by_logit,
    _counts,
    draws,
    estimate,
    evaluate,
    missing_at,
    sharpness_error,
)
from onepair.probability.infer import Inference, infer
from onepair.probability.intervals import Interval
from onepair.probability.observation import Observation, Rates
from onepair.probability.thresholds import fit_decisions
from tests.probability.test_observation import generate

CLASSES = [f"class{number}" for number in range(6)]


@pytest.fixture(scope="module")
def drawn():
    scores, _, labels = generate(3000, np.random.default_rng(0))
    return scores, labels, fit_decisions(scores[:1000], labels[:1000])


def test_full_labels_tell_everything(drawn):
    scores, labels, decisions = drawn
    found = evaluate(scores, labels, decisions, CLASSES)
    assert found.lacking == ""
    assert found.estimated is None
    expected = [average_precision_score(labels[:, each], scores[:, each]) for each in range(6)]
    np.testing.assert_allclose([each.ap for each in found.classes.values()], expected)


@pytest.mark.parametrize("process", ["single", "at random"])
def test_positives_alone_tell_no_precision(drawn, process):
    scores, labels, decisions = drawn
    kept = np.random.default_rng(1).random(labels.shape) < 0.8
    at_random = np.where((labels == POSITIVE) & kept, POSITIVE, UNKNOWN).astype(np.int8)
    observed = observe_positives(labels) if process == "single" else at_random
    found, truth = evaluate(scores, observed, decisions, CLASSES), evaluate(scores, labels, decisions, CLASSES)
    for figure in (found.map, found.precision, found.f1, found.ranking_loss):
        assert math.isnan(figure)
    assert all(math.isnan(each.precision) and math.isnan(each.ap) for each in found.classes.values())
    assert "too few negatives are known of 6 of 6 classes" in found.lacking
    assert found.estimated.assumption.startswith("if ")
    for name in ("map", "precision", "recall", "f1"):
        estimate = getattr(found.estimated, name)
        assert estimate.low <= getattr(truth, name) <= estimate.high
        assert estimate.low < estimate.value < estimate.high
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["estimated"]["map"]["value"] > 0.5


def test_labels_known_whatever_they_are_tell_nearly_everything(drawn):
    scores, labels, decisions = drawn
    observed = np.where(np.random.default_rng(2).random(labels.shape) < 0.5, labels, UNKNOWN).astype(np.int8)
    found, truth = evaluate(scores, observed, decisions, CLASSES), evaluate(scores, labels, decisions, CLASSES)
    assert found.lacking == ""
    assert found.map == pytest.approx(truth.map, abs=0.03)
    assert found.precision == pytest.approx(truth.precision, abs=0.03)
    assert found.estimated.precision.value == pytest.approx(truth.precision, abs=0.03)


def test_the_classes_that_lack_negatives_are_named(drawn):
    scores, labels, decisions = drawn
    observed = labels.copy()
    observed[:, 2] = np.where(labels[:, 2] == NEGATIVE, UNKNOWN, POSITIVE)
    found = evaluate(scores, observed, decisions, CLASSES)
    assert found.averaged_classes == 5
    assert found.lacking.startswith("too few negatives are known of class2 to tell")
    assert math.isnan(found.classes["class2"].ap)
    assert not math.isnan(found.classes["class1"].ap)


CLASSES_ESTIMATION = [f"class{number}" for number in range(6)]


def some_probabilities(rows=200, classes=40):
    """Scores, labels of which one positive of each class is known, and how probable the others are."""
    random = np.random.default_rng(0)
    scores = 1.5 * random.normal(size=(rows, classes))
    labels = np.full(scores.shape, UNKNOWN, np.int8)
    labels[random.integers(rows, size=classes), np.arange(classes)] = POSITIVE
    return scores, labels, np.where(labels == POSITIVE, 1.0, expit(2 * scores - 2))


def test_what_is_expected_is_the_mean_of_what_labels_would_give():
    scores, labels, chance = some_probabilities()
    moves = [Draw(1.0, 0.0)] * 60
    expected, *drawn = _counts(scores, scores > 0, labels, chance, moves, np.random.default_rng(1))
    for figure, error in ((0, 0.01), (1, 0.5), (2, 0), (3, 0.5)):
        means = np.mean(drawn, axis=0)[figure]
        assert expected[figure].mean() == pytest.approx(means.mean(), abs=error)


def test_drawn_labels_are_judged_as_labels_are():
    scores, labels, chance = some_probabilities(classes=3)
    _, drawn = _counts(scores, scores > 0, labels, chance, [Draw(1.0, 0.0), Draw(0.7, 0.4)], np.random.default_rng(1))
    moved = np.where(labels == UNKNOWN, expit(0.7 * np.log(chance / np.maximum(1 - chance, 1e-300)) + 0.4), 1.0)
    truth = np.random.default_rng(1).random(scores.shape) < moved
    np.testing.assert_allclose(drawn[0], [average_precision_score(truth[:, i], scores[:, i]) for i in range(3)])
    np.testing.assert_array_equal(drawn[1:], [(truth & (scores > 0)).sum(0), (scores > 0).sum(0), truth.sum(0)])


def test_cells_of_one_score_are_judged_together_whatever_their_order():
    scores, labels, chance = some_probabilities(classes=3)
    scores = np.round(scores)
    moves, found = [Draw(1.0, 0.0)] * 2, []
    for order in (np.argsort(-chance[:, 0]), np.argsort(chance[:, 0])):
        own, random = [each[order] for each in (scores, labels, chance)], np.random.default_rng(1)
        expected, drawn = _counts(own[0], own[0] > 0, own[1], own[2], moves, random)
        truth = np.random.default_rng(1).random(scores.shape) < own[2]
        by_scikit = [average_precision_score(truth[:, i], own[0][:, i]) for i in range(3)]
        np.testing.assert_allclose(drawn[0], by_scikit, rtol=1e-6)
        found.append(expected[0])
    np.testing.assert_allclose(*found)


def test_draws_expect_the_number_of_labels_they_stand_for():
    _, labels, chance = some_probabilities()
    unknown, total = labels == UNKNOWN, Interval(*map(np.float64, (2000, 900, 3500)))
    moves = draws(total, 0.3, _by_logit(labels, chance), np.random.default_rng(0))
    logits = np.log(chance[unknown] / (1 - chance[unknown]))
    found = np.array([expit(factor * logits + step).sum() for factor, step in moves])
    assert found[0] == pytest.approx(2000, rel=1e-3)
    assert (np.diff(found[1:]) > 0).all()
    np.testing.assert_allclose(np.quantile(found[1:], [0.025, 0.5, 0.975]), [900, 2000, 3500], rtol=0.05)
    factors = np.log([factor for factor, _ in moves])
    assert factors[1:].std() == pytest.approx(0.3, rel=0.05)
    assert abs(np.corrcoef(factors[1:], np.log(found[1:]))[0, 1]) < 0.3


def test_the_ends_of_an_interval_are_its_ends():
    at = np.array([-1.96, 0, 1.96])
    np.testing.assert_allclose(missing_at(Interval(*map(np.float64, (30, 4, 900))), at), [4, 30, 900])
    np.testing.assert_allclose(missing_at(Interval(*map(np.float64, (0, 0, 12))), at), [0, 0, 12], atol=1e-9)


def of_one_class(scores, labels, *, rates, ignorable=False):
    observation = Observation("", 0, np.full(labels.shape, ignorable), np.zeros(labels.shape, bool))
    nothing = Interval(*(np.zeros(1) for _ in range(3)))
    line = Platt(np.array([2.0]), np.array([-1.0]))
    return Inference(observation, Rates(*map(np.array, rates), np.ones(1)), line, line, line, scores, nothing, nothing)


def test_known_cells_tell_how_steep_a_line_is_as_far_as_its_fisher_information():
    random = np.random.default_rng(0)
    scores = random.normal(size=(80, 1))
    labels = np.where(random.random((80, 1)) < 0.5, UNKNOWN, NEGATIVE).astype(np.int8)
    found = sharpness_error(scores, labels, of_one_class(scores, labels, rates=([0.4], [0.2])))
    information = np.zeros((2, 2))  # of the logarithm of the slope, and of the intercept
    for (score,), (label,) in zip(scores, labels, strict=True):
        if label != UNKNOWN:
            logit = 2 * score - 1
            chance = expit(logit + np.log(0.4 / 0.2))
            by = np.array([logit, 1.0])
            information += chance * (1 - chance) * np.outer(by, by)
    alone = np.linalg.inv(information)[0, 0]
    assert found == pytest.approx(np.hypot(1 / np.sqrt(1 / 0.3**2 + 1 / alone), 0.1))


def test_positives_alone_do_not_tell_how_steep_a_line_is():
    scores, labels = np.linspace(-3, 3, 200)[:, None], np.full((200, 1), UNKNOWN, np.int8)
    labels[20:] = POSITIVE
    known = of_one_class(scores, labels, rates=([0.4], [0.0]))
    assert sharpness_error(scores, labels, known) == pytest.approx(np.hypot(0.3, 0.1))
    looked_at = of_one_class(scores, labels, rates=([0.4], [0.0]), ignorable=True)
    assert sharpness_error(scores, labels, looked_at) < 0.27


def test_precision_follows_the_number_of_missing_labels():
    scores, _, labels = generate(1500, np.random.default_rng(0))
    observed, predicted = observe_positives(labels), scores > 0.5
    inference = infer(scores, observed)
    found = estimate(scores, predicted, observed, inference, CLASSES_ESTIMATION)
    unknown, chance = observed == UNKNOWN, inference.probabilities
    logits = np.log(np.maximum(chance, 1e-12) / np.maximum(1 - chance, 1e-12))
    for number, end in ((inference.total.low, found.precision.low), (inference.total.high, found.precision.high)):
        steps = np.linspace(-8, 8, 1601)
        expected = np.array([expit(logits[unknown] + step).sum() for step in steps])
        step = np.interp(float(number), expected, steps)
        precision = np.where(unknown, expit(logits + step), chance)[predicted].mean()
        assert end == pytest.approx(precision, abs=0.03)
    truth = precision_recall_f1(predicted, labels, average="overall")
    assert found.precision.low < truth.precision < found.precision.high
    assert found.recall.low < truth.recall < found.recall.high


def test_rows_in_full_make_intervals_narrow():
    scores, _, labels = generate(1500, np.random.default_rng(0))
    observed = observe_positives(labels)
    some = observed.copy()
    some[:200] = labels[:200]
    decisions = fit_decisions(scores, labels)
    vague, narrow = (evaluate(scores, each, decisions, CLASSES_ESTIMATION).estimated for each in (observed, some))
    for name in OVERALL:
        before, after = getattr(vague, name), getattr(narrow, name)
        assert after.high - after.low < 0.12
        assert after.high - after.low < 0.7 * (before.high - before.low)


@pytest.mark.parametrize("full", [0, 60])
def test_intervals_hold_what_all_labels_say(full):
    held = []
    for seed in range(8):
        scores, _, labels = generate(300, np.random.default_rng(seed))
        observed = observe_positives(labels, seed=seed)
        observed[:full] = labels[:full]
        decisions = fit_decisions(scores, observed)
        truth = evaluate(scores, labels, decisions, CLASSES_ESTIMATION)
        found = evaluate(scores, observed, decisions, CLASSES_ESTIMATION).estimated
        held += [getattr(found, name).low <= getattr(truth, name) <= getattr(found, name).high for name in OVERALL]
    assert np.mean(held) >= 0.85


def test_classes_without_a_known_positive_are_no_part_of_the_mean():
    scores, labels, _ = some_probabilities(classes=5)
    labels[:, 3] = UNKNOWN
    found = evaluate(
        scores, labels, fit_decisions(scores, labels), CLASSES_ESTIMATION[:5], process="positives-at-random"
    ).estimated
    assert found.averaged_classes == 4
    assert found.over == " over the 4 of 5 classes with a known positive"
    assert found._replace(averaged_classes=5).over == ""


def test_a_figure_that_may_be_anything_is_not_told():
    scores, _, labels = generate(60, np.random.default_rng(0), slope=1.0)
    observed = np.where((labels == POSITIVE) & (np.random.default_rng(1).random(labels.shape) < 0.3), POSITIVE, UNKNOWN)
    predicted = scores > 0
    found = estimate(scores, predicted, observed.astype(np.int8), infer(scores, observed), CLASSES_ESTIMATION)
    assert found.precision.high - found.precision.low > 0.5
    assert not found.precision.is_informative
    assert any(np.isnan(each.precision) for each in found.classes.values())


def test_an_estimate_lies_in_its_interval_though_classes_are_rare():
    random = np.random.default_rng(0)
    scores = random.normal(size=(300, 120))
    labels = (random.random(scores.shape) < expit(2 * scores - 6)).astype(np.int8)
    labels[np.arange(300), random.integers(120, size=300)] = POSITIVE
    observed = observe_positives(labels)
    found = evaluate(scores, observed, fit_decisions(scores, observed), [str(each) for each in range(120)]).estimated
    assert all(figure.low < figure.value < figure.high for figure in (found.map, found.precision, found.recall))
