import math

import pytest
import torch

from onepair.losses import high_rank_penalty


def random_probabilities(rows, classes):
    return torch.rand(rows, classes, dtype=torch.float64, generator=torch.Generator().manual_seed(rows))


@pytest.mark.parametrize(("rows", "classes"), [(8, 20), (16, 80), (8, 312), (128, 81), (20, 20), (1, 5), (5, 1)])
def test_equals_the_singular_values(rows, classes):
    probabilities = random_probabilities(rows, classes)
    expected = -(torch.linalg.svdvals(probabilities) ** 2 + 1e-6).log().sum()
    torch.testing.assert_close(high_rank_penalty(probabilities), expected)


def test_equals_eq_8_where_it_is_defined():
    """With more rows than labels, Yᵀ Y is regular and the paper's first form holds."""
    probabilities = random_probabilities(30, 4)
    expected = -torch.logdet(probabilities.T @ probabilities)
    torch.testing.assert_close(high_rank_penalty(probabilities, ridge=1e-12), expected)


def test_closed_form():
    """Two orthogonal rows of length ½."""
    assert high_rank_penalty(torch.eye(2, 5) / 2).item() == pytest.approx(-2 * math.log(0.25), abs=1e-4)


@pytest.mark.parametrize(("rows", "classes"), [(3, 5), (5, 3), (1, 4)])
def test_gradient_is_right(rows, classes):
    probabilities = random_probabilities(rows, classes).requires_grad_()
    assert torch.autograd.gradcheck(high_rank_penalty, probabilities)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "rows",
    [[[0.5] * 4] * 3, [[0.0] * 4] * 3, [[1.0] * 4] * 3, [[0.3, 0.7]], [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]],
    ids=["equal rows", "all zero", "all one", "one row", "repeated"],
)
def test_singular_batches_are_finite(rows, dtype):
    probabilities = torch.tensor(rows, dtype=dtype, requires_grad=True)
    value = high_rank_penalty(probabilities)
    value.backward()
    assert torch.isfinite(value)
    assert torch.isfinite(probabilities.grad).all()
    assert value.dtype == torch.promote_types(dtype, torch.float32)


def test_large_nearly_equal_batch_in_float32_agrees_with_double():
    probabilities = (0.5 + 1e-3 * random_probabilities(128, 81)).float()
    torch.testing.assert_close(
        high_rank_penalty(probabilities), high_rank_penalty(probabilities.double()).float(), rtol=1e-6, atol=0
    )


def test_autocast_does_not_lower_the_precision():
    probabilities = random_probabilities(16, 80).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = high_rank_penalty(probabilities)
    assert torch.equal(inside, high_rank_penalty(probabilities))


def test_permuting_rows_or_classes_changes_nothing():
    probabilities = random_probabilities(6, 9)
    torch.testing.assert_close(high_rank_penalty(probabilities.flip(0, 1)), high_rank_penalty(probabilities))


def test_compiles_into_one_graph():
    probabilities = random_probabilities(4, 9)
    compiled = torch.compile(high_rank_penalty, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(probabilities), high_rank_penalty(probabilities))


@pytest.mark.parametrize(
    ("probabilities", "sentence"),
    [
        (torch.tensor([[0.5, 1.5]]), r"between 0 and 1, got 0.5 to 1.5; pass sigmoid\(logits\)"),
        (torch.tensor([[0.5, float("nan")]]), "between 0 and 1"),
        (torch.zeros(2, 0), "must be a matrix"),
        (torch.zeros(3), "must be a matrix"),
        (torch.zeros(3, 3, dtype=torch.int64), "floating point"),
    ],
)
def test_bad_input_is_refused(probabilities, sentence):
    with pytest.raises(ValueError, match=sentence):
        high_rank_penalty(probabilities)
    with pytest.raises(ValueError, match="ridge must be above 0"):
        high_rank_penalty(torch.ones(2, 2), ridge=0.0)


def test_places_of_a_sequence_are_rows_and_none_cost_nothing():
    predictions = torch.rand(2, 3, 4, generator=torch.Generator().manual_seed(0))
    assert high_rank_penalty(predictions) == high_rank_penalty(predictions.view(6, 4))
    assert high_rank_penalty(torch.zeros(0, 4)) == 0
