"""The interface of an engine, which computes a network, and the engine by ONNX Runtime, without torch."""

import os
from collections.abc import Callable
from dataclasses import dataclass
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
    def name(self) -> str:
        """What it is, in a word for people."""

    @property
    def batch_size(self) -> int:
        """How many inputs at a time it is fast with."""

    def __call__(self, inputs: NDArray[Any]) -> Float32:
        """What the network makes of the inputs, (B, K)."""


Choice = Callable[[int], Engine]  # the engine for so many images
Over = Callable[[Choice], Choice]  # the same engines, computed elsewhere


def here(engines: Choice) -> Choice:
    """The same engines, computed in this process."""
    return engines


@dataclass(frozen=True, eq=False)
class WithHead:
    """The engine of a backbone, and the linear layer of a classifier on top of it.

    A linear layer costs next to nothing, so classifiers on one backbone share its graph.
    """

    backbone: Engine
    weight: Float32  # (L, D)
    bias: Float32  # (L,)

    @property
    def name(self) -> str:
        return self.backbone.name

    @property
    def batch_size(self) -> int:
        return self.backbone.batch_size

    def __call__(self, inputs: NDArray[Any]) -> Float32:
        return self.backbone(inputs) @ self.weight.T + self.bias


@dataclass(frozen=True, eq=False)
class OnnxEngine:
    """One output of an ONNX graph whose input is `images`, or `vectors`."""

    session: Any  # an onnxruntime.InferenceSession
    output: str
    preprocessing: Preprocessing | None = None  # where the graph takes images that are normalised
    name: str = "ONNX Runtime"
    batch_size: int = 8
    input: str = "images"
    file: Path | None = None  # that the session was opened from: what another process is given in its place

    def __reduce__(self) -> tuple[Any, ...]:
        if self.file is None:
            raise TypeError("a session of ONNX Runtime stays in its process")
        return _reopened, (
            self.file.read_bytes(),
            self.output,
            self.preprocessing,
            self.name,
            self.batch_size,
            self.input,
        )

    def __call__(self, inputs: NDArray[Any]) -> Float32:
        images = inputs if self.preprocessing is None else _normalised(inputs, self.preprocessing)
        found: Float32 = self.session.run([self.output], {self.input: np.ascontiguousarray(images)})[0]
        return found


def open_session(model: Path | bytes) -> Any:
    """A session of ONNX Runtime, with as many threads as OMP_NUM_THREADS says, as torch has it."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    threads = os.environ.get("OMP_NUM_THREADS", "")
    if threads.isdecimal():
        options.intra_op_num_threads = int(threads)
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _reopened(content: bytes, *others: Any) -> OnnxEngine:
    return OnnxEngine(open_session(content), *others)


def _normalised(images: NDArray[Any], preprocessing: Preprocessing) -> Float32:
    """Images (B, S, S, 3) as float32 (B, 3, S, S)."""
    mean, std = (np.array(values, np.float32) * np.float32(255) for values in (preprocessing.mean, preprocessing.std))
    normalised: Float32 = (images - mean) / std
    return normalised.transpose(0, 3, 1, 2)
