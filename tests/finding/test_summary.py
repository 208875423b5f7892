"""What is said of each class."""

import json
from dataclasses import asdict

import numpy as np

from onepair.finding import ClassSummary, summarise
from onepair.finding.summary import read_summary
from onepair.probability.counting import Estimate


def test_every_class_is_summarised():
    labels = [[1, 0], [-1, -1], [-1, 1], [-1, 1]]
    probabilities = [[0.9, 0.1], [0.8, 0.3], [0.6, 0.9], [0.1, 0.9]]
    missing = Estimate(np.array([2.1, 0.2]), np.array([1.0, 0.0]), np.array([3.0, 1.0]))
    assert summarise(labels, probabilities, missing, ["cat", "dog"]) == [
        ClassSummary("cat", 1, 0, 3, 2.1, 1.0, 3.0, 3.1 / 4, 0.6, 2),
        ClassSummary("dog", 2, 1, 1, 0.2, 0.0, 1.0, 2.2 / 4, 1.0, 0),
    ]


def test_a_summary_is_read_back_where_there_is_one(tmp_path):
    found = summarise(
        [[1, -1], [-1, 0]], [[1.0, 0.4], [0.6, 0.0]], Estimate(*np.array([[0.6, 0.4], [0, 0], [1, 1]])), "ab"
    )
    assert read_summary(tmp_path) == []
    (tmp_path / "finding").mkdir()
    (tmp_path / "finding" / "summary.json").write_text(json.dumps({"classes": [asdict(each) for each in found]}))
    assert read_summary(tmp_path) == found
    assert found[0].prior_interval == (0.5, 1.0)
    (tmp_path / "finding" / "summary.json").write_text("{")
    assert read_summary(tmp_path) == []
