"""From an image file to the pixels that a network takes, without torch and within bounds."""

import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from errno import EINVAL
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from onepair.errors import DataError, ModelError, RemoteError, UserError
from onepair.labels import to_numpy
from onepair.remote import NonLocalPath

# Pillow also opens formats that start other programs or hold no pixels: only these are images to us.
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
_OF_PHONES = ("AVIF", "HEIF")  # where Pillow or pillow-heif brings them
SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".heic", ".heif", ".avif"}

VIDEOS = {".mp4", ".mov", ".m4v", ".avi", ".mkv", ".webm", ".wmv", ".mpg", ".mpeg", ".mts", ".3gp"}
RAW = {".cr2", ".cr3", ".nef", ".arw", ".dng", ".raf", ".orf", ".rw2", ".pef", ".srw"}

SETTING = "ONEPAIR_MAX_PIXELS"  # the variable of the environment that sets the limit, for worker processes too
MOST_PIXELS = (
    89_478_485  # to decode, which is where Pillow begins to warn: WebP, the hungriest format, takes 1.4 GB then
)
LARGE = 16_000_000  # pixels; images above are decoded one at a time, or as many threads would take as many times that

_BRANDS = (b"heic", b"heix", b"hevc", b"hevx", b"mif1", b"msf1", b"avif", b"avis")  # of phones
_BAND = 256  # rows that are brought to RGB at once
_one_at_a_time = threading.Lock()

Pixels = NDArray[np.uint8]


def decode(source: Path | bytes, *, at_least: int | None = None) -> Pixels:
    """Read an image, from its file or its bytes, as upright RGB of shape (H, W, 3).

    Transparency is laid on white, 16-bit grey scaled to 8 bits, EXIF orientation applied; of an animation the first
    frame counts. What cannot be read to its end, or has more than `most_pixels`, is a `DataError` that names the file.

    Args:
        source: a file, or what it holds.
        at_least: a large JPEG may be decoded at a half, quarter or eighth of its size, as long as both sides keep
            twice this many pixels: less work for an image that is to be scaled down to this size anyway.
    """
    with open_image(source) as image:
        if at_least is not None:
            image.draft(None, (2 * at_least, 2 * at_least))
        _require_decodable(image)
        with _one_at_a_time if image.width * image.height > LARGE else nullcontext():
            ImageOps.exif_transpose(image, in_place=True)
            return _to_rgb(image)


@contextmanager
def open_image(source: Path | bytes) -> Iterator[Image.Image]:
    """An image of which nothing but its header is decoded yet; whatever fails while it is open is a `DataError`.

    But for a server that gives nothing at all, which is no fault of the image.
    """
    name, most = str(source) if isinstance(source, Path) else "image", most_pixels()
    if most != MOST_PIXELS:
        Image.MAX_IMAGE_PIXELS = most  # Pillow refuses, by the header, twice what it warns of
    try:
        if isinstance(source, NonLocalPath):
            source = source.read_bytes()
        if isinstance(source, Path):
            require_no_pipe(source)
        with Image.open(source if isinstance(source, Path) else BytesIO(source), formats=_formats()) as image:
            yield image
    except RemoteError:
        raise
    except UnidentifiedImageError:
        raise DataError(f"{name}: {_what_else(source)}") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise DataError(
            f"{name}: claims more pixels than the limit of {most:,}; scale it down, or set {SETTING}"
        ) from None
    except Exception as error:  # a damaged file makes Pillow's readers fail in every way there is
        reason = (error.strerror if isinstance(error, OSError) else None) or error or type(error).__name__
        raise DataError(f"{name}: cannot be read as an image: {reason}") from error


@cache
def _formats() -> tuple[str, ...]:
    """The formats that this installation reads."""
    Image.init()
    with suppress(ImportError):
        import pillow_heif

        pillow_heif.register_heif_opener()
    return (*FORMATS, *(each for each in _OF_PHONES if each in Image.OPEN))


def _what_else(source: Path | bytes) -> str:
    """What a file is that is none of the `FORMATS`: empty, as of a copy that was broken off, a phone's, or anything."""
    if isinstance(source, Path):
        with source.open("rb") as file:
            source = file.read(12)
    if not source:
        return "is empty"
    if source[4:8] == b"ftyp" and source[8:12] in _BRANDS:
        advice = "" if "HEIF" in _formats() else "; install with: pip install 'onepair[heif]', or save it as JPEG"
        return f"is an HEIC or AVIF photo that cannot be read{advice}"
    return f"is not an image ({', '.join(FORMATS)})"


