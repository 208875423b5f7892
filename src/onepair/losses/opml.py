"""OPML, soft OPML, the high-rank penalty and OPML+: of all pairs of labels, push the closest one apart."""

import math
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from onepair.labels import UNKNOWN
from onepair.losses.batch import (
    Loss,
    Reduction,
    Unknown,
    can_check_values,
    check_at_least_zero,
    check_batch,
    check_choice,
    is_transformed,
    label_weights,
    masks,
    reduce,
    unknown_cells,
)
from onepair.numerics import logdet_gram, masked_logsumexp, widen

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

    Examples:
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
        labels: (B, L) of 1 (positive), 0 (negative), -1 or NaN (unknown).
        gamma: (B, L) shares in [0, 1]; only those of unknown labels count. If it carries a gradient, the gradient
            flows; detach it where it should not.
        alpha, beta: as in `opml_loss`.
        unknown: "negative": unknown labels are negative but for their share γ. "ignore": they are left out
            altogether, and γ with them.
        reduction: "mean" or "sum" over the rows, or "none" for one value per row.

    With γ = 0 this is `opml_loss` plus the constant log α.

    Examples:
        >>> import torch
        >>> logits, labels = torch.tensor([[0.0, 0.0]]), torch.tensor([[1, -1]])
        >>> soft_opml_loss(logits, labels, gamma=torch.full((1, 2), 0.5), alpha=0.5, beta=0.5)
        tensor(1.5041)
    """
    logits, labels = check_batch(logits, labels, unknown=unknown)
    if gamma.shape != logits.shape:
        raise ValueError(f"gamma must have the shape of the logits, {tuple(logits.shape)}, got {tuple(gamma.shape)}")
    checked = can_check_values(logits) and can_check_values(gamma)
    if checked and gamma.numel():
        lowest, highest = map(float, gamma.detach().aminmax())
        if not (lowest >= 0 and highest <= 1):
            raise ValueError("gamma must hold shares between 0 and 1")
    gamma = widen(gamma, logits.dtype)
    threshold_positive, threshold_negative = odds(alpha=alpha), odds(beta=beta)
    many = checked and logits.numel() >= _MANY
    ordinary = many and max(map(abs, map(float, logits.detach().aminmax()))) <= _ORDINARY
    soft_pairs = _ordinary_soft_pairs if ordinary else _soft_pairs
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


def _ordinary_soft_pairs(
    logits: Tensor, gamma: Tensor, labels: Tensor, unknown: Unknown, alpha: float, beta: float
) -> Tensor:
    """The same for logits whose exponentials can be summed as they are, in a third of the time."""
    positive, negative = masks(labels, logits.dtype, unknown=unknown)
    soft_positive = gamma * unknown_cells(labels, gamma.dtype) * negative
    rising, falling = logits.exp(), (-logits).exp()
    terms = ((positive, falling, alpha), (soft_positive, falling, alpha), (negative - soft_positive, rising, beta))
    logs: list[Tensor] = [(torch.linalg.vecdot(weight, each) + constant).log() for weight, each, constant in terms]
    return logs[0] + logs[1] + logs[2]


class SoftOPMLLoss(Loss):
    """`soft_opml_loss` as a module, called as `loss(logits, labels, gamma=gamma)`.

    Examples:
        >>> loss = SoftOPMLLoss(alpha=0.5, beta=0.5)
        >>> loss(torch.zeros(1, 2), torch.tensor([[1, -1]]), gamma=torch.full((1, 2), 0.5))
        tensor(1.5041)
    """

    function = staticmethod(soft_opml_loss)
    call_tensors = ("gamma",)


def high_rank_penalty(probabilities: Tensor, *, ridge: float = 1e-6) -> Tensor:
    """`-Σ log σ²` over the singular values σ of a batch's predictions (Li, Wang, Chen 2023, Eq. 8).

        R = -log det(G + ridge · I),   G the smaller of Y Yᵀ and Yᵀ Y

    The factor λ is the caller's; the paper takes 1e-3 everywhere. The ridge keeps value and gradient finite for
    equal rows and for saturated predictions: a singular value pulls with at most 1/√ridge.

    Args:
        probabilities: (B, L), sigmoid of the logits: between 0 and 1, any float dtype.
        ridge: added to every σ².

    Examples:
        >>> import torch
        >>> high_rank_penalty(torch.eye(4, 20)).abs() < 1e-4
        tensor(True)
    """
    if probabilities.ndim < 2 or probabilities.shape[-1] == 0 or not probabilities.is_floating_point():
        raise ValueError(
            "probabilities must be a matrix (batch, classes), or (batch, ..., classes), of floating point numbers, "
            f"got shape {tuple(probabilities.shape)} of {probabilities.dtype}"
        )
    if not ridge > 0:
        raise ValueError(f"ridge must be above 0, got {ridge}")
    probabilities = probabilities.flatten(0, -2)
    if len(probabilities) == 0:
        return probabilities.sum()
    if can_check_values(probabilities):
        lowest, highest = (float(extreme) for extreme in probabilities.detach().aminmax())
        if not (lowest >= 0 and highest <= 1):
            raise ValueError(f"probabilities must lie between 0 and 1, got {lowest} to {highest}; pass sigmoid(logits)")
    return -logdet_gram(probabilities, ridge=ridge)


_FEW = 1 / 64  # of many cells, those that are known at most where going through them alone pays


def opml_plus_loss(
    logits: Tensor,
    labels: Tensor,
    *,
    missing: float = 1.0,
    alpha: float = 0.3,
    beta: float = 0.15,
    trust: float = 0.1,
    weight: Tensor | None = None,
    unknown: Literal["trust", "negative", "ignore"] = "trust",
    reduction: Reduction = "mean",
) -> Tensor:
    """OPML+ of one batch, the sum over the labels of a row; `onepair.methods.opml_sp` says why.

        L = Σ_{p∈Ωp} log(α + exp(-s_p)) - Σ_{others} v [p* log σ(s) + (1-p*) log(1-σ(s))]
        p* = β / (α+β),   v = 1 for a known negative, t / (t + R) for an unknown label

    Args:
        logits: (B, L) scores, any float dtype.
        labels: (B, L) of 1 (positive), 0 (negative), -1 or NaN (unknown), and shares between 0 and 1: soft labels.
        missing: R, how many positives are missing for every observed one; with single positives, how many per row.
            The method of the same name estimates it on the way.
        alpha, beta: in (0, 1); α and β are their odds.
        trust: t in (0, 1), how far an unknown label is trusted to be negative.
        weight: (B, L) or (L,), factors on the losses of labels.
        unknown: "trust" is this loss; "negative" takes v = 1, "ignore" v = 0.
        reduction: "mean" or "sum" over the rows, or "none" for one value per row.

    Examples:
        >>> opml_plus_loss(torch.zeros(1, 2), torch.tensor([[1, -1]]), missing=0.9, alpha=0.5)  # log 2 + 0.1 log 2
        tensor(0.7625)
    """
    check_at_least_zero(missing=missing)
    check_choice("unknown", unknown, ("trust", "negative", "ignore"))
    odds(trust=trust)  # lies between 0 and 1, too
    scores, targets = check_batch(logits, labels, unknown="ignore", soft=True)
    trusted = {"trust": trust / (trust + missing), "negative": 1.0, "ignore": 0.0}[unknown]
    alpha, beta = odds(alpha=alpha), odds(beta=beta)
    per_row = opml_plus_rows(
        scores.flatten(0, -2),
        targets.flatten(0, -2),
        alpha=alpha,
        rest=beta / (alpha + beta),
        trusted=torch.tensor(trusted, dtype=scores.dtype, device=scores.device),
        weight=None if weight is None else label_weights(weight, scores).expand_as(scores).flatten(0, -2),
    )
    return reduce(per_row.view(scores.shape[:-1]), reduction)


def opml_plus_rows(
    scores: Tensor, labels: Tensor, *, alpha: float, rest: float, trusted: Tensor, weight: Tensor | None = None
) -> Tensor:
    """The loss of every row of a checked batch (B, L), by the odds α, the resting share p* and the v of unknowns."""
    if weight is None and can_check_values(scores) and scores.numel() >= _MANY:
        known = torch.from_numpy(np.flatnonzero(labels.numpy() != UNKNOWN))  # ten times as fast as torch finds them
        if len(known) <= _FEW * labels.numel():
            return _by_entries(scores, labels, known, alpha, rest, trusted)
    return _by_masks(scores, labels, alpha, rest, trusted, weight)


def _by_masks(
    scores: Tensor, labels: Tensor, alpha: float, rest: float, trusted: Tensor, weight: Tensor | None
) -> Tensor:
    positive, negative = masks(labels, scores.dtype, unknown="ignore")
    counted = negative + trusted * unknown_cells(labels, scores.dtype)
    kept_low = F.binary_cross_entropy_with_logits(scores, torch.full_like(scores, rest), counted, reduction="none")
    per_cell = positive * _pulled(scores, alpha) + kept_low
    return (per_cell if weight is None else weight * per_cell).sum(1)


def _by_entries(scores: Tensor, labels: Tensor, places: Tensor, alpha: float, rest: float, trusted: Tensor) -> Tensor:
    """The same where next to nothing is known: as if nothing were, and then what is known, entry by entry."""
    row, column = places // labels.shape[1], places % labels.shape[1]
    known, positive = scores[row, column], labels[row, column].to(scores.dtype)
    kept_low = (1 - rest) * known - F.logsigmoid(known)  # BCE(s, p*)
    differs = positive * _pulled(known, alpha) + (1 - positive - trusted) * kept_low
    unknown = (1 - rest) * scores.sum(1) - F.logsigmoid(scores).sum(1)
    return (trusted * unknown).index_add(0, row, differs)


def _pulled(scores: Tensor, alpha: float) -> Tensor:
    log_alpha = math.log(alpha)
    return log_alpha - F.logsigmoid(scores + log_alpha)


class OPMLPlusLoss(Loss):
    """`opml_plus_loss` as a module.

    Examples:
        >>> OPMLPlusLoss(missing=2.0)(torch.zeros(1, 2), torch.tensor([[1, float("nan")]])).shape
        torch.Size([])
    """

    function = staticmethod(opml_plus_loss)
