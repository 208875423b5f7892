"""Several processes of one run: what they wait for, sharded weights, and batch norms over all of them."""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import Any, TypeVar

import torch
from lightning_fabric import Fabric
from lightning_fabric.strategies.model_parallel import ModelParallelStrategy
from lightning_fabric.utilities.rank_zero import rank_zero_only
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm
from torch.overrides import TorchFunctionMode

from onepair.errors import UserError
from onepair.methods.method import at_least_single

Item = TypeVar("Item")


def is_first() -> bool:
    """Whether this process is the first of those that compute together, or the only one."""
    return getattr(rank_zero_only, "rank", 0) == 0


def first_logger(name: str) -> logging.Logger:
    """A logger that is silent in all processes but the first."""
    logger = logging.getLogger(name)
    logger.addFilter(lambda record: is_first())
    return logger


def on_first(fabric: Fabric, action: Callable[[], object]) -> None:
    """Let the first process do something for all. Where it refuses, all of them stop, and only the first says why."""
    refusal: UserError | None = None
    if fabric.is_global_zero:
        try:
            action()
        except UserError as error:
            refusal = error
    if fabric.broadcast(refusal is not None):
        raise refusal or SystemExit(2)


def leave_to_first(fabric: Fabric) -> None:
    """Go on in the first process only; the others have done their part, and end."""
    if not fabric.is_global_zero:
        raise SystemExit(0)


@contextmanager
def patiently(fabric: Fabric) -> Iterator[None]:
    """At the end of the block, wait for the other processes for as long as they take.

    Any other wait gives up after half an hour, which work that is not done in step may well take.
    """
    if fabric.world_size == 1:
        yield
        return
    group: Any = distributed.new_group(backend="gloo", timeout=timedelta(days=365))
    yield
    distributed.barrier(group)
    distributed.destroy_process_group(group)


def gathered(fabric: Fabric, items: list[Item]) -> list[Item]:
    """The items of all processes, on every one of them."""
    if fabric.world_size == 1:
        return items
    everyone: list[Any] = [None] * fabric.world_size
    distributed.all_gather_object(everyone, items)
    return [item for part in everyone for item in part]


def fsdp() -> ModelParallelStrategy:
    """The strategy in which every process holds a part of each weight, and of its optimiser's state."""
    return ModelParallelStrategy(parallelize_fn=_shard)


def is_spread(tensor: Tensor) -> bool:
    return isinstance(tensor, DTensor)


def whole(state: Any) -> Any:
    """Nested dictionaries and lists with every spread tensor gathered: all processes must ask for it together."""
    if isinstance(state, DTensor):
        return state.full_tensor()
    if isinstance(state, dict):
        return {key: whole(value) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return [whole(value) for value in state]
    return state


def spread_like(value: Tensor, own: Tensor) -> Tensor:
    """A whole tensor as `own` is kept: in parts over the processes, or as it is."""
    if isinstance(own, DTensor):
        return distribute_tensor(value.to(own.device), own.device_mesh, own.placements)
    return value


def load_whole(module: nn.Module, state: dict[str, Tensor]) -> None:
    """Load a state of whole tensors into a module, however its own are kept."""
    own = module.state_dict()
    module.load_state_dict({name: spread_like(tensor, own.get(name, tensor)) for name, tensor in state.items()})


def cpu_state(module: nn.Module) -> dict[str, Tensor]:
    """The state of a module, on the CPU and under its plain names, whatever wraps it."""
    state = whole(module.state_dict())
    return {name.removeprefix("module."): tensor.detach().cpu() for name, tensor in state.items()}


def _shard(module: nn.Module, mesh: DeviceMesh) -> nn.Module:
    module.to(memory_format=torch.contiguous_format)  # the only one that can be cut into parts
    everyone = init_device_mesh(mesh.device_type, (torch.distributed.get_world_size(),))
    for part in sharded_parts(module):
        fully_shard(part, mesh=everyone)
    fully_shard(module, mesh=everyone)
    return module


def sharded_parts(module: nn.Module) -> list[nn.Module]:
    """The blocks of a network, each of which is gathered only while it computes; what is left is gathered throughout.

    A block has at most an eighth of all weights, unless it cannot be taken apart, and at least a two-hundredth: to
    gather less takes longer than to compute with it. A mere sequence is no block, since it may be that only its members
    are called, and blocks are gathered when they are called.
    """
    size = _size(module)
    return list(_blocks(module, largest=size / 8, smallest=size / 200))


def _blocks(module: nn.Module, *, largest: float, smallest: float) -> Iterator[nn.Module]:
    for child in module.children():
        opens = isinstance(child, nn.Sequential | nn.ModuleList | nn.ModuleDict) or _size(child) > largest
        if opens and any(True for _ in child.children()):
            yield from _blocks(child, largest=largest, smallest=smallest)
        elif _size(child) >= smallest:
            yield child


def _size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


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
