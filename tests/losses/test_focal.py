import math

import pytest
import torch
from torchvision.ops import sigmoid_focal_loss

from onepair.losses import bce_loss, focal_loss
from tests.losses.batches import random_batch


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0, 5.0])
@pytest.mark.parametrize("alpha", [0.25, 0.9, None])
def test_equals_torchvision_on_full_labels(gamma, alpha):
    logits, labels = random_batch(rows=30, classes=7)
    full = labels.clamp(min=0).double()
    theirs = -1 if alpha is None else alpha
    expected = sigmoid_focal_loss(logits, full, alpha=theirs, gamma=gamma, reduction="none")
    torch.testing.assert_close(
        focal_loss(logits, full, gamma=gamma, alpha=alpha, reduction="none"), expected.mean(dim=1)
    )


def test_ignores_unknown_labels():
    logits, labels = random_batch()
    known = (labels != -1).double()
    expected = sigmoid_focal_loss(logits, labels.clamp(min=0).double()) * known
    torch.testing.assert_close(focal_loss(logits, labels, unknown="ignore"), expected.mean())


def test_closed_form():
    """A positive at score 0: (1/2)^γ log 2."""
    value = focal_loss(torch.zeros(1, 1), torch.ones(1, 1), gamma=3.0, alpha=None)
    assert value.item() == pytest.approx(math.log(2) / 8)


def test_without_focus_it_is_bce():
    logits, labels = random_batch()
    torch.testing.assert_close(focal_loss(logits, labels, gamma=0.0, alpha=None), bce_loss(logits, labels))
    torch.testing.assert_close(2 * focal_loss(logits, labels, gamma=0.0, alpha=0.5), bce_loss(logits, labels))


@pytest.mark.parametrize("gamma", [0.3, 1.0, 2.0])
def test_saturated_labels_have_a_finite_gradient(gamma):
    logits = torch.tensor([[200.0, -200.0]], requires_grad=True)
    focal_loss(logits, torch.tensor([[1, 0]]), gamma=gamma).backward()
    assert (logits.grad == 0).all()
