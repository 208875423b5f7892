"""Binary cross entropy with the variants that learning from single positives compares with."""

import torch
from torch import Tensor
from torch.nn import functional as F

from onepair.losses.batch import Loss, Reduction, Unknown, check_at_least_zero, loss_batch, mean_over_labels


def bce_loss(
    logits: Tensor,
    labels: Tensor,
    *,
    smoothing: float = 0.0,
    smooth_positives: bool = True,
    negative_weight: float = 1.0,
    weight: Tensor | None = None,
    unknown: Unknown = "negative",
    reduction: Reduction = "mean",
) -> Tensor:
    """Binary cross entropy, the mean over all L labels of a row.

        l = -[t log sigmoid(s) + (1-t) log sigmoid(-s)] × (1 if positive, negative_weight if negative)

    One function for the baselines of single positive learning (Cole et al. 2021): assume negative (AN) as it is,
    down-weighted negatives (DW) with negative_weight = 1 / (L-1), label smoothing (LS) with smoothing = 0.1, and
    smoothing of negatives only (N-LS) with smooth_positives = False besides.

    Args:
        logits: (B, L) scores, any float dtype.
        labels: (B, L) of 1 (positive), 0 (negative), -1 or NaN (unknown), and shares between 0 and 1: soft labels.
        smoothing: ε in [0, 1]: the target t of a positive is 1-ε, that of a negative ε.
        smooth_positives: False leaves the target of positives at 1.
        negative_weight: factor on the loss of negatives, known or assumed.
        weight: (B, L) or (L,), factors on the losses of labels; the mean is over L labels all the same.
        unknown: what an unknown label counts as: "negative", or "ignore": then it adds 0, and the mean is still
            over L labels, so that every known cell weighs the same in any row.
        reduction: "mean" or "sum" over the rows, or "none" for one value per row.

    Examples:
        >>> bce_loss(torch.tensor([[0.0, 0.0]]), torch.tensor([[1, -1]]))
        tensor(0.6931)
    """
    if not 0 <= smoothing <= 1:
        raise ValueError(f"smoothing must lie between 0 and 1, got {smoothing}")
    check_at_least_zero(negative_weight=negative_weight)
    batch = loss_batch(logits, labels, unknown=unknown, soft=True)
    positive_target = 1 - smoothing if smooth_positives else 1.0
    balance = torch.add(batch.positive, batch.negative, alpha=negative_weight)
    # A soft label is positive by its share of the two losses, which weigh differently.
    share = batch.positive / balance.clamp(min=torch.finfo(balance.dtype).tiny)
    target = smoothing + (positive_target - smoothing) * share
    per_cell = F.binary_cross_entropy_with_logits(batch.logits, target, balance, reduction="none")
    return mean_over_labels(per_cell, weight, reduction)


class BCELoss(Loss):
    """`bce_loss` as a module."""

    function = staticmethod(bce_loss)
