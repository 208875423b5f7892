"""Missing labels from scores in blocks, against `infer` and a ranking of the whole matrix."""

import numpy as np
import pytest

from onepair.finding import by_blocks, find_by_blocks
from onepair.label_matrix import LabelMatrix
from onepair.labels import observe_positives
from onepair.probability.incomplete import infer
from tests.test_score_blocks import Blocks


def problem(rows=300, classes=6):
    random = np.random.default_rng(4)
    logits = random.normal(-1, 2, (rows, classes)).astype(np.float32)
    truth = (random.random((rows, classes)) < 1 / (1 + np.exp(-logits))).astype(np.int8)
    truth[~truth.any(1), 0] = 1
    return logits, truth


def test_the_likeliest_of_each_class_by_the_whole_matrix():
    scores, truth = problem()
    observed = observe_positives(truth)
    found = find_by_blocks(LabelMatrix.of(observed), Blocks(scores, 70), per_class=4)
    whole = infer(scores, observed)
    np.testing.assert_allclose(found.missing.value, whole.missing.value)
    assert found.sample == len(scores)
    cells = list(zip(found.suggestions.row.tolist(), found.suggestions.label.tolist(), strict=True))
    hidden = np.where(observed == -1, scores, -np.inf)
    expected = {(int(row), label) for label in range(6) for row in np.argsort(-hidden[:, label])[:4]}
    assert set(cells) == expected
    probabilities = np.array([whole.probabilities[cell] for cell in cells])
    np.testing.assert_allclose(found.suggestions.probability, probabilities)
    assert (np.diff(found.suggestions.probability) <= 0).all()
    assert set(found.suggestions.kind.tolist()) == {"missing"}
    assert np.mean([truth[cell] for cell in cells]) > 2 * truth[observed == -1].mean()


def test_a_sample_stands_for_all_rows(monkeypatch):
    scores, truth = problem(rows=2_000)
    observed = observe_positives(truth)
    monkeypatch.setattr(by_blocks, "_SAMPLED_CELLS", 600 * 6)
    found = find_by_blocks(LabelMatrix.of(observed), Blocks(scores, 333), per_class=3)
    assert found.sample == 600
    sample = np.sort(np.random.default_rng(0).choice(2_000, 600, replace=False))
    of_sample = infer(scores[sample], observed[sample]).missing
    np.testing.assert_allclose(found.missing.value, of_sample.value * 2_000 / 600)
    assert len(found.suggestions) == 3 * 6


def test_nothing_known_is_said_so():
    with pytest.raises(ValueError, match="no positive label is observed"):
        find_by_blocks(LabelMatrix.of(np.full((3, 2), -1)), Blocks(np.zeros((3, 2), np.float32), 2))
