"""What computes a network, whatever is underneath: images or features in, scores or features out."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

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
