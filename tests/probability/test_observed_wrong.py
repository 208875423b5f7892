"""Observed labels that may be wrong."""

import numpy as np
import pytest

from onepair.labels import POSITIVE, UNKNOWN
from onepair.probability.cell_posterior import fit_label_noise


@pytest.mark.parametrize("drawn", [0, 1])
def test_where_most_labels_would_be_wrong_none_is(drawn):
    """Scores by which every label speaks against itself, as a few images may give them, say nothing of the labels."""
    random = np.random.default_rng(0)
    observed = np.full((40, 3), UNKNOWN, np.int8)
    observed[np.arange(40), random.integers(3, size=40)] = POSITIVE
    logits = np.where(observed == POSITIVE, -3.0, 1.0) + 0.1 * random.normal(size=observed.shape)
    unknown = np.full(observed.shape, 0.3)
    found = fit_label_noise(observed, unknown, logits, max_shown=drawn)(observed, unknown, logits)
    assert (found[observed == POSITIVE] == 1).all()
    np.testing.assert_array_equal(found[observed == UNKNOWN], 0.3)


def test_a_few_clear_ones_are_still_thought_to_be_wrong():
    random = np.random.default_rng(0)
    observed = np.full((400, 3), UNKNOWN, np.int8)
    shown = random.integers(3, size=400)
    observed[np.arange(400), shown] = POSITIVE
    logits = np.where(observed == POSITIVE, 4.0, -4.0) + 0.3 * random.normal(size=observed.shape)
    logits[:12][observed[:12] == POSITIVE] = -6.0
    unknown = np.full(observed.shape, 0.05)
    found = fit_label_noise(observed, unknown, logits, max_shown=0)(observed, unknown, logits)
    right = found[np.arange(400), shown]
    assert right[:12].max() < 0.7
    assert (right[12:] > 0.9).all()
