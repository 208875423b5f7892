"""What is said of scores in blocks, against the same of the whole matrix: to the last bit."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from onepair import metrics
from onepair.label_matrix import LabelMatrix
from onepair.methods.opml_sp import label_correction
from onepair.metrics import HighestUnknown, average_precision, one_block, rank_positives
from onepair.probability.evaluation import estimated_map, estimated_map_by_blocks

ALPHABETS = [(1, 0, -1), (1, -1), (1, 0), (1, 0, -1, -1, -1, -1)]


class Blocks:
    def __init__(self, scores: np.ndarray, size: int) -> None:
        self.scores, self.size, self.passes = scores, size, 0

    def __iter__(self) -> Iterator[tuple[slice, np.ndarray]]:
        self.passes += 1
        for start in range(0, len(self.scores), self.size):
            rows = slice(start, min(start + self.size, len(self.scores)))
            yield rows, self.scores[rows]


@st.composite
def cases(draw):
    shape = draw(st.tuples(st.integers(1, 30), st.integers(1, 4)))
    few = st.sampled_from(np.linspace(-2, 2, 9).astype(np.float32))  # so that many are equal
    scores = draw(arrays(np.float32, shape, elements=few | st.floats(-9, 9, width=32)))
    labels = draw(arrays(np.int8, shape, elements=st.sampled_from(draw(st.sampled_from(ALPHABETS)))))
    return scores, labels, draw(st.integers(1, shape[0]))


def slow_correction(scores, observed, label_num):
    """Algorithm 1 by sorting whole columns."""
    class_ap, corrected = np.nan_to_num(average_precision(scores, np.maximum(observed, 0))), observed.copy()
    for column, ap in enumerate(class_ap):
        count = round(int((observed[:, column] == 1).sum()) * (label_num or 0) * (1 - ap))
        unknown = np.flatnonzero(observed[:, column] == -1)
        corrected[sorted(unknown, key=lambda row: -scores[row, column])[:count], column] = 1
    return class_ap, corrected


@given(case=cases(), label_num=st.sampled_from([None, 0.0, 0.8, 2.5, 40.0]), waiting=st.sampled_from([0, 5, 10**6]))
def test_correction_follows_the_slow_reference_ties_included(case, label_num, waiting):
    scores, labels, size = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metrics, "_MOST_WAITING", waiting)
        blocks = Blocks(scores, size)
        class_ap, corrected = label_correction(blocks, LabelMatrix.of(labels), label_num=label_num)
    expected_ap, expected = slow_correction(scores, labels, label_num)
    np.testing.assert_array_equal(class_ap, expected_ap)
    np.testing.assert_array_equal(corrected, expected)
    assert blocks.passes == 2


def test_correction_counts_by_falling_precision():
    """10 observed positives, Label_num 0.8: at AP = 1 none is corrected, at ½ four, at 0.15 seven."""
    observed = np.full((40, 3), -1, np.int8)
    observed[:10] = 1
    observed[39] = 0
    scores = np.repeat(np.arange(40.0)[::-1, None], 3, axis=1)  # positives first: AP = 1
    scores[:10, 1] -= 10.5  # an unknown above each of them
    scores[:10, 2] -= 100  # all others above
    class_ap, corrected = label_correction(one_block(scores), LabelMatrix.of(observed), label_num=0.8)
    assert class_ap.round(2).tolist() == [1.0, 0.5, 0.15]
    assert (corrected != observed).sum(0).tolist() == [0, 4, 7]
    assert np.flatnonzero(corrected[:, 1] != observed[:, 1]).tolist() == [10, 11, 12, 13]


@given(case=cases().filter(lambda case: (case[1] == 1).any()))
def test_selection(case):
    scores, labels, size = case
    assert estimated_map_by_blocks(Blocks(scores, size), LabelMatrix.of(labels)) == estimated_map(scores, labels)


@given(case=cases())
def test_ranks_are_counted_one_by_one(case):
    scores, labels, size = case
    ranks = rank_positives(Blocks(scores, size), LabelMatrix.of(labels), negatives=True)
    for label, (score, known) in enumerate(zip(scores.T, labels.T, strict=True)):
        levels = sorted(score[known == 1])
        expected = [[(score[known == value] >= level).sum() for level in levels] for value in (1, 0)]
        positive, negative, reached = ranks.of(label)
        assert [positive.tolist(), negative.tolist()] == expected
        assert reached.tolist() == [(score >= level).sum() for level in levels]


def test_few_cells_wait_however_many_rows_there_are():
    random = np.random.default_rng(0)
    scores = random.normal(size=(4000, 3)).astype(np.float32)
    labels = LabelMatrix.from_entries((4000, 3), [0], [0], 1)
    highest = HighestUnknown(labels, np.array([5, 0, 2]))
    most = 0
    for rows, block in Blocks(scores, 100):
        before = highest._waiting
        highest.add(rows, block, np.sort(block.T, axis=1))
        most = max(most, highest._waiting - before)
    assert most <= 5 + 1 + 2
    rows, columns, _ = highest.found(np.array([5, 0, 2]))
    unknown = scores.copy()
    unknown[0, 0] = -np.inf
    expected = [(row, column) for column, n in ((0, 5), (2, 2)) for row in np.argsort(-unknown[:, column])[:n]]
    assert list(zip(rows.tolist(), columns.tolist(), strict=True)) == expected
