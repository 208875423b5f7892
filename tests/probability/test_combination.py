"""What the observed labels of a row say of its others: learned where it is known, and hidden as elsewhere."""

import numpy as np
import pytest

from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, observe_fraction, observe_positives
from onepair.probability.calibration import expected_calibration_error, fit_platt
from onepair.probability.combination import fit_combination
from onepair.probability.incomplete import infer
from onepair.probability.observation import recognise

ROWS, SAMPLE = 2000, 1500


def generate(rows, random):
    """Scenes of four labels, where "horse" (1) comes with "rider" (0), and scores that know little of the rider."""
    horse = random.random(rows) < 0.3
    rider = np.where(horse, random.random(rows) < 0.8, random.random(rows) < 0.1)
    others = random.random((rows, 2)) < 0.3
    labels = np.column_stack([rider, horse, others]).astype(np.int8)
    labels[~labels.any(1), 3] = 1
    sharpness = np.array([0.5, 2.0, 2.0, 2.0])
    scores = sharpness * (2 * labels - 1) + random.normal(0, 1, labels.shape)
    return scores, labels


def fit(stacked, sample, observed, scores):
    inference = infer(np.concatenate([scores, stacked[0]]), np.concatenate([observed, sample]))
    return fit_combination(stacked, sample, inference, weights=np.ones(len(sample)), random=np.random.default_rng(0))


def log_loss(probabilities, labels, cells):
    share = np.clip(np.where(labels == POSITIVE, probabilities, 1 - probabilities)[cells], 1e-9, 1)
    return -np.log(share).mean()


@pytest.fixture(scope="module")
def drawn():
    return {
        name: generate(rows, np.random.default_rng(seed))
        for seed, (name, rows) in enumerate({"rows": ROWS, "sample": SAMPLE}.items())
    }


def test_an_observed_horse_tells_of_a_rider(drawn):
    scores, labels = drawn["rows"]
    observed = observe_positives(labels)
    sample_scores, sample = drawn["sample"]
    combination = fit(sample_scores[None], sample, observed, scores)
    probabilities, unknown = combination(scores, observed, recognise(observed)), observed == UNKNOWN

    plain = fit_platt(sample_scores, sample)(scores)
    assert log_loss(probabilities, labels, unknown) < 0.9 * log_loss(plain, labels, unknown)

    horses = unknown[:, 0] & (observed[:, 1] == POSITIVE)
    assert probabilities[horses, 0].mean() == pytest.approx(labels[horses, 0].mean(), abs=0.05)
    truth = np.where(unknown, labels, UNKNOWN)
    assert expected_calibration_error(probabilities, truth) < 0.02


def test_several_models_of_the_sample_are_used_in_turn(drawn):
    scores, labels = drawn["rows"]
    sample_scores, sample = drawn["sample"]
    observed = observe_positives(labels)
    fitted = {
        name: fit(stacked, sample, observed, scores)(scores, observed, recognise(observed))
        for name, stacked in {"one": sample_scores[None], "three": np.stack([sample_scores] * 3)}.items()
    }
    np.testing.assert_allclose(fitted["three"], fitted["one"], atol=0.04)
    assert np.abs(fitted["three"] - fitted["one"]).mean() < 0.005


def test_known_negatives_tell_too(drawn):
    """Of nearly the same scores, those with a horse have a rider, those without have none."""
    _, labels = drawn["rows"]
    sample_scores, sample = drawn["sample"]
    observed = observe_fraction(labels, known=0.5)
    combination = fit(sample_scores[None], sample, observed, drawn["rows"][0])
    scores = np.array([[0.0, 0.5, -2.0, 2.0], [0.0, -0.5, -2.0, 2.0]])
    shown = np.full((2, 4), UNKNOWN, np.int8)
    shown[:, 1] = POSITIVE, NEGATIVE
    with_horse, without = combination(scores, shown, recognise(shown, process="at-random"))[:, 0]
    assert with_horse > 0.4 > 0.25 > without


def test_many_classes_are_corrected_one_by_one(drawn, monkeypatch):
    monkeypatch.setattr("onepair.probability.combination._MOST_CLASSES", 3)
    scores, labels = drawn["rows"]
    sample_scores, sample = drawn["sample"]
    observed = observe_positives(labels)
    combination = fit(sample_scores[None], sample, observed, scores)
    assert combination.weights is None
    truth = np.where(observed == UNKNOWN, labels, UNKNOWN)
    assert expected_calibration_error(combination(scores, observed, recognise(observed)), truth) < 0.03
