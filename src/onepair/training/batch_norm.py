"""Batch norms over the whole batch, however many processes compute it, or by the statistics that they have."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, distributed, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm
from torch.overrides import TorchFunctionMode

from onepair.methods.method import at_least_single


def hold_norms(model: nn.Module) -> None:
    """Let the batch norms of a model that trains keep their means and variances; what they multiply by still learns."""
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            module.eval()


def whole_batch_norms(fabric: Fabric) -> AbstractContextManager[object]:
    """While it is entered, every batch norm that learns takes its mean and variance over all processes.

    It is the function that changes, not the modules: networks bring batch norms of many classes, and under it their
    weights keep their names. With one process nothing changes.
    """
    return _WholeBatchNorms() if fabric.world_size > 1 else nullcontext()


class _WholeBatchNorms(TorchFunctionMode):
    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        called = _whole_batch_norm if func is F.batch_norm else func
        return called(*args, **(kwargs or {}))


def _whole_batch_norm(
    inputs: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """`torch.nn.functional.batch_norm`, of a batch that is spread over processes in parts of any size, even none."""
    if not training:
        return F.batch_norm(inputs, running_mean, running_var, weight, bias, False, momentum, eps)
    mean, variance, count = _statistics(inputs.detach())
    if running_mean is not None and running_var is not None:
        unbiased = variance * (count / (count - 1).clamp(min=1))
        running_mean.lerp_(mean.to(running_mean.dtype), momentum)
        running_var.lerp_(unbiased.to(running_var.dtype), momentum)
    scale = torch.ones_like(mean) if weight is None else weight
    shift = torch.zeros_like(mean) if bias is None else bias
    normalised: Tensor = _Normalise.apply(inputs, scale, shift, mean, variance, count, eps)
    return normalised


def _statistics(part: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The mean and the biased variance (C,) of each channel over all parts, and the number of values in each."""
    values, channels = at_least_single(part), part.shape[1]
    others = [axis for axis in range(part.ndim) if axis != 1]
    size = part.numel() // channels
    variance, mean = torch.var_mean(values, others, correction=0) if size else values.new_zeros(2, channels).unbind()
    mine = torch.cat([mean, variance, mean.new_full((1,), size)])
    parts = [torch.empty_like(mine) for _ in range(distributed.get_world_size())]
    distributed.all_gather(parts, mine)
    means, variances, counts = torch.split(torch.stack(parts), [channels, channels, 1], dim=1)
    count = counts.sum()
    share = counts / count
    whole = (share * means).sum(0)
    return whole, (share * (variances + (means - whole).square())).sum(0), count


class _Normalise(torch.autograd.Function):
    """y = (x - mean) / σ · weight + bias, with σ = √(variance + ε): mean and variance depend on the x of all processes.

    ∂x = weight / σ · (∂y - Σ ∂y / n - x̂ · Σ (∂y · x̂) / n),   x̂ = (x - mean) / σ,   Σ over the n values of all
    """

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        weight: Tensor,
        bias: Tensor,
        mean: Tensor,
        variance: Tensor,
        count: Tensor,
        eps: float,
    ) -> Tensor:
        ctx.save_for_backward(inputs, weight, mean, variance, count)
        ctx.eps = eps
        return F.batch_norm(inputs, mean, variance, weight, bias, False, 0.0, eps)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = gradients
        inputs, weight, mean, variance, count = ctx.saved_tensors
        along = [1, -1, *([1] * (inputs.ndim - 2))]
        deviation = (variance + ctx.eps).rsqrt()
        normal = (inputs - mean.view(along)) * deviation.view(along)
        others = [axis for axis in range(inputs.ndim) if axis != 1]
        for_bias, for_weight = at_least_single(gradient).sum(others), (gradient * normal).sum(others)
        sums = torch.stack([for_bias, for_weight])
        distributed.all_reduce(sums)
        level, slope = (sums / count).unbind()
        centred = gradient - level.view(along) - normal * slope.view(along)
        for_inputs = (centred * (weight * deviation).view(along)).to(inputs.dtype)
        return for_inputs, for_weight.to(weight.dtype), for_bias.to(weight.dtype), None, None, None, None
