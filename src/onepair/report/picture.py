"""A picture of heat maps: images, each beside what a classifier sees in it, and where."""

import io
import warnings
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from numpy.typing import NDArray
from PIL import Image

from onepair.report.charts import short
from onepair.report.colours import INK, MUTED, RULE

ACROSS = 4  # labels beside an image; more of them go below
PANEL, LOWEST, WORDS = 2.2, 0.3, 0.45  # inches: a panel's width and least height, the height of the words above it
DOTS = 150  # per inch
LONGEST_NOTE = 38  # characters
TALLEST = 1.5  # widths of a panel; taller images become narrower
SMALL = 80  # pixels; smaller images are shown with hard edges
FAINT, STRONG = 0.4, 0.65  # how far a map covers its image, without evidence and with all of it

Pixels = NDArray[np.uint8]


class Sighting(NamedTuple):
    """A label, how probable it is in an image, what is known of it, and where it is seen."""

    label: str
    probability: float
    note: str
    evidence: Pixels  # (h, w)


class Explained(NamedTuple):
    """An image, what is known of it, and what is seen in it."""

    name: str
    note: str
    pixels: Pixels  # (H, W, 3)
    sightings: Sequence[Sighting]


class _Panel(NamedTuple):
    title: str
    note: str
    picture: Pixels


def render(images: Sequence[Explained]) -> bytes:
    """A PNG with a row for each image: the image itself, then a panel for each of its labels."""
    lines = [line for image in images for line in _lines(image)]
    heights = [max(LOWEST, *(len(panel.picture) / DOTS for panel in line if panel)) + WORDS for line in lines]
    size = (max(map(len, lines)) * PANEL, sum(heights))
    content = io.BytesIO()
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        matplotlib.rcdefaults()  # whatever the user's own settings are
        matplotlib.rcParams["text.parse_math"] = False
        figure = Figure(figsize=size, dpi=DOTS, layout=ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.08))
        grid = figure.subplots(len(lines), max(map(len, lines)), squeeze=False, height_ratios=heights)
        for line, row in zip(lines, grid, strict=True):
            for panel, axes in zip_longest(line, row):
                _draw(axes, panel)
        figure.savefig(content, format="png", metadata={"Software": None})
    return content.getvalue()


def _lines(image: Explained) -> Iterator[list[_Panel | None]]:
    """The panels of an image, the photo and so many labels in a line, more labels in lines below."""
    photo = fitted(image.pixels)
    first: _Panel | None = _Panel(image.name, image.note, photo)
    for start in range(0, len(image.sightings), ACROSS):
        seen = image.sightings[start : start + ACROSS]
        yield [
            first,
            *(
                _Panel(f"{each.label}  {100 * each.probability:.0f} %", each.note, overlay(photo, each.evidence))
                for each in seen
            ),
        ]
        first = None


def overlay(photo: Pixels, evidence: Pixels) -> Pixels:
    """The image (H, W, 3) without its colours, and over it the evidence (h, w), from black by red to yellow."""
    height, width = photo.shape[:2]
    strength = np.asarray(Image.fromarray(evidence).resize((width, height), Image.Resampling.BICUBIC)) / 255
    grey = np.asarray(Image.fromarray(photo).convert("L"))[..., None]
    heat = 255 * matplotlib.colormaps["inferno"](strength)[..., :3]
    covered = FAINT + (STRONG - FAINT) * strength[..., None]
    blended: Pixels = np.round((1 - covered) * grey + covered * heat).astype(np.uint8)
    return blended


def fitted(pixels: Pixels) -> Pixels:
    """An image as large as its panel will be."""
    height, width = pixels.shape[:2]
    scale = PANEL * DOTS * min(1 / width, TALLEST / height)
    sharp = Image.Resampling.NEAREST if max(height, width) < SMALL else Image.Resampling.LANCZOS
    size = (max(round(width * scale), 1), max(round(height * scale), 1))
    return np.asarray(Image.fromarray(pixels).resize(size, sharp))


def _draw(axes: Axes, panel: _Panel | None) -> None:
    if panel is None:
        axes.set_axis_off()
        return
    axes.imshow(panel.picture)
    axes.set(xticks=[], yticks=[], anchor="N")
    axes.spines[:].set(color=RULE, linewidth=0.5)
    axes.set_title(short(panel.title), loc="left", fontsize=9, fontweight="bold", color=INK, pad=16)
    note = panel.note if len(panel.note) <= LONGEST_NOTE else f"{panel.note[: LONGEST_NOTE - 1]}…"
    line = axes.annotate(note, (0, 1), (0, 4), "axes fraction", "offset points", fontsize=7.5, color=MUTED)
    line.set_in_layout(False)  # the title keeps a place for it
