"""Binary cross entropy that makes up for positives that were not observed, by how often they are."""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from onepair.losses.batch import Reduction, Unknown, can_check_values, check_choice, loss_batch, mean_over_labels

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
