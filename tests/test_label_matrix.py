"""Labels by their known entries, against the dense matrix that they stand for."""

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from onepair import label_matrix
from onepair.errors import UserError
from onepair.label_matrix import LabelMatrix
from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN

matrices = st.tuples(st.integers(1, 7), st.integers(1, 6)).flatmap(
    lambda shape: arrays(np.int8, shape, elements=st.sampled_from((POSITIVE, NEGATIVE, UNKNOWN)))
)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_matrix, "_BLOCK", 4)


@given(dense=matrices, data=st.data())
def test_it_looks_like_the_matrix_it_stands_for(dense, data):
    labels = LabelMatrix.of(dense)
    assert labels.shape == dense.shape
    assert len(labels) == len(dense)
    assert labels.size == dense.size
    np.testing.assert_array_equal(labels, dense)
    np.testing.assert_array_equal(list(labels), dense)
    np.testing.assert_array_equal(labels == UNKNOWN, dense == UNKNOWN)
    np.testing.assert_array_equal(labels != dense, np.zeros(dense.shape, bool))
    assert labels.tolist() == dense.tolist()
    for value in (POSITIVE, NEGATIVE, UNKNOWN):
        np.testing.assert_array_equal(labels.count(value), (dense == value).sum(0))
        np.testing.assert_array_equal(labels.row_count(value), (dense == value).sum(1))
        assert labels.has(value) == (dense == value).any()
    np.testing.assert_array_equal(np.stack(labels.positives(), axis=1), np.argwhere(dense == POSITIVE))
    rows = data.draw(st.lists(st.integers(-len(dense), len(dense) - 1)))
    columns = data.draw(st.lists(st.integers(-dense.shape[1], dense.shape[1] - 1)))
    chosen = data.draw(arrays(bool, len(dense)))
    keys = [
        np.array(rows, int),
        chosen,
        slice(1, None),
        slice(None),
        (slice(None), 0),
        (slice(None), np.array(columns, int)),
        (slice(1, 3), slice(0, 2)),
        (0, slice(None)),
        np.ix_(np.array(rows, int), np.array(columns, int)),
        (np.array(rows[: len(columns)], int), np.array(columns[: len(rows)], int)),
    ]
    for key in keys:
        np.testing.assert_array_equal(labels[key], dense[key])
        assert labels[key].dtype == np.int8
    for row in rows:
        np.testing.assert_array_equal(labels[row], dense[row])
        for column in columns:
            assert labels[row, column] == dense[row, column]
    for rows_taken in (np.array(rows, int), chosen):
        assert labels.take(rows_taken).shape == dense[rows_taken].shape
        np.testing.assert_array_equal(labels.take(rows_taken), dense[rows_taken])


@given(dense=matrices, data=st.data())
def test_changes_make_another_one(dense, data):
    labels = LabelMatrix.of(dense)
    cells = st.tuples(
        st.integers(0, len(dense) - 1),
        st.integers(0, dense.shape[1] - 1),
        st.sampled_from((POSITIVE, NEGATIVE, UNKNOWN)),
    )
    changes = data.draw(st.lists(cells))
    rows, columns, values = (np.array([each[i] for each in changes], int) for i in range(3))
    expected = dense.copy()
    for row, column, value in changes:
        expected[row, column] = value
    changed = labels.with_entries(rows, columns, values)
    np.testing.assert_array_equal(changed, expected)
    np.testing.assert_array_equal(labels, dense)

    chosen = np.unique(rows)
    other = data.draw(arrays(np.int8, (len(chosen), dense.shape[1]), elements=st.sampled_from((1, 0, -1))))
    if len(chosen):
        expected = dense.copy()
        expected[chosen] = other
        np.testing.assert_array_equal(labels.with_rows(chosen, LabelMatrix.of(other)), expected)
    expected = dense.copy()
    expected[chosen] = np.maximum(expected[chosen], NEGATIVE)
    if len(chosen):
        np.testing.assert_array_equal(labels.with_unknown_negative(chosen), expected)
    more = np.hstack([dense, np.full((len(dense), 2), UNKNOWN)])
    np.testing.assert_array_equal(labels.with_classes(2), more)
    np.testing.assert_array_equal(LabelMatrix.stacked([labels, labels]), np.vstack([dense, dense]))
    order = data.draw(st.permutations(range(dense.shape[1])))[: data.draw(st.integers(1, dense.shape[1]))]
    assert labels.of_classes(order).same_as(LabelMatrix.of(dense[:, order]))


