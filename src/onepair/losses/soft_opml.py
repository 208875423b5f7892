"""Soft OPML: every unknown label is partly positive and partly negative, by a share γ that adapts."""

import torch
from torch import Tensor

from onepair.losses.batch import (
    Loss,
    Reduction,
    Unknown,
    can_check_values,
    check_batch,
    masks,
    reduce,
    unknown_cells,
)
from onepair.losses.opml import odds
from onepair.numerics import masked_logsumexp, widen

_MANY = 2**16  # cells for which the shorter way pays
_ORDINARY = 40.0  # logits up to which exp(s) and exp(-s) of any number of labels can be summed in float32


def soft_opml_loss(
    logits: Tensor,
    labels: Tensor,
    *,
    gamma: Tensor,
    alpha: float = 0.6,
    beta: float = 0.4,
    unknown: Unknown = "negative",
    reduction: Reduction = "mean",
) -> Tensor:
    """OPML with soft unknown labels (Li, Wang, Chen 2023, Eq. 9).

        L = log(α + Σ_{p∈Ωp} exp(-s_p)) + log(α + Σ_{l∈U} γ_l exp(-s_l))
          + log(β + Σ_{n known} exp(s_n) + Σ_{l∈U} (1-γ_l) exp(s_l))

    In the paper γ_l = sigmoid(s_l) · AP_l^ε, with AP_l the average precision of label l on the training set.
    α and β are the odds of `alpha` and `beta`, as in `opml_loss`.

    Args:
        logits: (B, L) scores, any float dtype.
        labels: (B, L) of 1 (positive), 0 (negative), -1 or NaN (unknown).
        gamma: (B, L) shares in [0, 1]; only those of unknown labels count. If it carries a gradient, the gradient
            flows; detach it where it should not.
        alpha, beta: as in `opml_loss`.
        unknown: "negative": unknown labels are negative but for their share γ. "ignore": they are left out
            altogether, and γ with them.
        reduction: "mean" or "sum" over the rows, or "none" for one value per row.

    With γ = 0 this is `opml_loss` plus the constant log α.

    Examples:
        >>> import torch
        >>> logits, labels = torch.tensor([[0.0, 0.0]]), torch.tensor([[1, -1]])
        >>> soft_opml_loss(logits, labels, gamma=torch.full((1, 2), 0.5), alpha=0.5, beta=0.5)
        tensor(1.5041)
    """
    logits, labels = check_batch(logits, labels, unknown=unknown)
    if gamma.shape != logits.shape:
        raise ValueError(f"gamma must have the shape of the logits, {tuple(logits.shape)}, got {tuple(gamma.shape)}")
    checked = can_check_values(logits) and can_check_values(gamma)
    if checked and gamma.numel():
        lowest, highest = map(float, gamma.detach().aminmax())
        if not (lowest >= 0 and highest <= 1):
            raise ValueError("gamma must hold shares between 0 and 1")
    gamma = widen(gamma, logits.dtype)
    threshold_positive, threshold_negative = odds(alpha=alpha), odds(beta=beta)
    many = checked and logits.numel() >= _MANY
    ordinary = many and max(map(abs, map(float, logits.detach().aminmax()))) <= _ORDINARY
    soft_pairs = _ordinary_soft_pairs if ordinary else _soft_pairs
    return reduce(soft_pairs(logits, gamma, labels, unknown, threshold_positive, threshold_negative), reduction)


def _soft_pairs(logits: Tensor, gamma: Tensor, labels: Tensor, unknown: Unknown, alpha: float, beta: float) -> Tensor:
    """The three terms of Eq. 9 per row, for logits of any size."""
    positive, negative = masks(labels, logits.dtype, unknown=unknown)
    # An ignored label is in no mask; an unknown one that counts as negative gives up its share γ.
    soft_positive = gamma * unknown_cells(labels, gamma.dtype) * negative
    return (
        masked_logsumexp(-logits, positive, constant=alpha)
        + masked_logsumexp(-logits, soft_positive, constant=alpha)
        + masked_logsumexp(logits, negative - soft_positive, constant=beta)
    )


def _ordinary_soft_pairs(
    logits: Tensor, gamma: Tensor, labels: Tensor, unknown: Unknown, alpha: float, beta: float
) -> Tensor:
    """The same for logits whose exponentials can be summed as they are, in a third of the time."""
    positive, negative = masks(labels, logits.dtype, unknown=unknown)
    soft_positive = gamma * unknown_cells(labels, gamma.dtype) * negative
    rising, falling = logits.exp(), (-logits).exp()
    terms = ((positive, falling, alpha), (soft_positive, falling, alpha), (negative - soft_positive, rising, beta))
    logs: list[Tensor] = [(torch.linalg.vecdot(weight, each) + constant).log() for weight, each, constant in terms]
    return logs[0] + logs[1] + logs[2]


class SoftOPMLLoss(Loss):
    """`soft_opml_loss` as a module, called as `loss(logits, labels, gamma=gamma)`.

    Examples:
        >>> loss = SoftOPMLLoss(alpha=0.5, beta=0.5)
        >>> loss(torch.zeros(1, 2), torch.tensor([[1, -1]]), gamma=torch.full((1, 2), 0.5))
        tensor(1.5041)
    """

    function = staticmethod(soft_opml_loss)
    call_tensors = ("gamma",)