def most_pixels() -> int:
    """How many pixels of an image are decoded at most: what the environment says, or what 2 GB are enough for."""
    asked = os.environ.get(SETTING, "")
    if not asked:
        return MOST_PIXELS
    if not (asked.isdecimal() and int(asked)):
        raise UserError(f"{SETTING} must be a whole number of pixels above 0, got {asked!r}")
    return int(asked)


def require_no_pipe(path: Path) -> None:
    """Refuse what is no file on a disk: to open a pipe is to wait for somebody who writes to it."""
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise OSError(EINVAL, "Is a pipe or a device", str(path))


def _require_decodable(image: Image.Image) -> None:
    if image.width * image.height > most_pixels():
        raise Image.DecompressionBombError


def _to_rgb(image: Image.Image) -> Pixels:
    """The pixels (H, W, 3), made band by band: each step on the whole image would take a copy of it."""
    pixels = np.empty((image.height, image.width, 3), np.uint8)
    for top in range(0, image.height, _BAND):
        band = image.crop((0, top, image.width, min(top + _BAND, image.height)))
        pixels[top : top + _BAND] = np.asarray(_band_to_rgb(band))
    return pixels


def _band_to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I;16"):
        grey = np.asarray(image).astype(np.uint32)
        return Image.fromarray(((grey + 128) // 257).astype(np.uint8)).convert("RGB")
    if image.mode in ("I", "F"):
        raise ValueError("32 bits a pixel have no fixed white; save it with 8 or 16")
    if image.has_transparency_data:
        seen = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", seen.size, "white"), seen).convert("RGB")
    return image.convert("RGB")


Augmentation = Literal["crop", "strong"]  # what may be done to training images, besides mirroring them

LARGEST_SIZE = 4096  # pixels: more than any network takes, and few enough to hold a batch of them


@dataclass(frozen=True)
class Preprocessing:
    """How an image becomes the input of a backbone.

    "squash" scales to size × size whatever the proportions, as the published protocol does; "crop" keeps the
    proportions and takes the largest centred square.

    Examples:
        >>> Preprocessing(size=224, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5)).resize
        'squash'
    """

    size: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    resize: Literal["squash", "crop"] = "squash"
    interpolation: Literal["bicubic", "bilinear"] = "bicubic"
    flip: float = 0.5  # how often an image is mirrored in training; 0 where left and right matter

    def __post_init__(self) -> None:
        if not 1 <= self.size <= LARGEST_SIZE:
            raise ModelError(f"an image size must be from 1 to {LARGEST_SIZE:,} pixels, got {self.size:,}")
        if self.resize not in ("squash", "crop"):
            raise ValueError(f"resize must be 'squash' or 'crop', got {self.resize!r}")
        if self.interpolation not in ("bicubic", "bilinear"):
            raise ValueError(f"interpolation must be 'bicubic' or 'bilinear', got {self.interpolation!r}")
        if not 0 <= self.flip <= 1:
            raise ValueError(f"flip must be a probability, got {self.flip}")


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


def as_pixels(image: Any, *, what: str = "the image") -> Pixels:
    """Return an image as a uint8 array (H, W, 3): of a PIL image, an array, a tensor, or a path.

    >>> as_pixels(np.zeros((2, 3), np.uint8)).shape
    (2, 3, 3)
    """
    if isinstance(image, str | Path):
        return decode(Path(image))
    if hasattr(image, "convert"):  # of PIL
        return np.asarray(image.convert("RGB"))
    if hasattr(image, "detach"):  # of torch, with channels first
        image = to_numpy(image)
        image = np.moveaxis(image, 0, -1) if image.ndim == 3 and image.shape[0] in (1, 3) else image
    given: NDArray[Any] = np.asarray(image)
    if given.dtype.kind == "f" and given.size and given.min() >= 0 and given.max() <= 1:
        given = np.rint(given * 255).astype(np.uint8)
    if given.ndim == 2:
        given = given[..., None]
    if given.dtype != np.uint8 or given.ndim != 3 or given.shape[2] not in (1, 3):
        raise DataError(
            f"{what}: is {given.dtype} of shape {given.shape}; an image is uint8 (H, W, 3), a tensor (3, H, W) of "
            "bytes or of numbers in 0 … 1, a PIL image, or a path"
        )
    return np.ascontiguousarray(np.broadcast_to(given, (*given.shape[:2], 3)))
