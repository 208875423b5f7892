"""The Hill loss: a negative of high probability, perhaps a missed positive, is hardly pushed."""

import torch
from torch import Tensor

from onepair.losses.asymmetric import focused_positive
from onepair.losses.batch import Loss, Reduction, Unknown, check_at_least_zero, loss_batch, mean_over_labels


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
