"""What a run computes on."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from lightning_fabric import Fabric

from onepair.errors import ConfigError
from onepair.files import cache_folder
from onepair.inference.engine import Executor, local
from onepair.runs.task import RunCache


@dataclass(frozen=True)
class Hardware:
    """What a run computes on. It may change when a run is resumed, since it does not decide what is computed."""

    accelerator: str = "auto"
    devices: int | Literal["auto"] = "auto"
    num_nodes: int = 1
    strategy: str = "auto"
    workers: int | None = None  # processes that read images; None: as many as there are cores to spare
    cache: Path = field(default_factory=cache_folder)
    executor: Executor = local  # where the features of images are computed
    shared: RunCache = field(default_factory=RunCache)  # by runs with this very object, one after another

    def fabric(self, precision: Any) -> Fabric:
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
