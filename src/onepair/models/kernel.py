"""A head that bends: the linear layer of a classifier on an RBF kernel between features and landmarks."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

_PREFIX = "head.kernel."  # of its tensors in the weights of a classifier


class Kernel(nn.Module):
    """The kernel of features x (B, D) with M landmarks z: `exp(-|scale · (x - centre) - z|²)`, (B, M).

    >>> Kernel(torch.zeros(1), torch.ones(1), torch.tensor([[0.0], [2.0]]))(torch.tensor([[0.0]]))
    tensor([[1.0000, 0.0183]])
    """

    centre: Tensor  # (D,)
    scale: Tensor  # (D,)
    landmarks: Tensor  # (M, D), scaled

    def __init__(self, centre: Tensor, scale: Tensor, landmarks: Tensor) -> None:
        super().__init__()
        self.register_buffer("centre", centre)
        self.register_buffer("scale", scale)
        self.register_buffer("landmarks", landmarks)

    def forward(self, features: Tensor) -> Tensor:
        scaled = (features - self.centre) * self.scale
        squares = scaled.square().sum(1, keepdim=True) + self.landmarks.square().sum(1)
        return torch.exp(-(squares - 2 * scaled @ self.landmarks.T).clamp(min=0))


class KernelHead(nn.Linear):
    """A linear layer on the kernel of features: (B, D) to (B, L), with a weight for every landmark."""

    def __init__(self, kernel: Kernel, classes: int) -> None:
        super().__init__(len(kernel.landmarks), classes)
        self.kernel = kernel

    def forward(self, features: Tensor) -> Tensor:
        return super().forward(self.kernel(features))


def head_for(state: Mapping[str, Tensor], features: int, classes: int) -> nn.Linear:
    """The head of a classifier that these weights fit, as yet without them."""
    if not any(name.startswith(_PREFIX) for name in state):
        return nn.Linear(features, classes)
    landmarks = len(state.get(f"{_PREFIX}landmarks", ()))
    return KernelHead(Kernel(torch.zeros(features), torch.zeros(features), torch.zeros(landmarks, features)), classes)
