"""Which engine computes a network: the fastest that the machine has and that the number of images pays for."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from onepair.files import cache_folder
from onepair.inference.engine import MANY, Engine, WithHead
from onepair.inference.graphs import backbone_in_onnx
from onepair.inference.torch_engine import TorchEngine, best_devices, on_cpu
from onepair.models import Backbone, Classifier, GivenVectors

SOME = 64  # images for which batch norms are folded into convolutions


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
        return self._folded if images >= SOME else self._plain

    @cached_property
    def _head(self) -> Engine:
        network = self.network.head if isinstance(self.network, Classifier) else self.network
        return TorchEngine(network, None, devices=self.devices, precision=self.precision)

    @cached_property
    def _plain(self) -> Engine:
        return TorchEngine(self.network, self.backbone.preprocessing, devices=self.devices, precision=self.precision)

    @cached_property
    def _folded(self) -> Engine:
        folded = self.backbone.for_inference()
        network = torch.nn.Sequential(folded, self.network.head) if isinstance(self.network, Classifier) else folded
        return TorchEngine(network, self.backbone.preprocessing, devices=self.devices, precision=self.precision)

    @cached_property
    def _onnx(self) -> Engine | None:
        engine = backbone_in_onnx(self.backbone, cache=self.cache)
        if engine is None or not isinstance(self.network, Classifier):
            return engine
        weight, bias = (tensor.detach().float().cpu().numpy() for tensor in self.network.head.parameters())
        return WithHead(engine, weight, bias)
