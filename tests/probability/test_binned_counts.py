"""Cells counted by class and score."""

import numpy as np

from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN
from onepair.probability.observation import recognise
from onepair.probability.scenarios import BinnedCounts, RankBins


def test_bins_hold_all_cells_in_the_order_of_their_scores():
    random = np.random.default_rng(0)
    scores = random.normal(size=(3000, 4))
    bins = RankBins(scores)
    counts = bins.sums(np.ones(scores.shape))
    np.testing.assert_array_equal(counts.sum(0), 3000)
    assert len(counts) < 300
    assert (counts[:64] == 1).all()
    assert (np.diff(bins.scores, axis=0) < 0).all()
    np.testing.assert_allclose((bins.scores * counts).sum(0), scores.sum(0))
    positive = scores > 1
    in_bins = bins.sums(positive)
    for column in range(4):
        ranked = positive[np.argsort(-scores[:, column]), column]
        ends = np.cumsum(counts[:, column]).astype(int)
        np.testing.assert_array_equal(np.cumsum(in_bins[:, column]), np.cumsum(ranked)[ends - 1])


def test_labels_that_were_asked_for_are_no_sample():
    random = np.random.default_rng(0)
    truth = np.where(random.random((60, 3)) < 0.4, POSITIVE, NEGATIVE)
    labels, asked = truth.copy(), np.zeros(truth.shape, bool)
    labels[20:][(truth[20:] == NEGATIVE) | (random.random((40, 3)) < 0.5)] = UNKNOWN
    asked[:5, 0] = True  # of rows that are known in full, as fifteen others are
    observation = recognise(labels, asked=asked)
    cells = BinnedCounts(random.normal(size=truth.shape), labels, observation, np.ones(60))
    np.testing.assert_array_equal(cells.sampled.sum(0), [15, 15, 15])
    np.testing.assert_array_equal(cells.sampled_positive.sum(0), (truth[5:20] == POSITIVE).sum(0))
