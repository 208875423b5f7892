"""The asymmetric loss: easy negatives count less than easy positives, very easy ones not at all."""

import torch
from torch import Tensor
from torch.nn import functional as F

from onepair.losses.batch import Loss, Reduction, Unknown, check_at_least_zero, loss_batch, mean_over_labels
from onepair.losses.focal import focus


def asymmetric_loss(
    logits: Tensor,
    labels: Tensor,
    *,
    gamma_negative: float = 4.0,
    gamma_positive: float = 0.0,
    margin: float = 0.05,
    weight: Tensor | None = None,
    unknown: Unknown = "negative",
    reduction: Reduction = "mean",
) -> Tensor:
    """Asymmetric loss (Ridnik et al. 2021), the mean over all L labels of a row.

        l₊ = -(1 - p)^γ₊ log p,   l₋ = -p_m^γ₋ log(1 - p_m),   p = sigmoid(s), p_m = max(p - margin, 0)

    The gradient flows through the focusing powers too.

    Args:
        logits: (B, L) scores, any float dtype.
        labels: (B, L) of 1 (positive), 0 (negative), -1 or NaN (unknown), and shares between 0 and 1: soft labels.
        gamma_negative, gamma_positive: the focusing powers γ₋ and γ₊.
        margin: probability in [0, 1) below which a negative adds nothing.
        weight: (B, L) or (L,), factors on the losses of labels; the mean is over L labels all the same.
        unknown: what an unknown label counts as: "negative", or "ignore", which adds 0.
        reduction: "mean" or "sum" over the rows, or "none" for one value per row.

    >>> asymmetric_loss(torch.tensor([[0.0, -4.0]]), torch.tensor([[1, 0]]))  # log(2) / 2
    tensor(0.3466)
    """
    check_at_least_zero(gamma_negative=gamma_negative, gamma_positive=gamma_positive)
    if not 0 <= margin < 1:
        raise ValueError(f"margin must be at least 0 and below 1, got {margin}")
    batch = loss_batch(logits, labels, unknown=unknown, soft=True)
    per_cell = batch.positive * focused_positive(batch.logits, gamma_positive)
    per_cell = per_cell + batch.negative * _negative_term(batch.logits, gamma_negative, margin)
    return mean_over_labels(per_cell, weight, reduction)


def focused_positive(logits: Tensor, gamma: float) -> Tensor:
    """`-(1 - p)^γ log p` of every cell."""
    return -F.logsigmoid(logits) * focus(torch.sigmoid(-logits), gamma)


def _negative_term(logits: Tensor, gamma: float, margin: float) -> Tensor:
    if margin == 0:
        return -F.logsigmoid(-logits) * focus(torch.sigmoid(logits), gamma)
    below_one = 1 - torch.finfo(logits.dtype).eps  # which a tiny margin does not keep p_m from
    shifted = (torch.sigmoid(logits) - margin).clamp(min=0, max=below_one)
    return -torch.log1p(-shifted) * focus(shifted, gamma)


class AsymmetricLoss(Loss):
    """`asymmetric_loss` as a module."""

    function = staticmethod(asymmetric_loss)
