"""What the observed labels of a row say of its others: learned where it is known, and hidden as elsewhere."""

import numpy as np
import pytest

from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, observe_fraction, observe_positives
from onepair.probability.calibration import expected_calibration_error, fit_platt
from onepair.probability.combination import fit_combination, hide_alike

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
    combination = fit_combination(sample_scores[None], sample, observed, random=np.random.default_rng(0))
    probabilities, unknown = combination(scores, observed), observed == UNKNOWN

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
    fit = {
        name: fit_combination(stacked, sample, observed, random=np.random.default_rng(0))(scores, observed)
        for name, stacked in {"one": sample_scores[None], "three": np.stack([sample_scores] * 3)}.items()
    }
    np.testing.assert_allclose(fit["three"], fit["one"], atol=0.04)
    assert np.abs(fit["three"] - fit["one"]).mean() < 0.005


def test_known_negatives_tell_too(drawn):
    """Of nearly the same scores, those with a horse have a rider, those without have none."""
    _, labels = drawn["rows"]
    sample_scores, sample = drawn["sample"]
    observed = observe_fraction(labels, known=0.5)
    combination = fit_combination(sample_scores[None], sample, observed, random=np.random.default_rng(0))
    scores = np.array([[0.0, 0.5, -2.0, 2.0], [0.0, -0.5, -2.0, 2.0]])
    shown = np.full((2, 4), UNKNOWN, np.int8)
    shown[:, 1] = POSITIVE, NEGATIVE
    with_horse, without = combination(scores, shown)[:, 0]
    assert with_horse > 0.4 > 0.2 > without


@pytest.mark.parametrize("per_sample", [1, 2])
def test_positives_are_hidden_as_in_other_rows(per_sample):
    labels = (np.random.default_rng(0).random((5000, 6)) < 0.4).astype(np.int8)
    labels[~labels.any(1), 0] = 1
    observed = observe_positives(labels[:2500], per_sample=per_sample)
    again = hide_alike(labels[2500:], observed, np.random.default_rng(1))
    assert (again[again != UNKNOWN] == POSITIVE).all()
    assert (labels[2500:][again == POSITIVE] == POSITIVE).all()
    if per_sample == 1:
        assert ((again == POSITIVE).sum(1) == 1).all()
    np.testing.assert_allclose((again == POSITIVE).mean(0), (observed == POSITIVE).mean(0), atol=0.06)
    of_three = labels[2500:].sum(1) == 3
    chosen = (again[of_three] == POSITIVE).sum(1).mean() / 3
    assert chosen == pytest.approx(per_sample / 3, abs=0.1)


def test_positives_and_negatives_are_hidden_at_the_rates_of_their_classes():
    random = np.random.default_rng(0)
    labels = (random.random((4000, 3)) < [0.2, 0.5, 0.8]).astype(np.int8)
    kept = random.random(labels.shape) < np.where(labels == POSITIVE, [0.9, 0.5, 0.1], [0.1, 0.5, 0.4])
    observed = np.where(kept, labels, UNKNOWN).astype(np.int8)
    again = hide_alike(labels, observed, random)
    for value in (POSITIVE, NEGATIVE):
        np.testing.assert_allclose((again == value).mean(0), (observed == value).mean(0), atol=0.03)
    assert (again[again != UNKNOWN] == labels[again != UNKNOWN]).all()
