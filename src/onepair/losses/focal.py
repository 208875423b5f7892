"""The focal loss: easy labels count less."""

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

    >>> focus(torch.tensor([0.5, 0.0]), 2.0)
    tensor([0.2500, 0.0000])
    """
    if power == 0:
        return torch.ones_like(distance)
    return distance.clamp(min=torch.finfo(distance.dtype).tiny) ** power


class FocalLoss(Loss):
    """`focal_loss` as a module."""

    function = staticmethod(focal_loss)
