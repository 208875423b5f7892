"""Models whose weights are spread over processes, and plain ones: for the rest of the training they look the same."""

from collections.abc import Iterator
from typing import Any

import torch
from lightning_fabric.strategies.model_parallel import ModelParallelStrategy
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor


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
