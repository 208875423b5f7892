"""Engines, which compute a network: their interface, and the one by ONNX Runtime, without torch."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from onepair.data.images.decode import Preprocessing

Float32 = NDArray[np.float32]

MANY = 1000  # images for which an engine may take some seconds to be made


class Engine(Protocol):
    """Computes a network on uint8 images (B, S, S, 3), scaled but not normalised, or on features (B, D)."""

    @property
    def batch_size(self) -> int:
        """How many inputs at a time it is fast with."""

    def __call__(self, inputs: NDArray[Any]) -> Float32:
        """Compute the outputs (B, K) of the network."""


EngineFactory = Callable[[int], Engine]  # gives the engine for so many images
Executor = Callable[[EngineFactory], EngineFactory]  # gives the same engines, computed elsewhere


def local(engines: EngineFactory) -> EngineFactory:
    """Compute engines in this process: the `Executor` that is the default."""
    return engines


@dataclass(frozen=True, eq=False)
class WithHead:
    """The engine of a backbone, and that of the head of a classifier on top of it.

    A head costs next to nothing, so classifiers on one backbone share its graph.
    """

    backbone: Engine
    head: Engine

    @property
    def batch_size(self) -> int:
        return self.backbone.batch_size

    def __call__(self, inputs: NDArray[Any]) -> Float32:
        return self.head(self.backbone(inputs))


@dataclass(frozen=True, eq=False)
class OnnxEngine:
    """One output of an ONNX graph whose input is `images`, or `vectors`."""

    session: Any  # an onnxruntime.InferenceSession
    output: str
    preprocessing: Preprocessing | None = None  # where the graph takes images that are normalised
    batch_size: int = 8
    input: str = "images"
    file: Path | None = None  # that the session was opened from: what another process is given in its place

    def __reduce__(self) -> tuple[Any, ...]:
        if self.file is None:
            raise TypeError("a session of ONNX Runtime stays in its process")
        return _reopen, (self.file.read_bytes(), replace(self, session=None, file=None).__dict__)

    def __call__(self, inputs: NDArray[Any]) -> Float32:
        images = inputs if self.preprocessing is None else _normalise(inputs, self.preprocessing)
        outputs: Float32 = self.session.run([self.output], {self.input: np.ascontiguousarray(images)})[0]
        return outputs


def open_session(model: Path | bytes) -> Any:
    """Open a session of ONNX Runtime, with as many threads as OMP_NUM_THREADS says, as torch has it."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    threads = os.environ.get("OMP_NUM_THREADS", "")
    if threads.isdecimal():
        options.intra_op_num_threads = int(threads)
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _reopen(content: bytes, fields: dict[str, Any]) -> OnnxEngine:
    return OnnxEngine(**{**fields, "session": open_session(content)})


def _normalise(images: NDArray[Any], preprocessing: Preprocessing) -> Float32:
    """Make float32 (B, 3, S, S) of images (B, S, S, 3)."""
    mean, std = (np.array(values, np.float32) * np.float32(255) for values in (preprocessing.mean, preprocessing.std))
    normalised: Float32 = (images - mean) / std
    return normalised.transpose(0, 3, 1, 2)
