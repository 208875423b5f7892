"""Soft OPML: every unknown label is partly positive and partly negative, by a share γ that adapts."""

from torch import Tensor

from onepair.losses.cells import Loss, Reduction, Unknown, can_check_values, cells, reduce, unknown_cells
from onepair.losses.opml import odds
from onepair.numerics import masked_logsumexp, widen


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
        labels: (B, L) of 1 (positive), 0 (negative), -1 (unknown).
        gamma: (B, L) shares in [0, 1]; only those of unknown labels count. If it carries a gradient, the gradient
            flows; detach it where it should not.
        alpha, beta: as in `opml_loss`.
        unknown: "negative": unknown labels are negative but for their share γ. "ignore": they are left out
            altogether, and γ with them.
        reduction: "mean" or "sum" over the rows, or "none" for one value per row.

    With γ = 0 this is `opml_loss` plus the constant log α.

    >>> import torch
    >>> logits, labels = torch.tensor([[0.0, 0.0]]), torch.tensor([[1, -1]])
    >>> soft_opml_loss(logits, labels, gamma=torch.full((1, 2), 0.5), alpha=0.5, beta=0.5)
    tensor(1.5041)
    """
    batch = cells(logits, labels, unknown=unknown)
    if gamma.shape != logits.shape:
        raise ValueError(f"gamma must have the shape of the logits, {tuple(logits.shape)}, got {tuple(gamma.shape)}")
    if can_check_values(gamma) and not bool(((gamma >= 0) & (gamma <= 1)).all()):
        raise ValueError("gamma must hold shares between 0 and 1")

    gamma = widen(gamma, batch.logits.dtype)
    # An ignored label is in no mask; an unknown one that counts as negative gives up its share γ.
    soft_positive = gamma * unknown_cells(labels, gamma.dtype) * batch.negative
    soft_negative = batch.negative - soft_positive
    threshold_positive, threshold_negative = odds(alpha=alpha), odds(beta=beta)
    per_row = (
        masked_logsumexp(-batch.logits, batch.positive, constant=threshold_positive)
        + masked_logsumexp(-batch.logits, soft_positive, constant=threshold_positive)
        + masked_logsumexp(batch.logits, soft_negative, constant=threshold_negative)
    )
    return reduce(per_row, reduction)


class SoftOPMLLoss(Loss):
    """`soft_opml_loss` as a module, called as `loss(logits, labels, gamma=gamma)`."""

    call_tensors = ("gamma",)

    def __init__(
        self,
        alpha: float = 0.6,
        beta: float = 0.4,
        *,
        unknown: Unknown = "negative",
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(soft_opml_loss, alpha=alpha, beta=beta, unknown=unknown, reduction=reduction)
