import math

import pytest
import torch
from scipy.stats import entropy

from onepair.losses import bce_loss, entropy_maximization_loss
from onepair.losses.bce import binary_entropy
from tests.losses.batches import random_batch


def slow_entropy_maximization(logits, labels, entropy_weight):
    rows = []
    for scores, row in zip(logits.tolist(), labels.tolist(), strict=True):
        total = 0.0
        for score, label in zip(scores, row, strict=True):
            probability = 1 / (1 + math.exp(-score))
            if label == -1:
                total -= entropy_weight * float(entropy([probability, 1 - probability]))
            else:
                total -= math.log(probability if label == 1 else 1 - probability)
        rows.append(total / len(row))
    return torch.tensor(rows, dtype=torch.float64)


def test_equals_the_definition():
    logits, labels = random_batch(rows=20, classes=8)
    per_row = entropy_maximization_loss(logits, labels, entropy_weight=0.2, reduction="none")
    torch.testing.assert_close(per_row.detach(), slow_entropy_maximization(logits, labels, 0.2))


def test_gradient_is_right_and_pulls_unknown_labels_to_one_half():
    logits, labels = random_batch()
    assert torch.autograd.gradcheck(lambda s: entropy_maximization_loss(s, labels, reduction="none"), logits)
    entropy_maximization_loss(logits, labels).backward()
    unknown = labels == -1
    assert (torch.sign(logits.grad[unknown]) == torch.sign(logits[unknown])).all()


def test_closed_form():
    """Unknown labels at score 0 have entropy log 2."""
    value = entropy_maximization_loss(torch.zeros(2, 3), -torch.ones(2, 3), entropy_weight=0.5)
    assert value.item() == pytest.approx(-0.5 * math.log(2))


@pytest.mark.parametrize("unknown", ["negative", "ignore"])
def test_with_another_meaning_of_unknown_it_is_bce(unknown):
    logits, labels = random_batch()
    torch.testing.assert_close(
        entropy_maximization_loss(logits, labels, unknown=unknown), bce_loss(logits, labels, unknown=unknown)
    )


def test_entropy_keeps_its_digits_for_confident_predictions():
    score = torch.tensor([20.0, -20.0])
    probability = torch.sigmoid(torch.tensor(-20.0, dtype=torch.float64)).item()
    expected = -probability * math.log(probability) - (1 - probability) * math.log1p(-probability)
    torch.testing.assert_close(binary_entropy(score), torch.full((2,), expected), rtol=1e-6, atol=0)
