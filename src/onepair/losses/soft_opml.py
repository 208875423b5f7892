"""Soft OPML: every unknown label is partly positive and partly negative, by a share γ that adapts."""

from typing import Any

import torch
from torch import Tensor

from onepair.losses.batch import (
    Loss,
    Reduction,
    Unknown,
    can_check_values,
    check_batch,
    masks,
    reduce,
    unknown_cells,
)
from onepair.losses.opml import blocks_of_rows, odds
from onepair.numerics import masked_logsumexp, widen

_MANY = 2**16  # cells for which the shorter way pays
_ORDINARY = 40.0  # logits up to which exp(s) and exp(-s) of any number of labels can be summed in float32


def soft_opml_loss(
    logits: Tensor,
    labels: Tensor,
    *,
    gamma: Tensor,
    alpha: float = 0.6,
    beta: float = 0.4,
    unknown: Unknown = "negative",
    reduction: Reduction = "mean",
) -> Tensor:
    """OPML with soft unknown labels (Li, Wang, Chen 2023, Eq. 9).

        L = log(α + Σ_{p∈Ωp} exp(-s_p)) + log(α + Σ_{l∈U} γ_l exp(-s_l))
          + log(β + Σ_{n known} exp(s_n) + Σ_{l∈U} (1-γ_l) exp(s_l))

    In the paper γ_l = sigmoid(s_l) · AP_l^ε, with AP_l the average precision of label l on the training set.
    α and β are the odds of `alpha` and `beta`, as in `opml_loss`.

    Args:
        logits: (B, L) scores, any float dtype.
        labels: (B, L) of 1 (positive), 0 (negative), -1 (unknown).
        gamma: (B, L) shares in [0, 1]; only those of unknown labels count. If it carries a gradient, the gradient
            flows; detach it where it should not.
        alpha, beta: as in `opml_loss`.
        unknown: "negative": unknown labels are negative but for their share γ. "ignore": they are left out
            altogether, and γ with them.
        reduction: "mean" or "sum" over the rows, or "none" for one value per row.

    With γ = 0 this is `opml_loss` plus the constant log α.

    >>> import torch
    >>> logits, labels = torch.tensor([[0.0, 0.0]]), torch.tensor([[1, -1]])
    >>> soft_opml_loss(logits, labels, gamma=torch.full((1, 2), 0.5), alpha=0.5, beta=0.5)
    tensor(1.5041)
    """
    logits, labels = check_batch(logits, labels, unknown=unknown)
    if gamma.shape != logits.shape:
        raise ValueError(f"gamma must have the shape of the logits, {tuple(logits.shape)}, got {tuple(gamma.shape)}")
    checked = can_check_values(logits) and can_check_values(gamma)
    if checked:
        lowest, highest = map(float, gamma.detach().aminmax())
        if not (lowest >= 0 and highest <= 1):
            raise ValueError("gamma must hold shares between 0 and 1")
    gamma = widen(gamma, logits.dtype)
    threshold_positive, threshold_negative = odds(alpha=alpha), odds(beta=beta)
    many = checked and logits.numel() >= _MANY
    ordinary = many and max(map(abs, map(float, logits.detach().aminmax()))) <= _ORDINARY
    soft_pairs = _SoftPairs.apply if ordinary else _soft_pairs
    return reduce(soft_pairs(logits, gamma, labels, unknown, threshold_positive, threshold_negative), reduction)


def _soft_pairs(logits: Tensor, gamma: Tensor, labels: Tensor, unknown: Unknown, alpha: float, beta: float) -> Tensor:
    """The three terms of Eq. 9 per row, for logits of any size."""
    positive, negative = masks(labels, logits.dtype, unknown=unknown)
    # An ignored label is in no mask; an unknown one that counts as negative gives up its share γ.
    soft_positive = gamma * unknown_cells(labels, gamma.dtype) * negative
    return (
        masked_logsumexp(-logits, positive, constant=alpha)
        + masked_logsumexp(-logits, soft_positive, constant=alpha)
        + masked_logsumexp(logits, negative - soft_positive, constant=beta)
    )


