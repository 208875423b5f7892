"""Sums by score against sums of all cells."""

import numpy as np

from onepair.probability.binned_counts import Tally


def test_bins_hold_all_cells_in_the_order_of_their_scores():
    random = np.random.default_rng(0)
    scores = random.normal(size=(3000, 4))
    tally = Tally(scores)
    counts = tally.sums(np.ones(scores.shape))
    np.testing.assert_array_equal(counts.sum(0), 3000)
    assert len(counts) < 300
    assert (counts[:64] == 1).all()
    assert (np.diff(tally.scores, axis=0) < 0).all()
    np.testing.assert_allclose((tally.scores * counts).sum(0), scores.sum(0))
    positive = scores > 1
    in_bins = tally.sums(positive)
    for column in range(4):
        ranked = positive[np.argsort(-scores[:, column]), column]
        ends = np.cumsum(counts[:, column]).astype(int)
        np.testing.assert_array_equal(np.cumsum(in_bins[:, column]), np.cumsum(ranked)[ends - 1])
