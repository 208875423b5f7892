"""Thresholds by class, against a slow reference."""

import numpy as np
import pytest

from onepair.finding import likely, thresholds
from onepair.labels import UNKNOWN


def slow_threshold(labels, probabilities, missing):
    unknown = sorted((p for y, p in zip(labels, probabilities, strict=True) if y == UNKNOWN), reverse=True)
    wanted = min(round(missing), len(unknown))
    return unknown[wanted - 1] if wanted else 1.0


def test_as_many_cells_reach_the_threshold_as_labels_are_missing():
    random = np.random.default_rng(0)
    labels, probabilities = random.integers(-1, 2, (200, 8)), random.random((200, 8))
    missing = np.array([0.0, 0.4, 0.6, 5.2, 20.0, 60.0, 200.0, 1000.0])
    limits = thresholds(labels, probabilities, missing)
    expected = [slow_threshold(*column) for column in zip(labels.T, probabilities.T, missing, strict=True)]
    np.testing.assert_array_equal(limits, expected)
    chosen = likely(labels, probabilities, limits)
    assert not chosen[labels != UNKNOWN].any()
    unknown = (labels == UNKNOWN).sum(0)
    np.testing.assert_array_equal(chosen.sum(0), np.minimum(np.rint(missing), unknown))


def test_one_threshold_serves_all_classes():
    np.testing.assert_array_equal(likely([[-1, 0, -1]], [[0.5, 0.9, 0.4]], 0.5), [[True, False, False]])


def test_a_class_without_unknown_cells_has_nothing_to_find():
    assert thresholds([[1, -1], [0, -1]], [[0.9, 0.9], [0.9, 0.1]], [3, 1]) == pytest.approx([1.0, 0.9])
