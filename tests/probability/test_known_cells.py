"""Cells by score: what was asked for because of its score is no sample of the others."""

import numpy as np

from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN
from onepair.probability.binned_counts import KnownCells
from onepair.probability.observation import recognise


def test_labels_that_were_asked_for_are_no_sample():
    random = np.random.default_rng(0)
    truth = np.where(random.random((60, 3)) < 0.4, POSITIVE, NEGATIVE)
    labels, asked = truth.copy(), np.zeros(truth.shape, bool)
    labels[20:][(truth[20:] == NEGATIVE) | (random.random((40, 3)) < 0.5)] = UNKNOWN
    asked[:5, 0] = True  # of rows that are known in full, as fifteen others are
    observation = recognise(labels, asked=asked)
    cells = KnownCells(random.normal(size=truth.shape), labels, observation, np.ones(60))
    np.testing.assert_array_equal(cells.sampled.sum(0), [15, 15, 15])
    np.testing.assert_array_equal(cells.sampled_positive.sum(0), (truth[5:20] == POSITIVE).sum(0))
    np.testing.assert_array_equal(
        cells.asked, [(truth[:5] == value).sum(0) * [1, 0, 0] for value in (POSITIVE, NEGATIVE)]
    )
    assert observation.max_shown == 0  # so that no positive stands for a row
    np.testing.assert_array_equal(cells.extra, (~observation.ignorable & (labels == POSITIVE)).sum(0))