@given(dense=matrices, complete=st.booleans(), data=st.data())
def test_equal_labels_are_kept_alike_however_they_came(dense, complete, data):
    labels = LabelMatrix.of(dense)
    most = NEGATIVE if complete else UNKNOWN
    rows, columns = np.nonzero(dense != most)
    order = np.array(data.draw(st.permutations(range(len(rows)))), int)
    built = LabelMatrix.from_entries(
        dense.shape, rows[order], columns[order], dense[rows, columns][order], complete=complete
    )
    assert built.same_as(labels)
    assert labels.same_as(built)
    assert fingerprint(built) == fingerprint(labels) == hashlib.sha256(dense.tobytes()).hexdigest()
    other = dense.copy()
    other[0, 0] = POSITIVE if dense[0, 0] != POSITIVE else UNKNOWN
    assert not labels.same_as(LabelMatrix.of(other))


def test_large_ones_are_told_apart_by_their_entries(monkeypatch: pytest.MonkeyPatch):
    labels = LabelMatrix.of([[1, -1], [-1, 1]])
    monkeypatch.setattr(label_matrix, "_MOST_DENSE", 8)
    assert fingerprint(labels) == fingerprint(LabelMatrix.of([[1, -1], [-1, 1]]))
    assert fingerprint(labels) != fingerprint(LabelMatrix.of([[1, -1], [1, -1]]))
    monkeypatch.setattr(label_matrix, "_MOST_DENSE", 3)
    with pytest.raises(UserError, match="of 2 images and 2 classes in one piece"):
        np.asarray(labels)
    assert labels[[1]].tolist() == [[-1, 1]]


def fingerprint(labels: LabelMatrix) -> str:
    digest = hashlib.sha256()
    labels.update(digest)
    return digest.hexdigest()


def test_memory_grows_with_what_is_known():
    rows = np.repeat(np.arange(2_000), 8)
    columns = np.tile(np.arange(8) * 2_000, 2_000)
    few = LabelMatrix.from_entries((2_000, 20_000), rows, columns, POSITIVE)
    # 9 M rows of 20 k classes by the same count take less than 1.5 GB
    assert few.nbytes / 2_000 * 9_000_000 < 1.5e9
    full = LabelMatrix.from_entries((2_000, 20_000), rows, columns, POSITIVE, complete=True)
    assert full.nbytes == few.nbytes
    assert full.count(NEGATIVE).sum() == 2_000 * 20_000 - len(rows)


@pytest.mark.parametrize(
    ("rows", "columns", "values", "message"),
    [
        ([0], [3], 1, "outside of the 3 columns"),
        ([-1], [0], 1, "outside of the 2 rows"),
        ([0], [0, 1], 1, "one row and one column each"),
        ([0], [0], 2, "a label is 1"),
    ],
)
def test_entries_that_are_none_are_refused(rows, columns, values, message):
    with pytest.raises(ValueError, match=message):
        LabelMatrix.from_entries((2, 3), rows, columns, values)


@pytest.mark.parametrize(
    ("entries", "sentence"),
    [
        (([0], [0], [257]), "a label is 1"),
        (([0], [0], [0.9]), "a label is 1"),
        (([0.9], [0], 1), "the row of an entry must be a whole number"),
        (([0], [0.5], 1), "the column of an entry must be a whole number"),
    ],
)
def test_entries_are_checked_before_they_are_rounded(entries, sentence):
    with pytest.raises(ValueError, match=sentence):
        LabelMatrix.from_entries((2, 1), *entries)
    with pytest.raises(ValueError, match=sentence):
        LabelMatrix.of([[1], [0]]).with_entries(*entries)


def test_a_class_is_chosen_once():
    with pytest.raises(ValueError, match="once only"):
        LabelMatrix.of([[1, 0, -1]]).of_classes([0, 0])
