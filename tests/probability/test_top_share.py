"""The most that can be missing: about no fewer than there are, and about that where the top is pure."""

import numpy as np
import pytest
from scipy.special import expit

from onepair.labels import POSITIVE, UNKNOWN
from onepair.probability.infer import infer, most_missing


def positives_at_random(steepness, share, rows=4000, seed=0):
    random = np.random.default_rng(seed)
    scores = random.normal(size=(rows, 4))
    truth = random.random(scores.shape) < expit(steepness * (scores - 1))
    observed = truth & (random.random(scores.shape) < share)
    return scores, truth, np.where(observed, POSITIVE, UNKNOWN).astype(np.int8)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("steepness", [1.0, 3.0, 50.0])
def test_hardly_fewer_than_there_are(steepness, share):
    scores, truth, labels = positives_at_random(steepness, share)
    missing = (truth & (labels == UNKNOWN)).sum(0)
    each, together = most_missing(scores, labels)
    assert together >= 0.9 * missing.sum()
    assert (each >= 0.75 * missing).all()


def test_just_that_many_where_the_top_is_pure():
    scores, truth, labels = positives_at_random(50.0, 0.5)
    missing = (truth & (labels == UNKNOWN)).sum()
    assert most_missing(scores, labels)[1] == pytest.approx(missing, rel=0.15)


def test_a_class_that_shows_no_positive_may_have_some():
    scores, _, labels = positives_at_random(3.0, 0.3)
    labels[:, 0] = UNKNOWN
    each, _ = most_missing(scores, labels)
    assert 1 < each[0] < each[1:].min()


@pytest.mark.parametrize("share", [0.1, 0.3])
def test_intervals_hold_where_the_likelihood_takes_unknown_for_negative(share):
    scores, truth, labels = positives_at_random(1.5, share, rows=600)
    found = infer(scores, labels)
    missing = truth & (labels == UNKNOWN)
    assert found.total.low <= missing.sum() <= found.total.high
    assert ((found.missing.low <= missing.sum(0)) & (missing.sum(0) <= found.missing.high)).all()


def test_where_nothing_is_known_the_cells_of_no_class_are_looked_at():
    """Classes without a positive have no top: they add no cells to those that all classes share."""
    scores, _, labels = positives_at_random(3.0, 0.3)
    labels[:, 0] = UNKNOWN
    with_it, without = most_missing(scores, labels)[0][1:], most_missing(scores[:, 1:], labels[:, 1:])[0]
    np.testing.assert_array_equal(with_it, without)


def test_the_order_of_rows_of_one_score_makes_no_difference():
    scores, _, labels = positives_at_random(3.0, 0.3)
    scores = np.round(scores)
    order = np.argsort(-labels, axis=0, kind="stable")
    first, last = (
        most_missing(np.take_along_axis(scores, each, 0), np.take_along_axis(labels, each, 0))
        for each in (order, order[::-1])
    )
    np.testing.assert_array_equal(first[0], last[0])
    assert first[1] == last[1]
