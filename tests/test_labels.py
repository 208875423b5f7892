import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from onepair import NEGATIVE, POSITIVE, UNKNOWN, observe_fraction, observe_positives, split_validation, validate_labels
from onepair.labels import observe_preferred, split_stratified

shapes = st.tuples(st.integers(1, 12), st.integers(1, 12))
full_labels = shapes.flatmap(lambda shape: arrays(np.int8, shape, elements=st.integers(0, 1)))
any_labels = shapes.flatmap(lambda shape: arrays(np.int8, shape, elements=st.integers(-1, 1)))


def published_single_positives(full, seed=1200):
    """The published process, written out with lists: each row's positives and its negatives are both shuffled."""
    random = np.random.RandomState(seed)
    observed = [[UNKNOWN] * len(row) for row in full]
    for row, observed_row in zip(full.tolist(), observed, strict=True):
        positives = [i for i, label in enumerate(row) if label == POSITIVE]
        negatives = [i for i, label in enumerate(row) if label == NEGATIVE]
        random.shuffle(positives)
        if positives:
            observed_row[positives[0]] = POSITIVE
        random.shuffle(negatives)
    return np.array(observed, dtype=np.int8)


@given(full_labels)
def test_single_positives_follow_the_published_stream(full):
    np.testing.assert_array_equal(observe_positives(full), published_single_positives(full))


