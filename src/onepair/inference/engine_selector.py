"""Which engine computes a network: torch, or for many images on CPUs ONNX Runtime."""

import copy
import hashlib
import json
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from onepair.data.images.batches import normalise
from onepair.data.images.blocks import images_of, stream_images
from onepair.data.images.decode import Preprocessing
from onepair.data.label_table import LabelTable, Report, raise_problem
from onepair.files import cache_folder, write_atomically
from onepair.inference.engine import MANY, Engine, Executor, Float32, OnnxEngine, WithHead, local, open_session
from onepair.inference.export import PACKAGES, fits, missing_packages, random_images, to_onnx
from onepair.labels import Indices
from onepair.models import Backbone, Classifier, IdentityBackbone

ON_CPU, ON_GPU = 8, 64  # images at a time: few stay within a CPU's cache
VECTORS_AT_ONCE = 512
_TOLERANCE = 1e-4  # between features of ONNX Runtime and of torch, relative to the largest


class TorchEngine:
    """A network in evaluation mode, as a copy: the one given stays as it is and where it is.

    Args:
        network: takes normalised images (B, 3, S, S), or features (B, D).
        preprocessing: how images are normalised; None where inputs are features.
        devices: each computes a part of every batch; by default `best_devices()`.
        precision: on GPUs, as Fabric calls it. CPUs compute in float32, which is finer, and faster on most of them.
    """

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
        each = ON_CPU if _on_cpu(self.devices) else ON_GPU
        self.batch_size = len(self.devices) * (each if preprocessing is not None else VECTORS_AT_ONCE)

    @cached_property
    def copies(self) -> list[nn.Module]:
        """The network on each device, made when there is something to compute: perhaps in another process."""
        return [_on_device(self._network, device, self.precision) for device in self.devices]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "copies"}

    def __call__(self, inputs: NDArray[Any]) -> Float32:
        copies, parts = self.copies, np.array_split(inputs, len(self.devices))  # copies are no inference tensors
        with torch.inference_mode():
            # A GPU computes while this process goes on to the next; only to fetch what is done does it wait.
            each = zip(copies, self.devices, parts, strict=True)
            computed = [self._compute(network, device, part) for network, device, part in each if len(part)]
            outputs: Float32 = torch.cat([part.float().cpu() for part in computed]).numpy()
        return outputs

    def _compute(self, network: nn.Module, device: torch.device, part: NDArray[Any]) -> Tensor:
        if self.preprocessing is None:
            output: Tensor = network(torch.tensor(part).to(device).float())
        else:
            images = torch.from_numpy(part).permute(0, 3, 1, 2).to(device, non_blocking=True)
            output = network(normalise(images, self.preprocessing))
        return output


def best_devices() -> list[torch.device]:
    """Return all GPUs, or else the best device at hand."""
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    other = "mps" if torch.backends.mps.is_available() else "cpu"
    return [torch.device("cuda", index) for index in range(gpus)] or [torch.device(other)]


def _on_cpu(devices: Sequence[torch.device]) -> bool:
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


def backbone_in_onnx(backbone: Backbone, *, cache: Path) -> OnnxEngine | None:
    """Make the engine of a backbone by ONNX Runtime; None where there is none that gives torch's features.

    To make the graph and compare it with torch takes some seconds; it is kept in `graphs` of the cache folder, under a
    name made of all that decides it. An empty file there says that it could not be made.
    """
    if missing_packages() or not fits(backbone.network):
        return None
    decides = {
        "weights": backbone.weights_id(),
        "preprocessing": asdict(backbone.preprocessing),
        "versions": [version(name) for name in ("torch", *PACKAGES)],
    }
    key = hashlib.sha256(json.dumps(decides).encode()).hexdigest()[:32]
    file = cache / "graphs" / f"{backbone.name.replace('/', '-')}-{key}.onnx"
    try:
        content = file.read_bytes()
    except OSError:
        content = _checked_graph(backbone)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, content)
    try:
        return OnnxEngine(open_session(content), "features", file=file) if content else None
    except Exception:  # a damaged file; the runtime has a dozen kinds for that
        file.unlink(missing_ok=True)
        return None


