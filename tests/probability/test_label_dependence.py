"""What the observed labels of a row say of its others: learned where it is known, and hidden as elsewhere."""

import numpy as np
import pytest
from scipy.optimize import minimize

from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, observe_fraction, observe_positives
from onepair.probability import label_dependence as room
from onepair.probability.calibration import expected_calibration_error, fit_platt
from onepair.probability.infer import infer
from onepair.probability.label_dependence import fit_label_dependence, sureness
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
    return fit_label_dependence(
        stacked,
        sample,
        inference,
        observed=np.concatenate([observed, sample]),
        weights=np.ones(len(sample)),
        random=np.random.default_rng(0),
    )


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
    monkeypatch.setattr("onepair.probability.label_dependence._MOST_CLASSES", 3)
    scores, labels = drawn["rows"]
    sample_scores, sample = drawn["sample"]
    observed = observe_positives(labels)
    combination = fit(sample_scores[None], sample, observed, scores)
    assert combination.weights is None
    truth = np.where(observed == UNKNOWN, labels, UNKNOWN)
    assert expected_calibration_error(combination(scores, observed, recognise(observed)), truth) < 0.03


def test_sureness_by_its_definition():
    random = np.random.default_rng(0)
    observed = random.choice([POSITIVE, NEGATIVE, UNKNOWN], (30, 4), p=[0.2, 0.1, 0.7]).astype(np.int8)
    probabilities = random.random(observed.shape)
    unknown = observed == UNKNOWN
    usual = (probabilities[unknown] ** 2).sum() / probabilities[unknown].sum()
    expected = np.zeros((4, 4))
    for j in range(4):
        for label in set(range(4)) - {j}:
            cells = [probabilities[i, b] for i in range(30) for a, b in ((j, label), (label, j))
                     if observed[i, a] == POSITIVE and observed[i, b] == UNKNOWN]  # fmt: skip
            share = (sum(p * p for p in cells) + usual) / (sum(cells) + 1)
            expected[j, label] = np.log(share / usual)
    np.testing.assert_allclose(sureness(observed, probabilities), expected, atol=1e-12)


def test_labels_that_are_taken_for_each_other_are_less_sure_than_labels_that_come_together():
    """Of a hundred images that show class 0, as many of class 1 are expected as of class 2."""
    observed = np.full((100, 3), UNKNOWN, np.int8)
    observed[:, 0] = POSITIVE
    taken_for, together = np.full(100, 0.2), np.where(np.arange(100) < 20, 0.98, 0.005)
    sure = sureness(observed, np.column_stack([np.ones(100), taken_for, together]))
    assert sure[0, 1] < 0 < sure[0, 2]


def test_weights_minimise_the_penalised_loss():
    """Against the loss as it is written in the docstring, cell by cell, by a search without gradients of ours."""
    random = np.random.default_rng(1)
    own, others = random.normal(0, 1, (12, 3)), random.random((12, 3))
    positive, weight = random.random((12, 3)) < 0.4, random.random((12, 3))
    sure = np.array([[0, 0.5, -1], [0.5, 0, 0.3], [-1, 0.3, 0]])

    def weights_of(values):
        c, beta, pairs = values[6:9], values[9], {(0, 1): values[10], (0, 2): values[11], (1, 2): values[12]}
        return np.array(
            [
                [0 if j == k else c[j] + beta * sure[j, k] + pairs[min(j, k), max(j, k)] for k in range(3)]
                for j in range(3)
            ]
        )

    def loss(values):
        slope, intercept, weights = values[:3], values[3:6], weights_of(values)
        total = room._OWN_SLOPE * ((slope - 1) ** 2).sum() + room._INTERCEPT * (intercept**2).sum()
        total += room._FOR_ALL * (values[6:9] ** 2).sum() + room._SURENESS * values[9] ** 2
        total += room._PAIR * (values[10:] ** 2).sum()
        total /= 2
        for i in range(12):
            for k in range(3):
                logit = slope[k] * own[i, k] + intercept[k] + sum(weights[j, k] * others[i, j] for j in range(3))
                total += weight[i, k] * (np.log1p(np.exp(logit)) - positive[i, k] * logit)
        return total

    best = minimize(loss, np.repeat([1.0, 0.0], [3, 10])).x
    found = room._fit(own, others, positive, weight, sure)
    for ours, reference in zip(found, (best[:3], best[3:6], weights_of(best)), strict=True):
        np.testing.assert_allclose(ours, reference, atol=5e-3)
