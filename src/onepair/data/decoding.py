"""From an image file to its pixels, without torch."""

from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from onepair.data.problems import DataError

# Pillow also opens formats that start other programs or hold no pixels: only these are images to us.
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff"}

Pixels = NDArray[np.uint8]


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
        raise DataError(f"{name}: is not an image ({', '.join(FORMATS)})") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise DataError(f"{name}: claims more pixels than any photo has; scale it down if it is one") from None
    except Exception as error:  # a damaged file makes Pillow's readers fail in every way there is
        reason = (error.strerror if isinstance(error, OSError) else None) or error or type(error).__name__
        raise DataError(f"{name}: cannot be read as an image: {reason}") from error


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