class _FromPixels(nn.Module):
    """A backbone that normalises its images itself."""

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.network = copy.deepcopy(backbone.network).cpu().eval()
        self.preprocessing = backbone.preprocessing

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.network(normalise(images.permute(0, 3, 1, 2), self.preprocessing))
        return features


def _checked_graph(backbone: Backbone) -> bytes:
    """Make the graph, or nothing where that fails or gives something else than torch."""
    network = _FromPixels(backbone)
    images = random_images(backbone.preprocessing, 3)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what cannot be exported is computed by torch: nothing to worry about
            content = to_onnx(network, images[:2], outputs=["features"])
        found = OnnxEngine(open_session(content), "features")(images.numpy())
    except Exception:  # the exporter and the runtime fail in every way there is
        return b""
    with torch.inference_mode():
        expected = network(images).numpy()
    return content if np.abs(found - expected).max() <= _TOLERANCE * np.abs(expected).max() else b""


class EngineSelector:
    """Chooses the engine of a classifier or of a backbone alone; each is made when it is first needed.

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

    def on(self, devices: Sequence[torch.device]) -> "EngineSelector":
        """Choose for the same network on other devices, which may be those of another machine."""
        return EngineSelector(self.network, devices=devices, precision=self.precision, cache=self.cache)

    def __call__(self, images: int) -> Engine:
        """Return the engine for so many images; only torch computes vectors, and a classifier with a boost."""
        boosted = isinstance(self.network, Classifier) and self.network.boost != 1
        if images < MANY or boosted or isinstance(self.backbone, IdentityBackbone) or not _on_cpu(self.devices):
            return self._torch
        return self._onnx or self._torch

    @cached_property
    def _torch(self) -> Engine:
        network: nn.Module = self.network
        if isinstance(self.backbone, IdentityBackbone):
            network = self.network.head if isinstance(self.network, Classifier) else self.network
            return TorchEngine(network, None, devices=self.devices, precision=self.precision)
        return TorchEngine(network, self.backbone.preprocessing, devices=self.devices, precision=self.precision)

    @cached_property
    def _onnx(self) -> Engine | None:
        engine = backbone_in_onnx(self.backbone, cache=self.cache)
        if engine is None or not isinstance(self.network, Classifier):
            return engine
        return WithHead(engine, TorchEngine(self.network.head, None, devices=self.devices))


def score_images(
    classifier: Classifier,
    table: LabelTable,
    rows: Indices,
    *,
    precision: Any = "32-true",
    engines: EngineSelector | None = None,
    workers: int | None = None,
    report: Report = raise_problem,
    executor: Executor = local,
) -> Float32:
    """Compute the logits (N, L) of rows of a table, on the best devices at hand. The classifier stays as it is.

    Args:
        classifier: on any device.
        table, rows: which images, vectors or texts.
        precision: on GPUs, as Fabric calls it; that of the run, if the scores are to be its own.
        engines: those of the classifier, where it is asked more than once.
        workers: threads that read images; None is one per core.
        report: is told of each image that cannot be read; if it returns, the image's scores are NaN.
        executor: where images are computed, for example `onepair.inference.ray_engine.Cluster.over`.
    """
    engines, backbone = engines or EngineSelector(classifier, precision=precision), classifier.backbone
    scores = np.full((len(rows), len(classifier.classes)), np.nan, np.float32)
    if isinstance(backbone, IdentityBackbone):
        engine = engines(len(rows))
        for start in range(0, len(rows), engine.batch_size):
            part = slice(start, start + engine.batch_size)
            scores[part] = engine(backbone.vectors_of(table, rows[part]))
        return scores
    engine, images = executor(engines)(len(rows)), images_of(table, rows)
    for scored in stream_images(engine, images, backbone.preprocessing, workers=workers, report=report):
        scores[scored.rows] = scored.scores
    return scores
