"""Algorithm 1 against a slow reference that sorts."""

import numpy as np
import pytest

from onepair.correction import label_correction, training_ap
from onepair.labels import POSITIVE, UNKNOWN


def test_training_ap_counts_unknown_as_negative():
    scores = np.array([[3.0, 0.0], [2.0, 0.0], [1.0, 0.0]])
    observed = np.array([[-1, -1], [1, 0], [0, -1]], np.int8)
    assert training_ap(scores, observed).tolist() == [0.5, 0.0]


def test_correction_takes_the_highest_scored_unknowns_by_falling_precision():
    """10 observed positives, Label_num 0.8: at AP = 0.5 four are corrected, at AP = 1 none, at 0 all eight."""
    observed = np.full((30, 3), UNKNOWN, np.int8)
    observed[:10] = 1
    observed[29] = 0
    scores = np.repeat(np.arange(30.0)[:, None], 3, axis=1)
    corrected = label_correction(scores, observed, np.array([0.5, 1.0, 0.0]), label_num=0.8) != observed
    assert corrected.sum(0).tolist() == [4, 0, 8]
    assert np.flatnonzero(corrected[:, 0]).tolist() == [25, 26, 27, 28]


def slow_correction(scores, observed, class_ap, label_num):
    corrected = observed.copy()
    for column in range(observed.shape[1]):
        count = round(int((observed[:, column] == POSITIVE).sum()) * label_num * (1 - class_ap[column]))
        unknown = [row for row in range(len(observed)) if observed[row, column] == UNKNOWN]
        for row in sorted(unknown, key=lambda row: -scores[row, column])[:count]:
            corrected[row, column] = POSITIVE
    return corrected


@pytest.mark.parametrize("label_num", [0.0, 0.7, 3.0, 1000.0])
def test_correction_follows_the_slow_reference_ties_included(label_num):
    random = np.random.default_rng(6)
    observed = random.choice(np.array([-1, -1, -1, 0, 1], np.int8), size=(60, 5))
    scores = random.normal(size=observed.shape).round(1)
    class_ap = training_ap(scores, observed)
    before = observed.copy()
    corrected = label_correction(scores, observed, class_ap, label_num=label_num)
    np.testing.assert_array_equal(corrected, slow_correction(scores, observed, class_ap, label_num))
    np.testing.assert_array_equal(observed, before)  # never changed
    assert (corrected != observed).any() == (label_num > 0)
