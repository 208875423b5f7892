"""A device that is not the CPU, for machines that have no other.

Its tensors hold a CPU tensor and say that they are elsewhere. Whoever computes with them and with the CPU's own gets
the error that a GPU would give, and every wait of the CPU for a number of theirs is counted.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

DEVICE = torch.device("meta")  # the one that torch has everywhere, and without a driver

# What makes the CPU wait for a device: a number of its, or the shape of what is chosen by its numbers.
_WAITING = {"_local_scalar_dense", "is_nonzero", "equal", "nonzero", "masked_select", "unique", "_unique2"}


class MixedDevicesError(RuntimeError):
    """Tensors of two devices in one operation."""


class Elsewhere(torch.Tensor):
    """A tensor on the other device."""

    held: torch.Tensor
    is_meta = False

    @staticmethod
    def __new__(cls, held):
        self = torch.Tensor._make_wrapper_subclass(
            cls,
            held.shape,
            strides=held.stride(),
            dtype=held.dtype,
            device=DEVICE,
            requires_grad=held.requires_grad,
        )
        self.held = held
        return self

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        raise AssertionError(f"{function} was called after the other device had gone")

    def tolist(self):
        return self.cpu().tolist()

    def __repr__(self, **_):
        return f"Elsewhere({self.held!r})"


class _Dispatch(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.waits: list[str] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        name = function._schema.name.removeprefix("aten::")
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        away = [tensor for tensor in tensors if isinstance(tensor, Elsewhere)]
        target = kwargs.get("device")
        copies = name in ("_to_copy", "copy_", "set_.source_Tensor")
        if away and not copies:
            self._require_one_device(function, tensors)
        if away and (name in _WAITING or (copies and _lands_on_cpu(name, args, target))):
            self.waits.append(name)
        if name.startswith("index") and any(_is_mask(leaf) for leaf in tree_leaves(args[1:])):
            self.waits.append(name)
        stays = bool(away) if target is None else torch.device(target).type == DEVICE.type
        if name == "copy_":
            stays = isinstance(args[0], Elsewhere)
        if target is not None:
            kwargs["device"] = torch.device("cpu")
        results = function(*tree_map(_held, args), **tree_map(_held, kwargs))
        return tree_map(lambda result: self._placed(result, away, stays=stays), results)

    def _require_one_device(self, function, tensors) -> None:
        # A single number of the CPU's may be combined with anything.
        here = [tensor for tensor in tensors if not isinstance(tensor, Elsewhere) and tensor.ndim > 0]
        if here:
            raise MixedDevicesError(f"{function}: tensors on {DEVICE} and on the CPU, as one {tuple(here[0].shape)}")

    def _placed(self, result, away, *, stays):
        if not isinstance(result, torch.Tensor) or not stays:
            return result
        for tensor in away:  # what was changed in place stays the object that it was
            if tensor.held is result:
                return tensor
        return Elsewhere(result)


class _Making(TorchFunctionMode):
    """torch.tensor copies to its device where no dispatch is seen: here it is told to make one first, and then copy."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        device = kwargs.pop("device", None) if function in (torch.tensor, torch.as_tensor) else None
        made = function(*args, **kwargs)
        return made if device is None else made.to(device)


def _held(value):
    return value.held if isinstance(value, Elsewhere) else value


def _is_mask(value) -> bool:
    return isinstance(value, Elsewhere) and value.dtype == torch.bool


def _lands_on_cpu(name, args, target) -> bool:
    if name == "copy_":
        return not isinstance(args[0], Elsewhere)
    return target is not None and torch.device(target).type == "cpu"


@contextmanager
def other_device(monkeypatch) -> Iterator[list[str]]:
    """Let there be another device, the best one at hand: yields the list that waits for it are written to."""
    from lightning_fabric import Fabric

    optimisers = import_module("torch.optim.optimizer")
    monkeypatch.setattr(optimisers, "_get_fused_kernels_supported_devices", lambda: [DEVICE.type])
    autocast = torch.autocast
    monkeypatch.setattr(torch, "autocast", lambda device, **options: autocast(device.replace("meta", "cpu"), **options))
    # Fabric takes our device for the one on which there are no numbers.
    monkeypatch.setattr("lightning_fabric.fabric._has_meta_device_parameters_or_buffers", lambda *_, **__: False)
    monkeypatch.setattr(Fabric, "device", DEVICE)
    monkeypatch.setattr(Fabric, "to_device", lambda fabric, thing: thing.to(DEVICE))
    with _Making(), _Dispatch() as mode:
        yield mode.waits
