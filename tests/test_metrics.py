import numpy as np
import pytest
import sklearn.metrics
import torch
from hypothesis import given
from hypothesis import strategies as st

from onepair import average_precision, mean_average_precision
from onepair.metrics import coverage, precision_recall_f1, ranking_loss, top_k

SIZES = st.tuples(st.integers(1, 40), st.integers(1, 6), st.integers(0, 2**32 - 1))


def random_problem(rows, classes, seed, *, levels=None, unknown=True):
    """Scores, tied heavily where they have few `levels`, and labels of all kinds."""
    random = np.random.default_rng(seed)
    scores = random.normal(size=(rows, classes))
    if levels:
        scores = np.floor(scores * levels) / levels
    return scores, random.integers(-1 if unknown else 0, 2, (rows, classes)).astype(np.int8)


def sklearn_by_class(scores, labels):
    """scikit-learn on the known cells of each class that has a positive."""
    expected = np.full(labels.shape[1], np.nan)
    for column, (class_scores, class_labels) in enumerate(zip(scores.T, labels.T, strict=True)):
        known = class_labels != -1
        if (class_labels == 1).any():
            expected[column] = sklearn.metrics.average_precision_score(class_labels[known], class_scores[known])
    return expected


@given(SIZES, st.sampled_from([None, 1, 3]), st.booleans())
def test_average_precision_equals_scikit_learn(size, levels, unknown):
    scores, labels = random_problem(*size, levels=levels, unknown=unknown)
    np.testing.assert_allclose(
        average_precision(scores, labels), sklearn_by_class(scores, labels), rtol=1e-12, atol=1e-12
    )


def test_average_precision_with_all_scores_equal_is_the_share_of_positives():
    labels = np.array([[1, 0], [0, 0], [1, 1], [0, 0]])
    np.testing.assert_array_equal(average_precision(np.zeros((4, 2)), labels), [0.5, 0.25])


def test_average_precision_of_large_tied_data():
    scores, labels = random_problem(5000, 4, 0, levels=10)
    np.testing.assert_allclose(average_precision(scores, labels), sklearn_by_class(scores, labels), rtol=1e-12)


@given(SIZES)
def test_average_precision_depends_on_the_order_only(size):
    scores, labels = random_problem(*size)
    order = np.random.default_rng(0).permutation(len(scores))
    np.testing.assert_allclose(average_precision(scores[order], labels[order]), average_precision(scores, labels))
    np.testing.assert_allclose(average_precision(np.tanh(scores / 9), labels), average_precision(scores, labels))


def test_infinite_scores_are_ranked():
    scores = np.array([[np.inf], [-np.inf], [0.0]])
    assert average_precision(scores, [[1], [0], [1]]) == [1.0]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_torch_tensors_of_any_float_dtype(dtype):
    scores, labels = random_problem(30, 3, 0)
    tensor = torch.tensor(scores).to(dtype).requires_grad_()
    expected = average_precision(tensor.detach().double().numpy(), labels)
    np.testing.assert_array_equal(average_precision(tensor, torch.tensor(labels)), expected)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int8, np.uint8])
def test_numpy_arrays_of_any_number_dtype(dtype):
    scores = np.array([[3, 0], [1, 2], [2, 2]], dtype)
    labels = np.array([[1, 0], [0, 1], [1, 0]])
    np.testing.assert_array_equal(average_precision(scores, labels), [1.0, 0.5])
    assert top_k(scores, 1).tolist() == [[True, False], [False, True], [True, False]]
    assert ranking_loss(scores, labels) == pytest.approx(1 / 3)


def test_mean_average_precision_says_what_it_averaged():
    scores = np.array([[0.9, 0.1, 0.3], [0.8, 0.2, 0.4]])
    labels = np.array([[1, 0, 0], [0, -1, 1]])
    skipped = mean_average_precision(scores, labels)
    assert skipped == (1.0, 2)
    assert float(skipped) == 1.0
    assert mean_average_precision(scores, labels, empty="zero") == (pytest.approx(2 / 3), 3)


def test_mean_average_precision_equals_scikit_learn():
    scores, labels = random_problem(100, 7, 0, unknown=False)
    expected = sklearn.metrics.average_precision_score(labels, scores, average="macro")
    assert mean_average_precision(scores, labels).value == pytest.approx(expected, rel=1e-12)


@given(SIZES)
def test_precision_recall_f1_equal_scikit_learn(size):
    rows, classes, seed = size
    scores, labels = random_problem(rows, classes + 1, seed, unknown=False)  # one class is binary to scikit-learn
    predicted = scores > 0
    with_positives = labels.any(0)
    expected = sklearn.metrics.precision_recall_fscore_support(labels, predicted, average=None, zero_division=0)
    for ours, theirs in zip(precision_recall_f1(predicted, labels), expected[:3], strict=True):
        np.testing.assert_allclose(ours[with_positives], theirs[with_positives])
        assert np.isnan(ours[~with_positives]).all()
    if with_positives.any():
        pooled = sklearn.metrics.precision_recall_fscore_support(labels, predicted, average="micro", zero_division=0)
        np.testing.assert_allclose(precision_recall_f1(predicted, labels, average="overall"), pooled[:3])
        by_class = [values[with_positives].mean() for values in expected[:3]]
        np.testing.assert_allclose(precision_recall_f1(predicted, labels, average="class"), by_class)


