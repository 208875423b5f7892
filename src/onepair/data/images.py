"""From an image file to the square of bytes that a backbone takes."""

from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from onepair.data.problems import DataError

# Pillow also opens formats that start other programs or hold no pixels: only these are images to us.
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")

Pixels = NDArray[np.uint8]


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


def decode(source: Path | bytes, *, at_least: int | None = None) -> Pixels:
    """Read an image, from its file or its bytes, as upright RGB of shape (H, W, 3).

    Transparency is laid on white, 16-bit grey scaled to 8 bits, EXIF orientation applied; of an animation the first
    frame counts. What cannot be read to its end is a `DataError` that names the file.

    Args:
        source: a file, or what it holds.
        at_least: a large JPEG may be decoded at a half, quarter or eighth of its size, as long as both sides keep
            twice this many pixels: less work for an image that is to be scaled down to this size anyway.
    """
    name = str(source) if isinstance(source, Path) else "image"
    try:
        with Image.open(source if isinstance(source, Path) else BytesIO(source), formats=FORMATS) as image:
            if at_least is not None:
                image.draft(None, (2 * at_least, 2 * at_least))
            return np.asarray(_to_rgb(ImageOps.exif_transpose(image)))
    except UnidentifiedImageError:
        raise DataError(f"{name}: not an image ({', '.join(FORMATS)})") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise DataError(f"{name}: claims more pixels than any photo has; scale it down if it is one") from None
    except Exception as error:  # a damaged file makes Pillow's readers fail in every way there is
        reason = (error.strerror if isinstance(error, OSError) else None) or error or type(error).__name__
        raise DataError(f"{name}: cannot be read as an image: {reason}") from error


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


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I;16"):
        grey = np.asarray(image).astype(np.uint32)
        return Image.fromarray(((grey + 128) // 257).astype(np.uint8)).convert("RGB")
    if image.mode in ("I", "F"):
        raise ValueError("32 bits a pixel have no fixed white; save it with 8 or 16")
    if image.has_transparency_data:
        seen = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", seen.size, "white"), seen).convert("RGB")
    return image.convert("RGB")


def _centre_square(width: int, height: int) -> tuple[float, float, float, float]:
    side = min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    return left, top, left + side, top + side
