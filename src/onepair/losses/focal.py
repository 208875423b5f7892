"""Cross-entropies that count easy or doubtful labels less: the focal, the asymmetric and the Hill loss."""

import torch
from torch import Tensor
from torch.nn import functional as F

from onepair.losses.batch import Loss, Reduction, Unknown, check_at_least_zero, loss_batch, mean_over_labels


def focal_loss(
    logits: Tensor,
    labels: Tensor,
    *,
    gamma: float = 2.0,
    alpha: float | None = 0.25,
    weight: Tensor | None = None,
    unknown: Unknown = "negative",
    reduction: Reduction = "mean",
) -> Tensor:
    """Focal loss (Lin et al. 2017), the mean over all L labels of a row.

        l = -a_t (1 - p_t)^γ log p_t,   p_t = sigmoid(s) if positive, sigmoid(-s) if negative

    Args:
        logits: (B, L) scores, any float dtype.
        labels: (B, L) of 1 (positive), 0 (negative), -1 or NaN (unknown).
        gamma: focusing power; 0 is the weighted binary cross entropy.
        alpha: weight a of positives, with 1-a for negatives; None weighs both by 1.
        weight: (B, L) or (L,), factors on the losses of labels; the mean is over L labels all the same.
        unknown: what an unknown label counts as: "negative", or "ignore", which adds 0.
        reduction: "mean" or "sum" over the rows, or "none" for one value per row.

    Examples:
        >>> focal_loss(torch.tensor([[0.0, 0.0]]), torch.tensor([[1, 0]]), alpha=None)  # log(2) / 4
        tensor(0.1733)
    """
    check_at_least_zero(gamma=gamma)
    if alpha is not None and not 0 <= alpha <= 1:
        raise ValueError(f"alpha must lie between 0 and 1 or be None, got {alpha}")
    batch = loss_batch(logits, labels, unknown=unknown)
    toward_label = batch.logits * (2 * batch.positive - 1)
    per_cell = -F.logsigmoid(toward_label) * focus(torch.sigmoid(-toward_label), gamma)
    positive_weight, negative_weight = (1.0, 1.0) if alpha is None else (alpha, 1 - alpha)
    balance = positive_weight * batch.positive + negative_weight * batch.negative
    return mean_over_labels(balance * per_cell, weight, reduction)


def focus(distance: Tensor, power: float) -> Tensor:
    """`distance ** power` for distances in [0, 1], with a finite gradient at 0 for any power.

    Examples:
        >>> focus(torch.tensor([0.5, 0.0]), 2.0)
        tensor([0.2500, 0.0000])
    """
    if power == 0:
        return torch.ones_like(distance)
    return distance.clamp(min=torch.finfo(distance.dtype).tiny) ** power


class FocalLoss(Loss):
    """`focal_loss` as a module."""

    function = staticmethod(focal_loss)


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

    Examples:
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


def hill_loss(
    logits: Tensor,
    labels: Tensor,
    *,
    gamma: float = 2.0,
    margin: float = 1.0,
    turn: float = 1.5,
    weight: Tensor | None = None,
    unknown: Unknown = "negative",
    reduction: Reduction = "mean",
) -> Tensor:
    """Hill loss (Zhang et al. 2021), the mean over all L labels of a row.

        l₊ = -(1 - p_m)^γ log p_m,   p_m = sigmoid(s - margin)
        l₋ = (turn - p) p²,          p = sigmoid(s)

    The push on a negative, ∂l₋/∂s = p² (2 turn - 3p) (1 - p), grows and then falls again; at a turn of 1.5 it is
    3 p² (1 - p)².

    Args:
        logits: (B, L) scores, any float dtype.
        labels: (B, L) of 1 (positive), 0 (negative), -1 or NaN (unknown), and shares between 0 and 1: soft labels.
        gamma: focusing power on positives.
        margin: how much further than to its label's side a positive is pulled, in logits.
        turn: the λ of its authors, where l₋ would fall to 0 again.
        weight: (B, L) or (L,), factors on the losses of labels; the mean is over L labels all the same.
        unknown: what an unknown label counts as: "negative", or "ignore", which adds 0.
        reduction: "mean" or "sum" over the rows, or "none" for one value per row.

    Examples:
        >>> hill_loss(torch.tensor([[-40.0, 0.0]]), torch.tensor([[0, -1]]))  # (1.5 - 0.5) 0.5² / 2
        tensor(0.1250)
    """
    check_at_least_zero(gamma=gamma, turn=turn)
    batch = loss_batch(logits, labels, unknown=unknown, soft=True)
    probabilities = torch.sigmoid(batch.logits)
    per_cell = batch.positive * focused_positive(batch.logits - margin, gamma)
    per_cell = per_cell + batch.negative * (turn - probabilities) * probabilities.square()
    return mean_over_labels(per_cell, weight, reduction)


class HillLoss(Loss):
    """`hill_loss` as a module."""

    function = staticmethod(hill_loss)
