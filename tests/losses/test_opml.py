import math

import pytest
import torch

from onepair.losses import OPMLLoss, opml_loss
from onepair.numerics import masked_logsumexp
from tests.losses.batches import counts_as, random_batch


def slow_opml(logits, labels, alpha, beta, unknown):
    """Eq. 7, label by label."""
    rows = []
    for scores, row in zip(logits.tolist(), labels.tolist(), strict=True):
        positives = negatives = 0.0
        for score, label in zip(scores, row, strict=True):
            meaning = counts_as(label, unknown)
            positives += math.exp(-score) if meaning == "positive" else 0
            negatives += math.exp(score) if meaning == "negative" else 0
        rows.append(math.log(alpha / (1 - alpha) + positives) + math.log(beta / (1 - beta) + negatives))
    return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.parametrize("unknown", ["negative", "ignore"])
@pytest.mark.parametrize(("alpha", "beta"), [(0.6, 0.4), (0.9, 0.5), (0.01, 0.99)])
def test_equals_the_equation(alpha, beta, unknown):
    logits, labels = random_batch(rows=20, classes=8)
    per_row = opml_loss(logits, labels, alpha=alpha, beta=beta, unknown=unknown, reduction="none")
    torch.testing.assert_close(per_row.detach(), slow_opml(logits, labels, alpha, beta, unknown))


def test_closed_form():
    """One positive and three unknown labels at score 0: log(α + 1) + log(β + 3)."""
    value = opml_loss(torch.zeros(1, 4), torch.tensor([[1, -1, -1, -1]]), alpha=0.75, beta=0.5)
    assert value.item() == pytest.approx(math.log(3 + 1) + math.log(1 + 3))


def test_gradient_of_the_paper():
    logits, labels = random_batch()
    alpha, beta = 0.6 / 0.4, 0.4 / 0.6
    opml_loss(logits, labels, alpha=0.6, beta=0.4, reduction="sum").backward()
    positive = labels == 1
    scores = logits.detach()
    toward_positive = torch.exp(-scores) * positive
    toward_negative = torch.exp(scores) * ~positive
    expected = toward_negative / (beta + toward_negative.sum(1, keepdim=True)) - toward_positive / (
        alpha + toward_positive.sum(1, keepdim=True)
    )
    torch.testing.assert_close(logits.grad, expected)


def test_equals_its_composition_of_masked_logsumexp():
    for scale in (1.0, 1e3):
        logits, labels = random_batch(rows=50, classes=30, scale=scale)
        positive = (labels == 1).double()
        composed = masked_logsumexp(-logits, positive, constant=1.5) + masked_logsumexp(
            logits, 1 - positive, constant=0.25
        )
        value = opml_loss(logits, labels, alpha=0.6, beta=0.2, reduction="none")
        torch.testing.assert_close(value, composed)
        torch.testing.assert_close(*(torch.autograd.grad(loss.sum(), logits)[0] for loss in (value, composed)))


def test_blocks_of_rows_change_nothing(monkeypatch):
    logits, labels = random_batch(rows=11, classes=6)
    whole = opml_loss(logits, labels, reduction="none")
    (gradient,) = torch.autograd.grad(whole.sum(), logits)
    for cells in (1, 13, 60):  # one row a block, two rows, ten
        monkeypatch.setattr("onepair.losses.opml._CELLS_PER_BLOCK", cells)
        blocked = opml_loss(logits, labels, reduction="none")
        torch.testing.assert_close(blocked, whole, rtol=0, atol=1e-15)
        torch.testing.assert_close(torch.autograd.grad(blocked.sum(), logits)[0], gradient, rtol=0, atol=1e-15)


def test_pushes_only_the_closest_pair_when_scores_are_far_apart():
    logits = torch.tensor([[50.0, -20.0, 90.0, 30.0]], dtype=torch.float64, requires_grad=True)
    opml_loss(logits, torch.tensor([[1, 1, 0, 0]])).backward()
    torch.testing.assert_close(logits.grad, torch.tensor([[0.0, -1.0, 1.0, 0.0]], dtype=torch.float64))


def test_rows_without_positives_or_negatives_keep_their_constants():
    value = opml_loss(torch.full((1, 3), 5.0), -torch.ones(1, 3), alpha=0.8, beta=0.2, unknown="ignore")
    assert value.item() == pytest.approx(math.log(4) + math.log(0.25))


def test_is_convex_in_the_scores():
    start, labels = random_batch(rows=200, seed=1)
    end, _ = random_batch(rows=200, seed=2)
    between = [opml_loss(torch.lerp(start, end, t), labels, reduction="none") for t in (0.0, 0.5, 1.0)]
    assert (between[1] <= (between[0] + between[2]) / 2 + 1e-12).all()


def test_second_derivative_is_right():
    logits, labels = random_batch()
    for unknown in ("negative", "ignore"):
        assert torch.autograd.gradgradcheck(
            lambda s, unknown=unknown: opml_loss(s, labels, unknown=unknown, reduction="none"), logits
        )


def test_repeated_backward_gives_the_same_gradient():
    logits, labels = random_batch()
    value = opml_loss(logits, labels)
    first, second = (torch.autograd.grad(value, logits, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second)


def test_training_separates_positives_from_negatives():
    torch.manual_seed(0)
    features = torch.randn(64, 10)
    labels = (features @ torch.randn(10, 4) > 0).to(torch.int8)
    model = torch.nn.Linear(10, 4)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.1)
    loss = OPMLLoss(alpha=0.5, beta=0.5)
    for _ in range(200):
        optimiser.zero_grad()
        loss(model(features), labels).backward()
        optimiser.step()
    assert ((model(features) > 0) == labels.bool()).float().mean() > 0.98
