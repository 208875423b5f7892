"""Networks computed by ONNX Runtime on the CPU, without torch."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onepair.data.preprocessing import Preprocessing
from onepair.inference.engine import Float32


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