class _SoftPairs(torch.autograd.Function):
    """The same for many ordinary logits, with both gradients: each exponential is computed once, and needs no shift.

    Rows are taken in blocks that stay in the processor's cache, which takes a third of the time.
    """

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, gamma: Tensor, labels: Tensor, unknown: Unknown, alpha: float, beta: float
    ) -> Tensor:
        along_logits, along_gamma = torch.empty_like(logits), torch.empty_like(logits)
        losses = [
            _ordinary_pairs(
                logits[rows], gamma[rows], labels[rows], (along_logits[rows], along_gamma[rows]), unknown, alpha, beta
            )
            for rows in blocks_of_rows(logits)
        ]
        ctx.save_for_backward(logits, gamma, labels, along_logits, along_gamma)
        ctx.options = unknown, alpha, beta
        return torch.cat(losses)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        logits, gamma, labels, *gradients = ctx.saved_tensors
        wanted = ctx.needs_input_grad[:2]
        if torch.is_grad_enabled():  # the gradients themselves are to be differentiated
            # Views of them: where γ was computed from the logits, autograd goes that way itself, and must not go twice.
            logits, gamma = logits.view_as(logits), gamma.view_as(gamma)
            per_row = _soft_pairs(logits, gamma, labels, *ctx.options)
            inputs = [each for each, needed in zip((logits, gamma), wanted, strict=True) if needed]
            found = iter(torch.autograd.grad(per_row, inputs, upstream, create_graph=True))
            return *(next(found) if needed else None for needed in wanted), None, None, None, None
        scaled = (
            each * upstream.unsqueeze(1) if needed else None for each, needed in zip(gradients, wanted, strict=True)
        )
        return *scaled, None, None, None, None


def _ordinary_pairs(
    logits: Tensor,
    gamma: Tensor,
    labels: Tensor,
    gradients: tuple[Tensor, Tensor],
    unknown: Unknown,
    alpha: float,
    beta: float,
) -> Tensor:
    """The losses of some rows; their gradients along logits and γ are written to `gradients`."""
    along_logits, along_gamma = gradients
    positive, negative = masks(labels, logits.dtype, unknown=unknown)
    soft = unknown_cells(labels, logits.dtype).mul_(negative)
    rising = torch.exp(logits, out=along_gamma)
    falling = rising.reciprocal()
    soft_positive = gamma * soft
    certain_terms = positive.mul_(falling)
    soft_terms = falling * soft_positive
    negative_terms = torch.mul(negative.sub_(soft_positive), rising, out=along_logits)
    certain_total, soft_total, negative_total = (
        terms.sum(1, keepdim=True).add_(threshold)
        for terms, threshold in ((certain_terms, alpha), (soft_terms, alpha), (negative_terms, beta))
    )
    # ∂L/∂s = (1-γ) exp(s) / (β + Σ …) - γ exp(-s) / (α + Σ …) - …,   ∂L/∂γ = exp(-s) / (α + Σ …) - exp(s) / (β + Σ …)
    negative_terms.div_(negative_total).addcdiv_(soft_terms, soft_total, value=-1)
    negative_terms.addcdiv_(certain_terms, certain_total, value=-1)
    rising.div_(-negative_total).addcdiv_(falling, soft_total).mul_(soft)
    return (certain_total.log() + soft_total.log() + negative_total.log()).squeeze(1)


class SoftOPMLLoss(Loss):
    """`soft_opml_loss` as a module, called as `loss(logits, labels, gamma=gamma)`."""

    call_tensors = ("gamma",)

    def __init__(
        self,
        alpha: float = 0.6,
        beta: float = 0.4,
        *,
        unknown: Unknown = "negative",
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(soft_opml_loss, alpha=alpha, beta=beta, unknown=unknown, reduction=reduction)
