import math

import pytest
import torch
from timm.loss import AsymmetricLossMultiLabel

from onepair.losses import asymmetric_loss, bce_loss
from tests.losses.batches import random_batch


@pytest.mark.parametrize("gamma_negative", [4.0, 1.0])
@pytest.mark.parametrize("gamma_positive", [1.0, 2.0])
@pytest.mark.parametrize("margin", [0.05, 0.3])
def test_equals_timm_on_full_labels(gamma_negative, gamma_positive, margin):
    logits, labels = random_batch(rows=30, classes=7)
    full = labels.clamp(min=0).double()
    theirs = AsymmetricLossMultiLabel(gamma_neg=gamma_negative, gamma_pos=gamma_positive, clip=margin)(logits, full)
    ours = asymmetric_loss(
        logits, full, gamma_negative=gamma_negative, gamma_positive=gamma_positive, margin=margin, reduction="mean"
    )
    torch.testing.assert_close(ours * full.numel(), theirs, rtol=1e-6, atol=0)
    torch.testing.assert_close(
        torch.autograd.grad(ours * full.numel(), logits)[0],
        torch.autograd.grad(theirs, logits)[0],
        rtol=1e-5,
        atol=1e-7,  # timm clamps its logarithms at 1e-8
    )


def test_closed_form():
    """A negative at score 0 with margin 0.1: 0.4² × -log 0.6."""
    value = asymmetric_loss(torch.zeros(1, 1), torch.zeros(1, 1), gamma_negative=2.0, margin=0.1)
    assert value.item() == pytest.approx(-0.16 * math.log(0.6))


def test_without_focus_and_margin_it_is_bce():
    logits, labels = random_batch()
    for unknown in ("negative", "ignore"):
        torch.testing.assert_close(
            asymmetric_loss(logits, labels, gamma_negative=0.0, margin=0.0, unknown=unknown),
            bce_loss(logits, labels, unknown=unknown),
        )


def test_without_margin_it_is_exact_far_from_zero():
    """Where a probability is 1 in every digit, its logarithm is not: the loss of a negative missed by 100 is 100."""
    value = asymmetric_loss(torch.tensor([[100.0]]), torch.tensor([[0]]), gamma_negative=2.0, margin=0.0)
    assert value.item() == pytest.approx(100.0)


@pytest.mark.parametrize("gamma", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("margin", [0.0, 0.05])
def test_easy_negatives_add_nothing_and_have_a_finite_gradient(gamma, margin):
    logits = torch.tensor([[-5.0 if margin else -500.0, -800.0]], requires_grad=True)
    value = asymmetric_loss(logits, torch.zeros(1, 2), gamma_negative=gamma, margin=margin)
    value.backward()
    assert value.item() == 0
    assert (logits.grad == 0).all()


def test_a_margin_that_rounding_swallows_leaves_everything_finite():
    logits = torch.tensor([[30.0, 0.0]], requires_grad=True)
    loss = asymmetric_loss(logits, torch.tensor([[0, 1]]), margin=1e-9)
    loss.backward()
    assert loss.isfinite()
    assert logits.grad.isfinite().all()
