"""From the pixels of an image to the square of them that a backbone takes."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from onepair.data.decoding import Pixels


@dataclass(frozen=True)
class Preprocessing:
    """How an image becomes the input of a backbone.

    "squash" scales to size × size whatever the proportions, as the published protocol does; "crop" keeps the
    proportions and takes the largest centred square.
    """

    size: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    resize: Literal["squash", "crop"] = "squash"
    interpolation: Literal["bicubic", "bilinear"] = "bicubic"
    flip: float = 0.5  # how often an image is mirrored in training; 0 where left and right matter

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"an image size must be at least 1, got {self.size}")
        if self.resize not in ("squash", "crop"):
            raise ValueError(f"resize must be 'squash' or 'crop', got {self.resize!r}")
        if self.interpolation not in ("bicubic", "bilinear"):
            raise ValueError(f"interpolation must be 'bicubic' or 'bilinear', got {self.interpolation!r}")
        if not 0 <= self.flip <= 1:
            raise ValueError(f"flip must be a probability, got {self.flip}")


def prepare(pixels: Pixels, preprocessing: Preprocessing, *, flip: bool = False) -> Tensor:
    """Scale an image (H, W, 3) to a uint8 tensor (3, size, size), mirrored if asked; colours stay as they are.

    >>> prepare(np.zeros((4, 6, 3), np.uint8), Preprocessing(2, mean=(0, 0, 0), std=(1, 1, 1))).shape
    torch.Size([3, 2, 2])
    """
    image = Image.fromarray(pixels)
    size = (preprocessing.size, preprocessing.size)
    box = _centre_square(*image.size) if preprocessing.resize == "crop" else None
    scaled = image.resize(size, Image.Resampling[preprocessing.interpolation.upper()], box)
    tensor = torch.from_numpy(np.array(scaled)).permute(2, 0, 1)
    return tensor.flip(-1) if flip else tensor


def normalise(images: Tensor, preprocessing: Preprocessing) -> Tensor:
    """Turn uint8 images (B, 3, S, S) into the floats a backbone takes, on the device where they are.

    >>> half = Preprocessing(1, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
    >>> normalise(torch.full((1, 3, 1, 1), 255, dtype=torch.uint8), half).flatten()
    tensor([1., 1., 1.])
    """
    mean, std = (
        torch.tensor(values, device=images.device).view(3, 1, 1) * 255
        for values in (preprocessing.mean, preprocessing.std)
    )
    return (images - mean).div_(std)


def _centre_square(width: int, height: int) -> tuple[float, float, float, float]:
    side = min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    return left, top, left + side, top + side
