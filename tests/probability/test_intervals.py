"""How many labels are missing: right on average whatever the model, and inside the interval as often as promised."""

import numpy as np
import pytest
from scipy.special import expit

from onepair.labels import POSITIVE, UNKNOWN
from onepair.probability.intervals import Interval, count_missing, pool

CLASSES, ROWS, SAMPLE = 4, 600, 300


def trial(random, model):
    """Estimates for a drawn dataset, and the truth."""
    scores = random.normal(0, 2, (ROWS + SAMPLE, CLASSES))
    truth = expit(scores + np.array([-3, -2, -1, 0]))
    labels = (random.random(truth.shape) < truth).astype(np.int8)
    probabilities = model(truth)
    hidden = random.random((ROWS, CLASSES)) < [0.2, 0.4, 0.6, 0.8]
    observed = np.where(hidden | (labels[:ROWS] != POSITIVE), UNKNOWN, POSITIVE).astype(np.int8)
    missing = (hidden & (labels[:ROWS] == POSITIVE)).sum(0)
    return count_missing(observed, probabilities[:ROWS], labels[ROWS:], probabilities[ROWS:]), missing


@pytest.mark.parametrize("model", [lambda truth: truth, lambda truth: truth**3, lambda truth: np.full_like(truth, 0.9)])
def test_the_interval_holds_the_truth_as_often_as_promised(model):
    random = np.random.default_rng(0)
    inside, all_inside, errors = [], [], []
    for _ in range(150):
        (by_class, total), missing = trial(random, model)
        inside.append((by_class.low <= missing) & (missing <= by_class.high))
        all_inside.append(total.low <= missing.sum() <= total.high)
        errors.append(by_class.value - missing)
    assert 0.91 <= np.mean(inside) <= 0.985
    assert np.mean(all_inside) >= 0.9
    assert np.abs(np.mean(errors, axis=0)).max() < 6  # of some 100 to 200


def test_a_better_model_has_a_narrower_interval():
    widths = []
    for model in (lambda truth: truth, lambda truth: np.full_like(truth, 0.3)):
        (by_class, total), _ = trial(np.random.default_rng(1), model)
        widths.append([*(by_class.high - by_class.low), total.high - total.low])
    good, bad = np.array(widths)
    assert (good[1:] < 0.9 * bad[1:]).all()  # the first class is rare, and both know little of it


def test_no_more_can_be_missing_than_is_unknown():
    observed = np.array([[1, 0], [1, -1]], np.int8)
    by_class, total = count_missing(observed, np.ones((2, 2)), np.ones((3, 2), np.int8), np.ones((3, 2)))
    np.testing.assert_array_equal(by_class.value, [0, 1])
    assert total.value == 1


def test_two_estimates_together_reach_no_further_than_either():
    few = Interval(*(np.array([each]) for each in (2.0, 0.0, 3.0)))
    many = Interval(*(np.array([each]) for each in (2.9, 0.5, 3.0)))
    both = pool(few, many)
    assert 0 <= both.low <= both.value <= both.high <= 3
