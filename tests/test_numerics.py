import math

import pytest
import torch

from onepair.numerics import logdet_gram, masked_logsumexp, widen


def random_values(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_masked_logsumexp_equals_torch():
    values = random_values(5, 7)
    mask = random_values(5, 7, seed=1) > 0
    appended = torch.cat([values.masked_fill(~mask, -math.inf), torch.full((5, 1), math.log(0.3))], dim=1)
    torch.testing.assert_close(masked_logsumexp(values, mask.double(), constant=0.3), appended.logsumexp(1))


def test_masked_logsumexp_gradients():
    values = random_values(3, 4).requires_grad_()
    weights = random_values(3, 4, seed=1).sigmoid().requires_grad_()
    assert torch.autograd.gradcheck(lambda v, w: masked_logsumexp(v, w, constant=0.5), (values, weights))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_masked_logsumexp_is_not_moved_by_masked_cells(dtype):
    values = torch.tensor([1e4, -1e4, 2.0], dtype=dtype, requires_grad=True)
    weights = torch.tensor([0.0, 0.0, 1.0], dtype=dtype, requires_grad=True)
    value = masked_logsumexp(values, weights, constant=1.0)
    value.backward()
    assert value.item() == pytest.approx(math.log(1 + math.exp(2)))
    torch.testing.assert_close(values.grad, torch.tensor([0, 0, math.exp(2) / (1 + math.exp(2))], dtype=dtype))
    assert torch.isfinite(weights.grad).all()


def test_masked_logsumexp_of_nothing_is_the_constant():
    values = torch.full((2, 3), 1e4, requires_grad=True)
    value = masked_logsumexp(values, torch.zeros(2, 3), constant=0.25)
    value.sum().backward()
    torch.testing.assert_close(value, torch.full((2,), math.log(0.25)))
    assert (values.grad == 0).all()


def test_masked_logsumexp_of_huge_values():
    value = masked_logsumexp(torch.tensor([1e4, 1e4]), torch.ones(2), constant=1.0)
    assert value.item() == pytest.approx(1e4 + math.log(2))


@pytest.mark.parametrize("shape", [(3, 8), (8, 3), (4, 4), (1, 1)])
def test_logdet_gram_equals_singular_values(shape):
    matrix = random_values(*shape)
    expected = (torch.linalg.svdvals(matrix) ** 2 + 1e-3).log().sum()
    torch.testing.assert_close(logdet_gram(matrix, ridge=1e-3), expected)


@pytest.mark.parametrize("shape", [(3, 8), (8, 3), (4, 4)])
def test_logdet_gram_has_the_gradient_of_the_singular_values_and_one_of_that(shape):
    matrix = random_values(*shape).requires_grad_()
    expected = (torch.linalg.svdvals(matrix) ** 2 + 1e-3).log().sum()
    found = logdet_gram(matrix, ridge=1e-3)
    torch.testing.assert_close(*(torch.autograd.grad(each, matrix)[0] for each in (found, expected)))
    assert torch.autograd.gradgradcheck(lambda each: logdet_gram(each, ridge=1e-2), (matrix,))


def test_widen_keeps_gradients_finite():
    narrow = torch.tensor([2.0, 3.0], dtype=torch.float16, requires_grad=True)
    wide = widen(narrow, torch.float32)
    assert wide.dtype == torch.float32
    (wide * torch.tensor([5.0, -1e30])).sum().backward()
    assert narrow.grad.tolist() == [5.0, -65504.0]
