"""Numerically safe building blocks: finite values and gradients wherever the mathematics has them."""

import math
from typing import Any

import torch
from torch import Tensor


def masked_logsumexp(values: Tensor, weights: Tensor, *, constant: float) -> Tensor:
    """`log(constant + Σ weights · exp(values))` over the last dimension, differentiable in values and weights.

    A weight is 0 or 1 where it masks, or anything between. `constant` > 0 keeps the result finite when every weight
    is 0. The gradient is exact, also at a weight of 0, as long as `exp(values)` itself is within reach of the dtype.

    Examples:
        >>> masked_logsumexp(torch.tensor([1e4, 0.0]), torch.tensor([0.0, 1.0]), constant=1.0)
        tensor(0.6931)
    """
    # The largest term becomes 1. A cell of weight 0 has no say in that, and may exceed it: hence the clamp.
    with torch.no_grad():
        largest = (values + weights.log()).amax(-1, keepdim=True).clamp(min=math.log(constant))
    scaled = (values - largest).clamp(max=math.log(torch.finfo(values.dtype).max) - 1).exp()
    total = (weights * scaled).sum(-1) + constant * (-largest).exp().squeeze(-1)
    return largest.squeeze(-1) + total.log()


def logdet_gram(matrix: Tensor, *, ridge: float) -> Tensor:
    """`log det(G + ridge · I)` of the smaller Gram matrix G of a (B, L) matrix: `Σ log(σ² + ridge)` over min(B, L) σ.

    Both Gram matrices share their non-zero eigenvalues, and the larger one is singular unless B = L. Computed in
    float64 under any autocast, because the eigenvalues are squares: rounding in float32 would exceed the ridge.

    Examples:
        >>> logdet_gram(torch.eye(2, 3), ridge=1e-6)
        tensor(2.0000e-06)
    """
    device = matrix.device
    with torch.autocast(device.type, enabled=False):
        exact = (matrix.cpu() if device.type == "mps" else matrix).double()  # Apple GPUs have no float64
        wide = exact if exact.shape[0] <= exact.shape[1] else exact.T
        logdet: Tensor = _LogDetGram.apply(wide, ridge)[0]
    return logdet.to(torch.promote_types(matrix.dtype, torch.float32)).to(device)


def _ridged(wide: Tensor, ridge: float) -> Tensor:
    return wide @ wide.mT + ridge * torch.eye(wide.shape[-2], dtype=wide.dtype, device=wide.device)


class _LogDetGram(torch.autograd.Function):
    """`log det(X Xᵀ + ridge · I)`; its gradient 2 (X Xᵀ + ridge · I)⁻¹ X by one product, where autograd takes two."""

    generate_vmap_rule = True

    @staticmethod
    def forward(wide: Tensor, ridge: float) -> tuple[Tensor, Tensor]:
        gram = _ridged(wide, ridge)
        return torch.linalg.slogdet(gram).logabsdet, torch.linalg.inv(gram)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(inputs[0], output[1])
        ctx.mark_non_differentiable(output[1])
        ctx.ridge = inputs[1]

    @staticmethod
    def backward(ctx: Any, upstream: Tensor, _: Tensor) -> tuple[Tensor, None]:
        wide, inverse = ctx.saved_tensors
        if torch.is_grad_enabled():  # the gradient itself is to be differentiated
            inverse = torch.linalg.inv(_ridged(wide, ctx.ridge))
        return (2 * upstream * inverse) @ wide, None


def widen(values: Tensor, dtype: torch.dtype) -> Tensor:
    """`values` in another dtype; a gradient beyond a narrower one comes back as its largest number, not infinity."""
    widened: Tensor = _Widen.apply(values, dtype)
    return widened


class _Widen(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(values: Tensor, dtype: torch.dtype) -> Tensor:
        return values.to(dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, torch.dtype], output: Tensor) -> None:
        ctx.narrow = inputs[0].dtype

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:
        largest = min(torch.finfo(ctx.narrow).max, torch.finfo(upstream.dtype).max)
        return upstream.clamp(-largest, largest).to(ctx.narrow), None
