"""Binary cross entropy, with its variants for single positives: by propensities, or with the entropy of unknowns."""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from onepair.losses.batch import (
    Loss,
    Reduction,
    Unknown,
    can_check_values,
    check_at_least_zero,
    check_choice,
    loss_batch,
    mean_over_labels,
)


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


Form = Literal["unbiased", "bounded"]


def propensity_loss(
    logits: Tensor,
    labels: Tensor,
    *,
    propensities: Tensor | float = 1.0,
    form: Form = "unbiased",
    weight: Tensor | None = None,
    unknown: Unknown = "negative",
    reduction: Reduction = "mean",
) -> Tensor:
    """Propensity-weighted binary cross entropy, the mean over all L labels of a row.

        unbiased:  (y / ρ) (l₊ - l₋) + l₋                  (Jain et al. 2016)
        bounded:   y (2 / ρ - 1) l₊ + (1 - y) l₋           (Qaraei et al. 2021)
        y = 1 if positive else 0,   l₊ = -log p,   l₋ = -log(1 - p)

    Where positives of a class are observed with a chance ρ, and all others count as negative, the first is on average
    the loss of full labels. It is not bounded from below; the second lies above it, and is. With ρ = 1 both are binary
    cross entropy.

    Args:
        logits: (B, L) scores, any float dtype.
        labels: (B, L) of 1 (positive), 0 (negative), -1 or NaN (unknown), and shares between 0 and 1: soft labels.
        propensities: ρ of each class (L,), or of all of them, above 0 and at most 1.
        form: "unbiased" or "bounded".
        weight: (B, L) or (L,), factors on the losses of labels; the mean is over L labels all the same.
        unknown: what an unknown label counts as: "negative", or "ignore", which adds 0.
        reduction: "mean" or "sum" over the rows, or "none" for one value per row.

    Examples:
        >>> propensity_loss(torch.zeros(1, 2), torch.tensor([[1, 0]]), propensities=0.5, form="bounded")  # 4 log(2) / 2
        tensor(1.3863)
    """
    check_choice("form", form, ("unbiased", "bounded"))
    batch = loss_batch(logits, labels, unknown=unknown, soft=True)
    chances = torch.as_tensor(propensities, dtype=batch.logits.dtype, device=batch.logits.device)
    if chances.shape not in ((), batch.logits.shape[-1:]):
        raise ValueError(
            f"propensities must be one number, or one for each of the {batch.logits.shape[-1]} classes, "
            f"got shape {tuple(chances.shape)}"
        )
    if can_check_values(chances) and not bool(((chances > 0) & (chances <= 1)).all()):
        raise ValueError("propensities must be above 0 and at most 1")
    inverse = 1 / chances
    loss_of_positive, loss_of_negative = -F.logsigmoid(batch.logits), -F.logsigmoid(-batch.logits)
    if form == "unbiased":
        weighted = inverse * loss_of_positive - (inverse - 1) * loss_of_negative
    else:
        weighted = (2 * inverse - 1) * loss_of_positive
    return mean_over_labels(batch.positive * weighted + batch.negative * loss_of_negative, weight, reduction)


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
