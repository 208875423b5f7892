"""What a run computes on, and what its processes do for each other."""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from lightning_fabric import Fabric
from lightning_fabric.utilities.rank_zero import rank_zero_only
from torch import Tensor, distributed, nn
from torch.nn.modules.batchnorm import _BatchNorm

from onepair.errors import ConfigError
from onepair.files import cache_folder
from onepair.inference.engine import Executor, local
from onepair.runs.task import RunCache

Item = TypeVar("Item")


@dataclass(frozen=True)
class Hardware:
    """What a run computes on. It may change when a run is resumed, since it does not decide what is computed.

    Args:
        accelerator: "cpu", "gpu", or what else Lightning Fabric knows; "auto" takes the best there is.
        devices: how many of them.
        num_nodes: machines that compute together.
        strategy: how devices share the work, for example "ddp".
        workers: processes that read images; 0 reads in this one, and by default as many as there are cores to spare.
        cache: the folder of computed features.
        executor: where the features of images are computed.
        shared: what runs with this very object keep for those after them.

    Examples:
        >>> Hardware(devices=1, workers=0).accelerator
        'auto'
    """

    accelerator: str = "auto"
    devices: int | Literal["auto"] = "auto"
    num_nodes: int = 1
    strategy: str = "auto"
    workers: int | None = None
    cache: Path = field(default_factory=cache_folder)
    executor: Executor = local
    shared: RunCache = field(default_factory=RunCache)

    def fabric(self, precision: Any) -> Fabric:
        if any(kind in self.strategy for kind in ("fsdp", "deepspeed")):
            raise ConfigError(
                f"--strategy {self.strategy} splits a network over devices, and here each has it whole; choose ddp"
            )
        one_cpu = self.devices == "auto" and not torch.cuda.is_available()
        try:
            return Fabric(
                accelerator=self.accelerator,
                devices=1 if one_cpu else self.devices,
                num_nodes=self.num_nodes,
                strategy=self.strategy,
                precision=precision,
            )
        except (ValueError, RuntimeError, ImportError) as error:  # Fabric's words on a machine that is not this one
            raise ConfigError(f"cannot compute as asked: {error}") from None


@contextmanager
def without_driver_lookups() -> Iterator[None]:
    """Say that there are no GPUs, where there are none: optimisers look for a driver at every step otherwise."""
    name = "CUDA_VISIBLE_DEVICES"
    before = os.environ.get(name)
    if torch.cuda.is_available():
        yield
        return
    os.environ[name] = ""
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


@contextmanager
def own_random_state() -> Iterator[None]:
    """Leave torch's random state to the program around: what is drawn within follows from the seed of the run."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        yield


def is_first() -> bool:
    """Whether this process is the first of those that compute together, or the only one."""
    return getattr(rank_zero_only, "rank", 0) == 0


def first_logger(name: str) -> logging.Logger:
    """A logger that is silent in all processes but the first."""
    logger = logging.getLogger(name)
    logger.addFilter(lambda record: is_first())
    return logger


def on_first(fabric: Fabric, action: Callable[[], object]) -> None:
    """Let the first process do something for all. Where it fails, all of them stop, and only the first says why."""
    failure: BaseException | None = None
    if fabric.is_global_zero:
        try:
            action()
        except BaseException as error:  # whatever it is: the others wait
            failure = error
    if fabric.broadcast(failure is not None):
        raise failure or SystemExit(2)


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


def cpu_state(module: nn.Module) -> dict[str, Tensor]:
    """The state of a module, on the CPU and under its plain names, whatever wraps it."""
    return {name.removeprefix("module."): tensor.detach().cpu() for name, tensor in module.state_dict().items()}


def hold_norms(model: nn.Module) -> None:
    """Let the batch norms of a model that trains keep their means and variances; what they multiply by still learns."""
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            module.eval()


def share_norms(fabric: Fabric, model: nn.Module) -> None:
    """Let the batch norms of a model take their means and variances over all processes.

    torch has them for GPUs alone: on CPUs, several processes hold their norms instead, for which see `holds_norms`.
    """
    if fabric.world_size > 1 and not holds_norms(fabric):
        from timm.layers.norm_act import convert_sync_batchnorm

        convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]


def holds_norms(fabric: Fabric) -> bool:
    """Whether the processes cannot share batch norms, and so have to hold them."""
    return fabric.world_size > 1 and fabric.device.type == "cpu"
