"""The OPML loss: of all pairs of a positive and a negative label, push the closest one apart."""

from typing import Any

import torch
from torch import Tensor

from onepair.losses.batch import Loss, Reduction, Unknown, check_batch, is_transformed, masks, reduce
from onepair.numerics import masked_logsumexp

_CELLS_PER_BLOCK = 2**18  # 1 MB of float32


def opml_loss(
    logits: Tensor,
    labels: Tensor,
    *,
    alpha: float = 0.6,
    beta: float = 0.4,
    unknown: Unknown = "negative",
    reduction: Reduction = "mean",
) -> Tensor:
    """One-pair multi-label loss (Li, Wang, Chen 2023, Eq. 7).

        L = log(α + Σ_{p∈Ωp} exp(-s_p)) + log(β + Σ_{n∈Ωn} exp(s_n)),   α = alpha / (1 - alpha), β likewise

    The smooth form of `max(min_p s_p - max_n s_n)`. The paper's values of (alpha, beta), from single positives:
    (0.7, 0.4) on VOC and (0.9, 0.5) on CUB; within OPML-SP (0.6, 0.4) on VOC and NUS, (0.4, 0.5) on COCO,
    (0.6, 0.2) on CUB. With alpha = beta = 0.5 this is ZLPR.

    Args:
        logits: (B, L) scores, any float dtype.
        labels: (B, L) of 1 (positive), 0 (negative), -1 or NaN (unknown).
        alpha: weight in (0, 1) of the threshold that positives are pushed above.
        beta: weight in (0, 1) of the threshold that negatives are pushed below.
        unknown: what an unknown label counts as: "negative", or "ignore" to leave it out.
        reduction: "mean" or "sum" over the rows, or "none" for one value per row.

    A row without positives keeps log α as its first term, one without negatives log β as its second.

    Examples:
        >>> opml_loss(torch.tensor([[0.0, 0.0]]), torch.tensor([[1, -1]]), alpha=0.5, beta=0.5)
        tensor(1.3863)
    """
    logits, labels = check_batch(logits, labels, unknown=unknown)
    threshold_positive, threshold_negative = odds(alpha=alpha), odds(beta=beta)
    if is_transformed():  # `torch.func` cannot look into a function that works in place
        per_row = _one_pair_terms(logits, labels, unknown, threshold_positive, threshold_negative)
    else:
        rows = logits.flatten(0, -2), labels.flatten(0, -2)
        per_row = _OnePair.apply(*rows, unknown, threshold_positive, threshold_negative)
        per_row = per_row.view(logits.shape[:-1])
    return reduce(per_row, reduction)


def odds(**share: float) -> float:
    """The α of the equations from the tilde value the user chooses: α̃ / (1 - α̃).

    >>> odds(alpha=0.5)
    1.0
    """
    ((name, value),) = share.items()
    if not 0 < value < 1:
        raise ValueError(f"{name} must lie between 0 and 1, both excluded, got {value}")
    return value / (1 - value)


def _one_pair_terms(logits: Tensor, labels: Tensor, unknown: Unknown, alpha: float, beta: float) -> Tensor:
    """Both terms of Eq. 7 per row, which autograd can differentiate any number of times."""
    positive, negative = masks(labels, logits.dtype, unknown=unknown)
    return masked_logsumexp(-logits, positive, constant=alpha) + masked_logsumexp(logits, negative, constant=beta)


class _OnePair(torch.autograd.Function):
    """Both terms of Eq. 7 per row, and the paper's gradient with them.

    Every logit is in one term only, so a few passes in place give value and gradient together. Rows are taken in blocks
    that stay in the processor's cache: for many labels this halves the time, and needs one matrix of memory, not five.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, unknown: Unknown, alpha: float, beta: float) -> Tensor:
        gradient, rows = torch.empty_like(logits), max(1, _CELLS_PER_BLOCK // logits.shape[1])
        blocks = zip(torch.split(logits, rows), torch.split(labels, rows), torch.split(gradient, rows), strict=True)
        losses = [_one_pair(*block, unknown, alpha, beta) for block in blocks]
        ctx.save_for_backward(logits, labels, gradient)
        ctx.options = unknown, alpha, beta
        return losses[0] if len(losses) == 1 else torch.cat(losses)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None, None, None]:
        logits, labels, gradient = ctx.saved_tensors
        if torch.is_grad_enabled():  # the gradient itself is to be differentiated
            per_row = _one_pair_terms(logits, labels, *ctx.options)
            (gradient,) = torch.autograd.grad(per_row, logits, upstream, create_graph=True)
            return gradient, None, None, None, None
        return gradient * upstream.unsqueeze(1), None, None, None, None


def _one_pair(logits: Tensor, labels: Tensor, gradient: Tensor, unknown: Unknown, alpha: float, beta: float) -> Tensor:
    """The losses of some rows; their gradient is written to `gradient`."""
    positive, negative = masks(labels, logits.dtype, unknown=unknown)
    positive_scores = logits * positive
    negative_scores = torch.mul(logits, negative, out=gradient)
    # Shifts that make the largest exponent 0: the closest pair of labels, or the zero threshold.
    lowest_positive = positive_scores.amin(1, keepdim=True).clamp_(max=0)
    highest_negative = negative_scores.amax(1, keepdim=True).clamp_(min=0)
    positive_terms = torch.sub(lowest_positive, positive_scores, out=positive_scores).exp_().mul_(positive)
    negative_terms = negative_scores.sub_(highest_negative).exp_().mul_(negative)
    positive_total = positive_terms.sum(1, keepdim=True).add_(lowest_positive.exp(), alpha=alpha)
    negative_total = negative_terms.sum(1, keepdim=True).add_((-highest_negative).exp_(), alpha=beta)
    # ∂L/∂s_p = -exp(-s_p) / (α + Σ exp(-s_p)),  ∂L/∂s_n = exp(s_n) / (β + Σ exp(s_n))
    negative_terms.div_(negative_total).addcdiv_(positive_terms, positive_total, value=-1)
    return (positive_total.log() - lowest_positive + negative_total.log() + highest_negative).squeeze(1)


class OPMLLoss(Loss):
    """`opml_loss` as a module.

    Examples:
        >>> OPMLLoss(alpha=0.7)
        OPMLLoss(alpha=0.7, beta=0.4, unknown='negative', reduction='mean')
    """

    function = staticmethod(opml_loss)
