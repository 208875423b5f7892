"""What a network takes of an image: a square of its pixels, and how their colours are normalised."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from PIL import Image

from onepair.data.decoding import Pixels
from onepair.errors import UserError

Augmentation = Literal["crop", "strong"]  # what may be done to training images, besides mirroring them

LARGEST_SIZE = 4096  # pixels: more than any network takes, and few enough to hold a batch of them


class PreprocessingError(UserError, ValueError):
    """An image cannot be prepared as asked."""


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
        if not 1 <= self.size <= LARGEST_SIZE:
            raise PreprocessingError(f"an image size must be from 1 to {LARGEST_SIZE:,} pixels, got {self.size:,}")
        if self.resize not in ("squash", "crop"):
            raise ValueError(f"resize must be 'squash' or 'crop', got {self.resize!r}")
        if self.interpolation not in ("bicubic", "bilinear"):
            raise ValueError(f"interpolation must be 'bicubic' or 'bilinear', got {self.interpolation!r}")
        if not 0 <= self.flip <= 1:
            raise ValueError(f"flip must be a probability, got {self.flip}")

    @classmethod
    def from_dict(cls, description: dict[str, Any]) -> "Preprocessing":
        """What `dataclasses.asdict` made of it, also after a way through JSON."""
        return cls(**{**description, "mean": tuple(description["mean"]), "std": tuple(description["std"])})


def scale(pixels: Pixels, preprocessing: Preprocessing) -> Pixels:
    """Scale an image (H, W, 3) to (size, size, 3); colours stay as they are.

    >>> scale(np.zeros((4, 6, 3), np.uint8), Preprocessing(2, mean=(0, 0, 0), std=(1, 1, 1))).shape
    (2, 2, 3)
    """
    image = Image.fromarray(pixels)
    size = (preprocessing.size, preprocessing.size)
    box = _centre_square(*image.size) if preprocessing.resize == "crop" else None
    return np.array(image.resize(size, Image.Resampling[preprocessing.interpolation.upper()], box))


def _centre_square(width: int, height: int) -> tuple[float, float, float, float]:
    side = min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    return left, top, left + side, top + side
