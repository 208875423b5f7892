import math

import pytest
import torch

from onepair.losses import SoftOPMLLoss, opml_loss, soft_opml_loss
from tests.losses.batches import random_batch


@pytest.fixture(autouse=True, params=["few", "many"])
def way(request, monkeypatch):
    """Many cells are computed in a shorter way; here all are, too."""
    if request.param != "few":
        monkeypatch.setattr("onepair.losses.opml._MANY", 0)


def slow_soft_opml(logits, labels, gamma, alpha, beta, unknown):
    """Eq. 9, label by label."""
    alpha, beta = alpha / (1 - alpha), beta / (1 - beta)
    rows = []
    for scores, row, shares in zip(logits.tolist(), labels.tolist(), gamma.tolist(), strict=True):
        positives = soft_positives = negatives = 0.0
        for score, label, share in zip(scores, row, shares, strict=True):
            if label == 1:
                positives += math.exp(-score)
            elif label == 0:
                negatives += math.exp(score)
            elif unknown == "negative":
                soft_positives += share * math.exp(-score)
                negatives += (1 - share) * math.exp(score)
        rows.append(math.log(alpha + positives) + math.log(alpha + soft_positives) + math.log(beta + negatives))
    return torch.tensor(rows, dtype=torch.float64)


def random_gamma(like, *, seed=3):
    return torch.rand(like.shape, dtype=like.dtype, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("unknown", ["negative", "ignore"])
def test_equals_the_equation(unknown):
    logits, labels = random_batch(rows=20, classes=8)
    gamma = random_gamma(logits)
    per_row = soft_opml_loss(logits, labels, gamma=gamma, alpha=0.4, beta=0.5, unknown=unknown, reduction="none")
    torch.testing.assert_close(per_row.detach(), slow_soft_opml(logits, labels, gamma, 0.4, 0.5, unknown))


def test_closed_form():
    """One positive, two unknown labels with γ = ½, all at score 0: 2 log(α + 1) + log(β + 1)."""
    value = soft_opml_loss(
        torch.zeros(1, 3), torch.tensor([[1, -1, -1]]), gamma=torch.full((1, 3), 0.5), alpha=0.75, beta=0.5
    )
    assert value.item() == pytest.approx(2 * math.log(4) + math.log(2))


def test_without_smoothing_it_is_opml_plus_log_alpha():
    logits, labels = random_batch()
    value = soft_opml_loss(logits, labels, gamma=torch.zeros_like(logits), alpha=0.6, beta=0.4)
    expected = opml_loss(logits, labels, alpha=0.6, beta=0.4) + math.log(1.5)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(*(torch.autograd.grad(loss, logits)[0] for loss in (value, expected)))


def test_gradient_with_respect_to_gamma_also_where_it_is_zero_or_one():
    logits, labels = random_batch()
    gamma = random_gamma(logits)
    assert torch.autograd.gradcheck(
        lambda s, g: soft_opml_loss(s, labels, gamma=g, reduction="none"), (logits, gamma.requires_grad_())
    )
    for edge in (0.0, 1.0):
        gamma = torch.full_like(logits, edge, requires_grad=True)
        soft_opml_loss(logits, labels, gamma=gamma, reduction="sum").backward()
        inward = 1e-6 * (1 - 2 * edge)
        moved = soft_opml_loss(logits, labels, gamma=gamma.detach() + inward, reduction="sum")
        still = soft_opml_loss(logits, labels, gamma=gamma.detach(), reduction="sum")
        assert ((moved - still) / inward).item() == pytest.approx(gamma.grad.sum().item(), rel=1e-3)


@pytest.mark.parametrize("unknown", ["negative", "ignore"])
def test_ordinary_logits_have_the_values_and_gradients_of_shifted_ones(unknown):
    """One logit out of the ordinary, in a row of its own, sends the whole batch the longer way."""
    logits, labels = random_batch(rows=20, classes=8)
    found = []
    for last in (40.0, 41.0):
        scores = torch.cat([logits[:-1].detach(), torch.full((1, 8), last)]).requires_grad_()
        gamma = random_gamma(logits).requires_grad_()
        per_row = soft_opml_loss(scores, labels, gamma=gamma, unknown=unknown, reduction="none")[:-1]
        gradients = torch.autograd.grad(per_row.sum(), (scores, gamma), materialize_grads=True)
        found.append([per_row, *(each[:-1] for each in gradients)])
    for ordinary, shifted in zip(*found, strict=True):
        torch.testing.assert_close(ordinary, shifted)


def test_gradients_can_be_differentiated():
    logits, labels = random_batch(rows=3, classes=4)
    assert torch.autograd.gradgradcheck(
        lambda s: soft_opml_loss(s, labels, gamma=s.sigmoid() / 2, reduction="none"), (logits,)
    )


def test_gradient_through_gamma_is_the_callers_choice():
    """With the gradient through pred, γ e^{-s} = AP σ(-s): a confident negative is left alone. Detached it is not."""
    gradients = {}
    for detached in (False, True):
        logits = torch.tensor([[5.0, -9.0]], dtype=torch.float64, requires_grad=True)
        gamma = logits.detach().sigmoid() if detached else logits.sigmoid()
        soft_opml_loss(logits, torch.tensor([[1, -1]]), gamma=gamma).backward()
        gradients[detached] = logits.grad[0, 1].item()
    assert abs(gradients[False]) < 1e-3
    assert gradients[True] < -0.3


def test_confident_negatives_keep_their_share_in_float32():
    """γ e^{-s} = σ(s) e^{-s} = σ(-s), a product of a tiny and a huge number."""
    labels = torch.tensor([[1, -1, -1, -1]])
    for scale in (10.0, 30.0, 80.0):
        values = []
        for dtype in (torch.float32, torch.float64):
            logits = torch.tensor([[scale, -scale, 1.0, -scale / 2]], dtype=dtype)
            values.append(soft_opml_loss(logits, labels, gamma=logits.sigmoid()).double())
        torch.testing.assert_close(*values, rtol=1e-5, atol=0)


def test_module_takes_gamma_with_every_call():
    logits, labels = random_batch()
    gamma = random_gamma(logits)
    module = SoftOPMLLoss(alpha=0.4, beta=0.5)
    torch.testing.assert_close(
        module(logits, labels, gamma=gamma), soft_opml_loss(logits, labels, gamma=gamma, alpha=0.4, beta=0.5)
    )


@pytest.mark.parametrize(
    ("gamma", "sentence"),
    [
        (torch.zeros(1, 2), r"shape of the logits, \(2, 2\), got \(1, 2\)"),
        (torch.full((2, 2), 1.1), "shares between 0 and 1"),
        (torch.full((2, 2), float("nan")), "shares between 0 and 1"),
    ],
)
def test_bad_gamma_is_refused(gamma, sentence):
    with pytest.raises(ValueError, match=sentence):
        soft_opml_loss(torch.zeros(2, 2), torch.zeros(2, 2), gamma=gamma)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_gamma_of_more_digits_than_the_logits_has_its_gradient(dtype):
    logits, labels = random_batch()
    class_ap, gradients = torch.linspace(0.1, 0.9, logits.shape[1], dtype=torch.float64), []
    for precise in (True, False):
        scores = logits.detach().to(dtype).requires_grad_()
        gamma = scores.sigmoid() * (class_ap if precise else class_ap.to(dtype))
        soft_opml_loss(scores, labels, gamma=gamma).backward()
        gradients.append(scores.grad)
    torch.testing.assert_close(*gradients, rtol=0.05, atol=1e-3)
