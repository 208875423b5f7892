import math

import pytest
import torch
from sklearn.metrics import log_loss

from onepair.losses import bce_loss
from tests.losses.batches import counts_as, random_batch


def slow_bce(logits, labels, *, smoothing=0.0, smooth_positives=True, negative_weight=1.0, unknown="negative"):
    """The definition, label by label, on probabilities."""
    rows = []
    for scores, row in zip(logits.tolist(), labels.tolist(), strict=True):
        total = 0.0
        for score, label in zip(scores, row, strict=True):
            probability = 1 / (1 + math.exp(-score))
            meaning = counts_as(label, unknown)
            if meaning == "positive":
                target, weight = (1 - smoothing if smooth_positives else 1), 1
            elif meaning == "negative":
                target, weight = smoothing, negative_weight
            else:
                continue
            total -= weight * (target * math.log(probability) + (1 - target) * math.log(1 - probability))
        rows.append(total / len(row))
    return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.parametrize("unknown", ["negative", "ignore"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"negative_weight": 1 / 19},
        {"smoothing": 0.1},
        {"smoothing": 0.1, "smooth_positives": False},
        {"smoothing": 0.3, "negative_weight": 0.5},
    ],
    ids=["AN", "DW", "LS", "N-LS", "LS+DW"],
)
def test_equals_the_definition(options, unknown):
    logits, labels = random_batch(rows=20, classes=8)
    per_row = bce_loss(logits, labels, **options, unknown=unknown, reduction="none")
    torch.testing.assert_close(per_row.detach(), slow_bce(logits, labels, **options, unknown=unknown))


def test_equals_scikit_learn_on_full_labels():
    logits, labels = random_batch(rows=30, classes=7)
    full = labels.clamp(min=0)
    probabilities = logits.detach().sigmoid()
    expected = log_loss(full.flatten().numpy(), probabilities.flatten().numpy())
    assert bce_loss(logits, full).item() == pytest.approx(expected, rel=1e-12)


def test_closed_form():
    assert bce_loss(torch.zeros(3, 4), torch.ones(3, 4)).item() == pytest.approx(math.log(2))


def test_is_exact_far_from_zero():
    """log-sigmoid of logits: the loss of a label missed by 100 is 100, not log(1e-5)."""
    assert bce_loss(torch.tensor([[-100.0]]), torch.tensor([[1]])).item() == pytest.approx(100.0)
