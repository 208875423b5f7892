"""The loss of OPML+: known positives are pulled up, all other labels kept low, as far as they can be trusted."""

import math
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from onepair.labels import UNKNOWN
from onepair.losses.batch import (
    Loss,
    Reduction,
    can_check_values,
    check_at_least_zero,
    check_batch,
    check_choice,
    label_weights,
    masks,
    reduce,
    unknown_cells,
)
from onepair.losses.opml import odds

_MANY, _FEW = 2**16, 1 / 64  # cells, and the share of them that is known at most, for which the shorter way pays


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
    """OPML+ of one batch, the sum over the labels of a row; `onepair.methods.opml_plus` says why.

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
