"""Losses of log-sum-exps: ZLPR, a special case of OPML, and the two-way loss, which also ranks rows by class."""

import torch
from torch import Tensor
from torch.nn import functional as F

from onepair.losses.batch import Loss, LossBatch, Reduction, Unknown, loss_batch
from onepair.losses.opml import opml_loss


def zlpr_loss(
    logits: Tensor,
    labels: Tensor,
    *,
    unknown: Unknown = "negative",
    reduction: Reduction = "mean",
) -> Tensor:
    """ZLPR loss (Su et al. 2022): OPML with α̃ = β̃ = 0.5, so that α = β = 1.

        L = log(1 + Σ_{p∈Ωp} exp(-s_p)) + log(1 + Σ_{n∈Ωn} exp(s_n))

    Shapes, `unknown` and `reduction` as in `opml_loss`.

    Examples:
        >>> import torch
        >>> zlpr_loss(torch.tensor([[0.0, 0.0]]), torch.tensor([[1, 0]]))
        tensor(1.3863)
    """
    return opml_loss(logits, labels, alpha=0.5, beta=0.5, unknown=unknown, reduction=reduction)


class ZLPRLoss(Loss):
    """`zlpr_loss` as a module.

    Examples:
        >>> import torch
        >>> ZLPRLoss()(torch.zeros(1, 2), torch.tensor([[1, 0]]))
        tensor(1.3863)
    """

    function = staticmethod(zlpr_loss)


def two_way_loss(
    logits: Tensor,
    labels: Tensor,
    *,
    positive_temperature: float = 4.0,
    negative_temperature: float = 1.0,
    unknown: Unknown = "negative",
) -> Tensor:
    """Two-way loss (Kobayashi 2023): the mean over rows, plus the mean over classes, of

        softplus(T_n log Σ_n exp(s_n / T_n) + T_p log Σ_p exp(-s_p / T_p))

    over the positive and the negative cells of a row, or of a column. Rows and columns without one kind add nothing and
    are not counted. It is of the batch as a whole, so there is no value per row.

    Args:
        logits: (B, L) scores, any float dtype.
        labels: (B, L) of 1 (positive), 0 (negative), -1 or NaN (unknown).
        positive_temperature, negative_temperature: T_p and T_n.
        unknown: what an unknown label counts as: "negative", or "ignore", which takes no part.

    Examples:
        >>> two_way_loss(torch.zeros(1, 2), torch.tensor([[1, 0]]))  # log 2 of the row, nothing of the two columns
        tensor(0.6931)
    """
    for name, value in (("positive", positive_temperature), ("negative", negative_temperature)):
        if not value > 0:
            raise ValueError(f"{name}_temperature must be above 0, got {value}")
    batch = LossBatch(*(each.flatten(0, -2) for each in loss_batch(logits, labels, unknown=unknown)))
    if batch.logits.numel() == 0:
        return batch.logits.sum()
    # The score of a cell that takes no part: below all others, and finite so that its gradient is 0 and not undefined.
    nowhere = torch.finfo(batch.logits.dtype).min / (4 * max(positive_temperature, negative_temperature, 1))
    lowest_positives = torch.where(batch.positive > 0, -batch.logits / positive_temperature, nowhere)
    highest_negatives = torch.where(batch.negative > 0, batch.logits / negative_temperature, nowhere)
    total = batch.logits.new_zeros(())
    for over in (1, 0):
        gap = positive_temperature * lowest_positives.logsumexp(over)
        gap = gap + negative_temperature * highest_negatives.logsumexp(over)
        both = batch.positive.amax(over) * batch.negative.amax(over)
        # softplus(gap), which torch's own takes for gap itself above 20
        total = total - (both * F.logsigmoid(-gap)).sum() / both.sum().clamp(min=1)
    return total


class TwoWayLoss(Loss):
    """`two_way_loss` as a module."""

    function = staticmethod(two_way_loss)
