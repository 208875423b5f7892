"""The engine by torch, and which engine computes a network."""

import copy
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from onepair.data.images.batches import normalise
from onepair.data.images.decode import Preprocessing
from onepair.files import cache_folder
from onepair.inference.engine import MANY, Engine, Float32, WithHead
from onepair.inference.graphs import backbone_in_onnx
from onepair.models import Backbone, Classifier, GivenVectors

ON_CPU, ON_GPU = 8, 64  # images at a time: few stay within a CPU's cache
VECTORS_AT_ONCE = 512


class TorchEngine:
    """A network in evaluation mode, as a copy: the one given stays as it is and where it is.

    Args:
        network: takes normalised images (B, 3, S, S), or features (B, D).
        preprocessing: how images are normalised; None where inputs are features.
        devices: each computes a part of every batch; by default `best_devices()`. They are looked for when there is
            something to compute, so that what computes elsewhere may be made where they are not.
        precision: on GPUs, as Fabric calls it. CPUs compute in float32, which is finer, and faster on most of them.
    """

    name = "torch"

    def __init__(
        self,
        network: nn.Module,
        preprocessing: Preprocessing | None,
        *,
        devices: Sequence[torch.device] | None = None,
        precision: Any = "32-true",
    ) -> None:
        self.devices = list(devices or best_devices())
        self.preprocessing = preprocessing
        self.precision = precision
        self._network = copy.deepcopy(network).cpu().eval()
        each = ON_CPU if on_cpu(self.devices) else ON_GPU
        self.batch_size = len(self.devices) * (each if preprocessing is not None else VECTORS_AT_ONCE)

    @cached_property
    def copies(self) -> list[nn.Module]:
        """The network on each device."""
        return [_on_device(self._network, device, self.precision) for device in self.devices]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "copies"}

    def __call__(self, inputs: NDArray[Any]) -> Float32:
        copies, parts = self.copies, np.array_split(inputs, len(self.devices))
        with torch.inference_mode():
            # A GPU computes while this process goes on to the next; only to fetch what is done does it wait.
            computed = [self._compute(*each) for each in zip(copies, self.devices, parts, strict=True) if len(each[2])]
            fetched = [part.float().cpu() for part in computed]
            found: Float32 = (fetched[0] if len(fetched) == 1 else torch.cat(fetched)).numpy()
        return found

    def _compute(self, network: nn.Module, device: torch.device, part: NDArray[Any]) -> Tensor:
        if self.preprocessing is None:
            output: Tensor = network(torch.tensor(part).to(device).float())
        else:
            images = torch.from_numpy(part).permute(0, 3, 1, 2).to(device, non_blocking=True)
            output = network(normalise(images, self.preprocessing))
        return output


def best_devices() -> list[torch.device]:
    """All GPUs, or else the best device at hand."""
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return [torch.device("cuda", index) for index in range(gpus)] or [torch.device(_best_kind())]


def _best_kind() -> str:
    return "mps" if torch.backends.mps.is_available() else "cpu"


def on_cpu(devices: Sequence[torch.device]) -> bool:
    return all(device.type == "cpu" for device in devices)


def _on_device(network: nn.Module, device: torch.device, precision: Any) -> nn.Module:
    if device.type == "cpu":
        return network
    own = copy.deepcopy(network)
    if precision == "32-true":
        return own.to(device)

    from lightning_fabric import Fabric  # which takes its time, and is only asked for precision here

    fabric = Fabric(accelerator=device.type, devices=[device.index or 0], precision=precision)
    wrapped: nn.Module = fabric.setup_module(own)
    return wrapped


class Engines:
    """The engines of a classifier or of a backbone alone, each made when it is first needed.

    On CPUs ONNX Runtime computes many images, if it can be had and gives what torch gives; torch the few, and all on
    GPUs. The number of images alone decides: whether a graph was made before changes no figure.

    Args:
        network: is copied, and stays as it is.
        devices: by default all GPUs, or else the CPU.
        precision: as for `TorchEngine`.
        cache: keeps the graphs; by default the user's.
    """

    def __init__(
        self,
        network: Backbone | Classifier,
        *,
        devices: Sequence[torch.device] | None = None,
        precision: Any = "32-true",
        cache: Path | None = None,
    ) -> None:
        self.network, self.precision = network, precision
        self.backbone = network.backbone if isinstance(network, Classifier) else network
        self.devices = list(devices or best_devices())
        self.cache = cache or cache_folder()

    def on(self, devices: Sequence[torch.device]) -> "Engines":
        """The engines of the same network on other devices, which may be those of another machine."""
        return Engines(self.network, devices=devices, precision=self.precision, cache=self.cache)

    def __call__(self, images: int) -> Engine:
        """The engine for so many images; only torch computes the map that a boosted classifier needs, and vectors."""
        if isinstance(self.backbone, GivenVectors):
            return self._head
        if isinstance(self.network, Classifier) and self.network.boost != 1:
            return self._plain
        if images >= MANY and on_cpu(self.devices) and self._onnx is not None:
            return self._onnx
        return self._plain

    @cached_property
    def _head(self) -> Engine:
        network = self.network.head if isinstance(self.network, Classifier) else self.network
        return TorchEngine(network, None, devices=self.devices, precision=self.precision)

    @cached_property
    def _plain(self) -> Engine:
        return TorchEngine(self.network, self.backbone.preprocessing, devices=self.devices, precision=self.precision)

    @cached_property
    def _onnx(self) -> Engine | None:
        engine = backbone_in_onnx(self.backbone, cache=self.cache)
        if engine is None or not isinstance(self.network, Classifier):
            return engine
        weight, bias = (tensor.detach().float().cpu().numpy() for tensor in self.network.head.parameters())
        return WithHead(engine, weight, bias)
