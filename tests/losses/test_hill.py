import math

import pytest
import torch

from onepair.losses import hill_loss
from tests.losses.batches import counts_as, random_batch


def slow_hill(logits, labels, gamma, margin, turn, unknown):
    rows = []
    for scores, row in zip(logits.tolist(), labels.tolist(), strict=True):
        total = 0.0
        for score, label in zip(scores, row, strict=True):
            shifted, p = 1 / (1 + math.exp(margin - score)), 1 / (1 + math.exp(-score))
            total += {
                "positive": -((1 - shifted) ** gamma) * math.log(shifted),
                "negative": (turn - p) * p**2,
                "ignore": 0.0,
            }[counts_as(label, unknown)]
        rows.append(total / len(row))
    return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.parametrize("unknown", ["negative", "ignore"])
@pytest.mark.parametrize("options", [{}, {"gamma": 0.5, "margin": 0.0, "turn": 2.0}])
def test_equals_the_definition(options, unknown):
    logits, labels = random_batch(rows=20, classes=8)
    expected = slow_hill(logits, labels, **{"gamma": 2.0, "margin": 1.0, "turn": 1.5, **options}, unknown=unknown)
    torch.testing.assert_close(
        hill_loss(logits, labels, **options, unknown=unknown, reduction="none").detach(), expected
    )


def test_a_negative_of_high_probability_is_hardly_pushed():
    logits = torch.tensor([[-4.0, 0.0, 4.0]], dtype=torch.float64, requires_grad=True)
    hill_loss(logits, torch.zeros(1, 3), reduction="sum").backward()
    p = logits.detach().sigmoid()
    torch.testing.assert_close(logits.grad, 3 * p**2 * (1 - p) ** 2 / 3)
    assert logits.grad.argmax() == 1
