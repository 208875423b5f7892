"""The high-rank regulariser: predictions of a batch should not all say the same."""

from torch import Tensor

from onepair.losses.batch import can_check_values
from onepair.numerics import logdet_gram


def high_rank_penalty(probabilities: Tensor, *, ridge: float = 1e-6) -> Tensor:
    """`-Σ log σ²` over the singular values σ of a batch's predictions (Li, Wang, Chen 2023, Eq. 8).

        R = -log det(G + ridge · I),   G the smaller of Y Yᵀ and Yᵀ Y

    The factor λ is the caller's; the paper takes 1e-3 everywhere. The ridge keeps value and gradient finite for
    equal rows and for saturated predictions: a singular value pulls with at most 1/√ridge.

    Args:
        probabilities: (B, L), sigmoid of the logits: between 0 and 1, any float dtype.
        ridge: added to every σ².

    Examples:
        >>> import torch
        >>> high_rank_penalty(torch.eye(4, 20)).abs() < 1e-4
        tensor(True)
    """
    if probabilities.ndim < 2 or probabilities.shape[-1] == 0 or not probabilities.is_floating_point():
        raise ValueError(
            "probabilities must be a matrix (batch, classes), or (batch, ..., classes), of floating point numbers, "
            f"got shape {tuple(probabilities.shape)} of {probabilities.dtype}"
        )
    if not ridge > 0:
        raise ValueError(f"ridge must be above 0, got {ridge}")
    probabilities = probabilities.flatten(0, -2)
    if len(probabilities) == 0:
        return probabilities.sum()
    if can_check_values(probabilities):
        lowest, highest = (float(extreme) for extreme in probabilities.detach().aminmax())
        if not (lowest >= 0 and highest <= 1):
            raise ValueError(f"probabilities must lie between 0 and 1, got {lowest} to {highest}; pass sigmoid(logits)")
    return -logdet_gram(probabilities, ridge=ridge)
