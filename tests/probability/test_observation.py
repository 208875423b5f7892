"""Labels that are observed in known ways: posteriors against slow references, and counts against the truth."""

import itertools

import numpy as np
import pytest
from scipy.special import expit

from onepair.labels import POSITIVE, UNKNOWN, observe_positives
from onepair.probability.calibration import fit_platt
from onepair.probability.observation import AtRandom, SinglePositive, fit_platt_incomplete, infer, label_frequency


def generate(rows, random, slope=3.0, intercepts=(-3, -1.5), classes=6):
    """Scores, true probabilities and full labels, at least one positive in every row."""
    intercept = np.linspace(*intercepts, classes)
    scores = random.normal(0, 1.5, (4 * rows, classes))
    probabilities = expit(slope * scores + intercept)
    labels = (random.random(scores.shape) < probabilities).astype(np.int8)
    kept = np.flatnonzero(labels.any(1))[:rows]
    return scores[kept], probabilities[kept], labels[kept]


def slow_posterior(probabilities, observed):
    """Over all sets of labels that hold the observed one, which each shows with one over its size."""
    positive = np.zeros(len(probabilities))
    total = 0.0
    for labels in itertools.product((0, 1), repeat=len(probabilities)):
        if labels[observed]:
            chances = [p if y else 1 - p for p, y in zip(probabilities, labels, strict=True)]
            weight = np.prod(np.delete(chances, observed)) / sum(labels)
            positive += weight * np.array(labels)
            total += weight
    return positive / total


def test_the_posterior_of_single_positives_is_exact():
    random = np.random.default_rng(0)
    probabilities = random.random((12, 5))
    probabilities[0] = [0, 1, 0.5, 1, 0]
    shown = random.integers(5, size=12)
    observed = np.full((12, 5), UNKNOWN, np.int8)
    observed[np.arange(12), shown] = POSITIVE
    expected = [slow_posterior(*row) for row in zip(probabilities, shown, strict=True)]
    np.testing.assert_allclose(SinglePositive().posterior(probabilities, observed), expected, atol=1e-12)


def test_blocks_of_rows_make_no_difference(monkeypatch):
    random = np.random.default_rng(1)
    _, probabilities, labels = generate(50, random)
    observed = observe_positives(labels)
    whole = SinglePositive().posterior(probabilities, observed)
    monkeypatch.setattr("onepair.probability.observation._BLOCK", 700)  # seven rows
    np.testing.assert_allclose(SinglePositive().posterior(probabilities, observed), whole, rtol=1e-12)


def test_the_posterior_of_labels_at_random_is_bayes():
    observed = np.array([[1, -1, 0, -1]], np.int8)
    posterior = AtRandom(np.array([0.5, 0.75, 0.5, 1.0])).posterior(np.array([[0.2, 0.5, 0.9, 0.9]]), observed)
    np.testing.assert_allclose(posterior, [[1, 0.125 / 0.625, 0, 0]])


def test_missing_single_positives_lie_in_the_interval():
    random = np.random.default_rng(2)
    scores, _, labels = generate(1000, random)
    observed = observe_positives(labels)
    missing = ((labels == POSITIVE) & (observed == UNKNOWN)).sum(0)
    inference = infer(scores, observed)
    assert isinstance(inference.observation, SinglePositive)
    assert (inference.missing.low <= missing).all()
    assert (missing <= inference.missing.high).all()
    assert (inference.missing.low < inference.missing.value).all()
    assert (inference.missing.value < inference.missing.high).all()
    assert inference.missing.total.value == pytest.approx(inference.missing.value.sum())


def test_maximum_likelihood_finds_the_lines_of_single_positives():
    """Where labels are independent given the scores, and few rows have none, the truth has the highest likelihood."""
    scores, probabilities, labels = generate(3000, np.random.default_rng(3), intercepts=(-1, 1))
    observed = observe_positives(labels)
    platt = fit_platt_incomplete(scores, observed, SinglePositive())
    seldom = fit_platt(scores, np.maximum(observed, 0))  # unknown as negative
    assert np.abs(platt(scores) - probabilities).mean() < 0.05
    assert np.abs(seldom(scores) - probabilities).mean() > 0.2


def test_labels_at_random_are_counted_and_calibrated():
    random = np.random.default_rng(4)
    chance = np.array([0.3, 0.5, 0.7, 0.9, 0.3, 0.5])
    scores, probabilities, labels = generate(5000, random, slope=6.0)
    observed = np.where((labels == POSITIVE) & (random.random(labels.shape) < chance), POSITIVE, UNKNOWN).astype(
        np.int8
    )
    frequency = label_frequency(scores, observed)
    assert ((frequency.low <= chance) & (chance <= frequency.high)).mean() >= 0.8
    np.testing.assert_allclose(frequency.value, chance, atol=0.12)
    inference = infer(scores, observed)
    assert isinstance(inference.observation, AtRandom)
    assert np.abs(inference.platt(scores) - probabilities).mean() < 0.04
    missing = ((labels == POSITIVE) & (observed == UNKNOWN)).sum()
    assert inference.missing.total.low < missing < inference.missing.total.high


def test_known_negatives_are_no_candidates():
    """The highest-scored cells are known to be negative: the frequency is that of the others."""
    scores = np.concatenate([np.full(50, 9.0), np.linspace(1, 0, 100)])[:, None]
    observed = np.concatenate([np.zeros(50), np.tile([1, -1], 20), np.full(60, -1)])[:, None].astype(np.int8)
    assert label_frequency(scores, observed).value[0] == pytest.approx(0.5, abs=0.1)


def test_a_class_without_observed_positives_has_few_missing():
    random = np.random.default_rng(5)
    scores, _, labels = generate(300, random)
    labels[:, 0] = 0
    kept = labels.any(1)
    scores[:, 0] = -5
    inference = infer(scores[kept], observe_positives(labels[kept]))
    assert inference.missing.value[0] < 3


def test_without_any_positive_nothing_can_be_said():
    with pytest.raises(ValueError, match="no positive label is observed"):
        infer([[1.0, 2.0]], [[-1, 0]])