@given(full_labels, st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_observed_positives_are_positives_and_as_many_as_asked(full, per_sample, seed):
    before = full.copy()
    observed = observe_positives(full, per_sample=per_sample, seed=seed)
    assert observed.dtype == np.int8
    assert set(np.unique(observed)) <= {POSITIVE, UNKNOWN}
    assert (full[observed == POSITIVE] == POSITIVE).all()
    np.testing.assert_array_equal((observed == POSITIVE).sum(1), np.minimum(full.sum(1), per_sample))
    np.testing.assert_array_equal(full, before)


def test_kept_positives_are_uniform():
    observed = observe_positives(np.ones((6000, 3), np.int8), seed=0)
    np.testing.assert_allclose((observed == POSITIVE).mean(0), 1 / 3, atol=0.03)


@given(full_labels, st.floats(0, 1), st.integers(0, 2**32 - 1))
def test_observed_fraction_is_exact_and_true(full, known, seed):
    observed = observe_fraction(full, known=known, seed=seed)
    kept = observed != UNKNOWN
    assert kept.sum() == round(known * full.size)
    np.testing.assert_array_equal(observed[kept], full[kept])
    np.testing.assert_array_equal(observed, observe_fraction(full, known=known, seed=seed))


def test_observed_fraction_is_spread_over_the_matrix():
    kept = observe_fraction(np.zeros((1000, 20), np.int8), known=0.3, seed=0) != UNKNOWN
    np.testing.assert_allclose(kept.mean(0), 0.3, atol=0.06)


@given(st.integers(5, 2000), st.integers(0, 2**32 - 1))
def test_split_is_a_sorted_partition(n, seed):
    train, validation = split_validation(n, seed=seed)
    assert len(validation) == round(0.2 * n)
    np.testing.assert_array_equal(np.sort(np.concatenate([train, validation])), np.arange(n))
    assert (np.diff(train) > 0).all()
    assert (np.diff(validation) > 0).all()


def test_split_takes_the_end_of_the_published_permutation():
    order = np.random.RandomState(1200).permutation(50)
    train, validation = split_validation(50)
    assert set(train) == set(order[:40])
    assert set(validation) == set(order[40:])


@pytest.mark.parametrize(("n", "train", "validation"), [(5717, 4574, 1143), (82081, 65665, 16416), (5994, 4795, 1199)])
def test_split_sizes_of_the_published_datasets(n, train, validation):
    assert tuple(map(len, split_validation(n))) == (train, validation)


@given(any_labels)
def test_valid_labels_pass_unchanged_in_any_dtype(labels):
    assert validate_labels(labels) is labels
    for dtype in (np.int64, np.float32, np.float16):
        converted = validate_labels(labels.astype(dtype))
        assert converted.dtype == np.int8
        np.testing.assert_array_equal(converted, labels)
    np.testing.assert_array_equal(validate_labels(labels == POSITIVE), labels == POSITIVE)
    np.testing.assert_array_equal(validate_labels(np.where(labels == UNKNOWN, np.nan, labels)), labels)


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        ([[0, 1], [2, 0]], "row 1, column 0 holds 2"),
        ([[0, 1, -2]], "row 0, column 2 holds -2"),
        ([[0.0, 0.5]], "row 0, column 1 holds 0.5"),
        ([[0.0, np.inf]], "row 0, column 1 holds inf"),
        ([[0, 257]], "row 0, column 1 holds 257"),
        ([0, 1], r"got shape \(2,\)"),
        (np.zeros((0, 3)), r"got shape \(0, 3\)"),
        (np.zeros((3, 0)), r"got shape \(3, 0\)"),
        ([["yes", "no"]], "matrix of numbers"),
    ],
)
def test_bad_labels_are_refused(labels, sentence):
    with pytest.raises(ValueError, match=sentence):
        validate_labels(labels)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: observe_positives([[1, -1]]), "row 0, column 1 is unknown; hiding labels needs all of them known"),
        (lambda: observe_fraction([[-1, 0]], known=0.5), "row 0, column 0 is unknown"),
        (lambda: observe_positives([[1, 0]], per_sample=0), "per_sample must be at least 1, got 0"),
        (lambda: observe_fraction([[1, 0]], known=1.5), "known must be a fraction between 0 and 1, got 1.5"),
        (lambda: split_validation(1), "a fraction of 0.2 of 1 row leaves training or validation empty"),
        (lambda: split_validation(10, fraction=1.0), "leaves training or validation empty"),
        (lambda: split_validation(10, fraction=float("nan")), "leaves training or validation empty"),
    ],
)
def test_bad_arguments_are_refused(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


@pytest.mark.parametrize("seed", range(5))
def test_a_stratified_split_deals_out_every_class(seed):
    random = np.random.default_rng(seed)
    shares = 10.0 ** -random.uniform(0.3, 3, size=30)
    labels = np.where(random.random((1000, 30)) < shares, 1, random.choice([0, -1], (1000, 30))).astype(np.int8)
    train, validation = split_stratified(labels, fraction=0.2, seed=seed)
    assert len(validation) == 200
    np.testing.assert_array_equal(np.sort(np.concatenate([train, validation])), np.arange(1000))
    positives, held_out = (labels == 1).sum(0), (labels[validation] == 1).sum(0)
    assert (held_out[positives <= 2] == 0).all()
    assert (held_out[positives >= 5] > 0).all()
    assert (np.abs(held_out - 0.2 * positives) <= 1.5 + 0.1 * positives).all()
    np.testing.assert_array_equal(split_stratified(labels, seed=seed)[1], validation)
    assert set(split_stratified(labels, seed=seed + 1)[1]) != set(validation)


@pytest.mark.parametrize("seed", range(5))
def test_where_all_classes_are_rare_one_positive_goes_to_validation(seed):
    labels = np.full((10, 3), -1)
    labels[[0, 1, 2], [0, 0, 1]] = 1
    train, validation = split_stratified(labels, fraction=0.2, seed=seed)
    assert (len(train), len(validation)) == (8, 2)
    assert sorted({*train, *validation}) == list(range(10))
    assert (labels[validation] == 1).sum(0).tolist() == [1, 0, 0]
    labels[1:] = -1
    assert (labels[split_stratified(labels, seed=seed)[0]] == 1).any()  # what alone can be learned from stays


def test_a_stratified_split_without_positives_is_a_random_one():
    train, validation = split_stratified(np.full((10, 3), -1), fraction=0.3)
    assert (len(train), len(validation)) == (7, 3)
    with pytest.raises(ValueError, match="leaves training or validation empty"):
        split_stratified([[1, 0]], fraction=0.2)


def test_of_two_positives_one_goes_to_validation():
    labels = np.full((10, 2), -1)
    labels[[3, 7], 0] = 1
    train, validation = split_stratified(labels, fraction=0.2)
    assert [(labels[part] == 1).sum() for part in (train, validation)] == [1, 1]


@pytest.mark.parametrize("seed", range(5))
def test_where_positives_are_in_validation_nothing_changes_places(seed):
    labels = np.full((50, 1), -1)
    labels[:10] = 1
    train, validation = split_stratified(labels, fraction=0.2, seed=seed)
    assert [(labels[part] == 1).sum() for part in (train, validation)] == [8, 2]
    assert (len(train), len(validation)) == (40, 10)


def test_a_class_that_all_rows_have_beside_one_that_none_has():
    train, validation = split_stratified([[1, 0]] * 10, fraction=0.2)
    assert (len(train), len(validation)) == (8, 2)


def test_a_small_fraction_of_few_rows_is_one():
    assert [len(part) for part in split_stratified([[1, 0]] * 4, fraction=0.1)] == [3, 1]


def test_the_preferred_positive_is_kept():
    full = np.array([[1, 1, 0], [0, 1, 1], [0, 0, 0], [1, 0, 1]], np.int8)
    by_class = observe_preferred(full, [0.2, 0.1, 0.2])
    np.testing.assert_array_equal(by_class, [[1, -1, -1], [-1, -1, 1], [-1, -1, -1], [1, -1, -1]])
    by_cell = observe_preferred(full, [[0, 1, 9], [0, 2, 1], [1, 1, 1], [-2, 5, -1]])
    np.testing.assert_array_equal(by_cell, [[-1, 1, -1], [-1, 1, -1], [-1, -1, -1], [-1, -1, 1]])
    with pytest.raises(ValueError, match="row 0, column 1 is unknown"):
        observe_preferred([[1, -1]], [1, 1])


def test_whatever_the_preferences_a_positive_is_kept():
    never = observe_preferred([[0, 1, 1], [1, 0, 0]], [0.0, -np.inf, -np.inf])
    assert never.tolist() == [[-1, 1, -1], [1, -1, -1]]
    assert observe_preferred([[1, 1]], [-np.inf, np.inf]).tolist() == [[-1, 1]]
    with pytest.raises(ValueError, match=r"must have the shape \(1, 3\) or \(3,\), got \(2, 3\)"):
        observe_preferred([[0, 1, 1]], [[1, 2, 3], [1, 2, 3]])
    with pytest.raises(ValueError, match="holds NaN"):
        observe_preferred([[0, 1, 1]], [1, np.nan, 3])
