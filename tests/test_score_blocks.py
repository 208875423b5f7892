"""What is said of scores in blocks, against the same of the whole matrix: to the last bit."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from onepair import score_blocks
from onepair.correction import correction_by_blocks, label_correction, training_ap
from onepair.label_matrix import LabelMatrix
from onepair.probability.selection_score import estimated_map, estimated_map_by_blocks
from onepair.score_blocks import HighestUnknown, rank_positives

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


@given(case=cases(), label_num=st.sampled_from([None, 0.0, 0.8, 2.5, 40.0]), waiting=st.sampled_from([0, 5, 10**6]))
def test_correction(case, label_num, waiting):
    scores, labels, size = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(score_blocks, "_MOST_WAITING", waiting)
        blocks = Blocks(scores, size)
        class_ap, corrected = correction_by_blocks(blocks, LabelMatrix.of(labels), label_num=label_num)
    np.testing.assert_array_equal(class_ap, training_ap(scores, labels))
    expected = labels if label_num is None else label_correction(scores, labels, class_ap, label_num=label_num)
    np.testing.assert_array_equal(corrected, expected)
    assert blocks.passes == 2


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