def test_unknown_cells_are_neither_right_nor_wrong():
    predicted, labels = np.array([[1], [1], [0], [1]]), np.array([[1], [-1], [-1], [0]])
    assert precision_recall_f1(predicted, labels, average="overall") == pytest.approx((0.5, 1.0, 2 / 3))


def test_precision_at_k():
    scores = np.array([[0.9, 0.8, 0.1], [0.1, 0.2, 0.3]])
    labels = np.array([[1, 0, 1], [0, 1, 1]])
    at_2 = precision_recall_f1(top_k(scores, 2), labels, average="overall")
    assert at_2 == pytest.approx((3 / 4, 3 / 4, 3 / 4))
    assert (top_k(scores, 3)).all()
    assert top_k(np.array([[-128, 0, 127]], np.int8), 1).tolist() == [[False, False, True]]


def slow_ranking(scores, labels):
    """Pairs and positions, counted one by one."""
    losses, depths = [], []
    for row_scores, row in zip(scores, labels, strict=True):
        positives, negatives = row_scores[row == 1], row_scores[row == 0]
        if len(positives) and len(negatives):
            losses.append(np.mean([[p <= n for n in negatives] for p in positives]))
        if len(positives):
            depths.append(sum(score >= positives.min() for score in row_scores[row != -1]))
    return (np.mean(losses) if losses else np.nan), (np.mean(depths) if depths else np.nan)


@given(SIZES, st.sampled_from([None, 1]))
def test_ranking_loss_and_coverage_equal_their_definitions(size, levels):
    scores, labels = random_problem(*size, levels=levels)
    expected_loss, expected_coverage = slow_ranking(scores, labels)
    assert ranking_loss(scores, labels) == pytest.approx(expected_loss, nan_ok=True)
    assert coverage(scores, labels) == pytest.approx(expected_coverage, nan_ok=True)


def test_ranking_loss_and_coverage_equal_scikit_learn():
    scores, labels = random_problem(200, 9, 0, levels=2, unknown=False)
    labels[:, 0], labels[:, 1] = 1, 0  # scikit-learn counts rows without a pair as 0
    assert ranking_loss(scores, labels) == pytest.approx(sklearn.metrics.label_ranking_loss(labels, scores))
    assert coverage(scores, labels) == pytest.approx(sklearn.metrics.coverage_error(labels, scores))


ONE = np.ones((1, 2))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: average_precision([[0.1, np.nan]], ONE), "scores: row 0, column 1 is NaN"),
        (lambda: average_precision(ONE, [[1, 2]]), "labels: row 0, column 1 holds 2"),
        (lambda: average_precision(ONE, np.ones((2, 1))), r"one shape, got \(1, 2\) and \(2, 1\)"),
        (lambda: average_precision(np.ones((0, 2)), np.ones((0, 2))), "non-empty matrix"),
        (lambda: average_precision([0.1], [1]), "non-empty matrix"),
        (lambda: mean_average_precision(ONE, -ONE), "no class has a known positive"),
        (lambda: mean_average_precision(ONE, ONE, empty="nan"), "empty must be 'skip' or 'zero', got 'nan'"),
        (lambda: precision_recall_f1([[0.2, 1]], ONE), "predicted must hold decisions"),
        (lambda: precision_recall_f1(ONE, np.ones((2, 1))), "^predicted and labels must have one shape"),
        (lambda: precision_recall_f1(ONE, ONE, average="micro"), "average must be 'class', 'overall' or None"),
        (lambda: precision_recall_f1(ONE, -ONE, average="class"), "no class has a known positive"),
        (lambda: top_k(ONE, 3), "k must be between 1 and the 2 classes, got 3"),
    ],
)
def test_bad_input_is_refused(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


def test_single_positives_have_no_mean_average_precision():
    labels = np.array([[1, -1], [-1, 1]])
    with pytest.raises(ValueError, match=r"no class has a known negative.*labels\.clip\(0\)"):
        mean_average_precision(np.eye(2), labels)
    with pytest.raises(ValueError, match="no class has a known negative"):
        mean_average_precision(np.eye(2), np.ones((2, 2)))
    assert mean_average_precision(np.eye(2), labels.clip(0)) == (1.0, 2)


@pytest.mark.parametrize("empty", ["skip", "zero"])
def test_classes_without_a_known_negative_are_left_out_unless_all_is_known(empty):
    scores = np.array([[0.1, 0.2, 0.3], [0.2, 0.1, 0.4]])
    labels = np.array([[1, 1, 1], [0, -1, 1]])
    assert mean_average_precision(scores, labels, empty=empty) == (0.75, 2)
