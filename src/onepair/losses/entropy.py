"""Entropy maximisation: unknown labels are kept uncertain instead of assumed negative."""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from onepair.losses.batch import Loss, Reduction, check_at_least_zero, check_choice, loss_batch, mean_over_labels


def entropy_maximization_loss(
    logits: Tensor,
    labels: Tensor,
    *,
    entropy_weight: float = 0.2,
    weight: Tensor | None = None,
    unknown: Literal["entropy", "negative", "ignore"] = "entropy",
    reduction: Reduction = "mean",
) -> Tensor:
    """Binary cross entropy on known labels, maximal entropy on unknown ones (Zhou et al. 2022).

        l = -log p if positive, -log(1-p) if negative, -a H(p) if unknown
        H(p) = -p log p - (1-p) log(1-p),   p = sigmoid(s)

    The mean over all L labels of a row. a = 0.2 on VOC, 0.1 on COCO and NUS, 0.01 on CUB in its authors' work.

    Args:
        logits: (B, L) scores, any float dtype.
        labels: (B, L) of 1 (positive), 0 (negative), -1 or NaN (unknown), and shares between 0 and 1: soft labels.
        entropy_weight: the factor a.
        weight: (B, L) or (L,), factors on the losses of labels; the mean is over L labels all the same.
        unknown: "entropy" is this loss; "negative" and "ignore" treat unknown labels as all other losses do, which
            makes it `bce_loss`.
        reduction: "mean" or "sum" over the rows, or "none" for one value per row.

    Examples:
        >>> entropy_maximization_loss(torch.tensor([[0.0, 0.0]]), torch.tensor([[1, -1]]), entropy_weight=1.0)
        tensor(0.)
    """
    check_at_least_zero(entropy_weight=entropy_weight)
    check_choice("unknown", unknown, ("entropy", "negative", "ignore"))
    batch = loss_batch(logits, labels, unknown="ignore" if unknown == "entropy" else unknown, soft=True)
    per_cell = F.binary_cross_entropy_with_logits(
        batch.logits, batch.positive, batch.positive + batch.negative, reduction="none"
    )
    if unknown == "entropy":
        unknown_share = 1 - batch.positive - batch.negative
        per_cell = per_cell - entropy_weight * unknown_share * binary_entropy(batch.logits)
    return mean_over_labels(per_cell, weight, reduction)


def binary_entropy(logits: Tensor) -> Tensor:
    """Entropy of sigmoid(logits), in nats and without cancellation for large logits.

    Examples:
        >>> binary_entropy(torch.tensor([0.0, 1e4]))
        tensor([0.6931, 0.0000])
    """
    distance = logits.abs()
    return F.softplus(-distance) + distance * torch.sigmoid(-distance)


class EntropyMaximizationLoss(Loss):
    """`entropy_maximization_loss` as a module."""

    function = staticmethod(entropy_maximization_loss)
