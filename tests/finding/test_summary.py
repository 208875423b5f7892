"""What is said of each class, against a slow reference."""

import json
from dataclasses import asdict

import numpy as np

from onepair.finding import ClassSummary, rank, summarise
from onepair.finding.suggestions import read_summary
from onepair.label_matrix import LabelMatrix
from onepair.labels import UNKNOWN
from onepair.probability.intervals import Interval


def summary_of(labels, probabilities, missing, classes):
    return summarise(LabelMatrix.of(np.array(labels)), rank(labels, probabilities), missing, classes)


def test_every_class_is_summarised():
    labels = [[1, 0], [-1, -1], [-1, 1], [-1, 1]]
    probabilities = [[0.9, 0.1], [0.8, 0.3], [0.6, 0.9], [0.1, 0.9]]
    missing = Interval(np.array([2.1, 0.2]), np.array([1.0, 0.0]), np.array([3.0, 1.0]))
    assert summary_of(labels, probabilities, missing, ["cat", "dog"]) == [
        ClassSummary("cat", 1, 0, 3, 2.1, 1.0, 3.0, 3.1 / 4, 0.6, 2),
        ClassSummary("dog", 2, 1, 1, 0.2, 0.0, 1.0, 2.2 / 4, 1.0, 0),
    ]


def slow_threshold(labels, probabilities, missing):
    unknown = sorted((p for y, p in zip(labels, probabilities, strict=True) if y == UNKNOWN), reverse=True)
    wanted = min(round(missing), len(unknown))
    return unknown[wanted - 1] if wanted else 1.0


def test_as_many_cells_reach_the_threshold_as_labels_are_missing():
    random = np.random.default_rng(0)
    labels, probabilities = random.integers(-1, 2, (200, 9)), random.random((200, 9))
    labels[:, 8] = 1  # nothing to find
    missing = np.array([0.0, 0.4, 0.6, 5.2, 20.0, 60.0, 200.0, 1000.0, 3.0])
    found = summary_of(labels, probabilities, Interval(missing, missing, missing), "abcdefghi")
    expected = [slow_threshold(*column) for column in zip(labels.T, probabilities.T, missing, strict=True)]
    assert [each.threshold for each in found] == expected
    wanted = np.minimum(np.rint(missing), (labels == UNKNOWN).sum(0))
    np.testing.assert_array_equal([each.suggested for each in found], wanted)


def test_a_summary_is_read_back_where_there_is_one(tmp_path):
    found = summary_of(
        [[1, -1], [-1, 0]], [[1.0, 0.4], [0.6, 0.0]], Interval(*np.array([[0.6, 0.4], [0, 0], [1, 1]])), "ab"
    )
    assert read_summary(tmp_path) == []
    (tmp_path / "finding").mkdir()
    (tmp_path / "finding" / "summary.json").write_text(json.dumps({"classes": [asdict(each) for each in found]}))
    assert read_summary(tmp_path) == found
    assert found[0].prior_interval == (0.5, 1.0)
    (tmp_path / "finding" / "summary.json").write_text("{")
    assert read_summary(tmp_path) == []
