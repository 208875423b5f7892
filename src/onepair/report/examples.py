"""Test images beside what runs see in them."""

import base64
import io
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from onepair.data.problems import DataError
from onepair.data.sources import is_file
from onepair.data.streaming import pixels_of
from onepair.labels import NEGATIVE, POSITIVE
from onepair.report.side_by_side import Comparison, ReportError, RunSummary
from onepair.runs.finished import FinishedRun
from onepair.words import counted

EXAMPLES = 12  # images, unless others are asked for
LONGEST_SIDE = 160  # pixels; larger images are scaled down
SMALL = 80  # pixels; smaller images are shown with hard edges


@dataclass(frozen=True, eq=False)
class Examples:
    """Test images to show, or texts, and which rows of the test set they are."""

    images: Sequence[NDArray[np.uint8] | str]  # K images (H, W, 3), or texts
    rows: Sequence[int]  # (K,)

    def __post_init__(self) -> None:
        for image in self.images:
            if isinstance(image, str):
                continue
            if image.dtype != np.uint8 or image.ndim != 3 or image.shape[-1] != 3:
                raise ReportError(
                    f"examples: an image must be uint8 of shape (H, W, 3), got {image.dtype} of {image.shape}"
                )
        if len(self.images) != len(self.rows):
            got = f"{counted(len(self.images), 'image')} and {counted(len(self.rows), 'row')}"
            raise ReportError(f"examples: every image needs its row, got {got}")


class Mark(NamedTuple):
    """A label, and whether a run "found" or "missed" it, is "wrong" to see it, or sees it where truth is "unknown"."""

    name: str
    verdict: str


class Card(NamedTuple):
    """One example: its picture, its true labels, and the marks of some runs."""

    png: str  # base64; nothing where there is a text
    pixelated: bool
    text: str
    truth: list[str]
    marks: list[tuple[RunSummary, list[Mark]]]


def choose_examples(run: FinishedRun, *, most: int = EXAMPLES) -> Examples:
    """The first test images of a run that can be read, or the first texts; nothing of vectors that have neither."""
    table, chosen = run.table, run.rows("test")
    if table.ids and table.texts is not None:
        return Examples([table.texts[row] for row in chosen[:most].tolist()], range(min(most, len(chosen))))
    if table.ids and not is_file(table.path(int(chosen[0]))):
        return Examples([], [])
    images: list[NDArray[np.uint8]] = []
    rows: list[int] = []
    for place, row in enumerate(chosen.tolist()):
        if len(images) == most:
            break
        with suppress(DataError):
            images.append(pixels_of(table, row))
            rows.append(place)
    return Examples(images, rows)


def cards(comparison: Comparison, examples: Examples) -> Iterator[Card]:
    """A card for every example, with the marks of the first and the last rival."""
    baseline, rivals = comparison.baseline, comparison.rivals
    classes = np.array(baseline.classes)
    shown = rivals if len(rivals) == 1 else [rivals[0], rivals[-1]]
    for image, row in zip(examples.images, examples.rows, strict=True):
        if not 0 <= row < len(baseline.test_labels):
            raise ReportError(f"examples: row {row} is not one of the {len(baseline.test_labels)} test images")
        yield Card(
            png="" if isinstance(image, str) else _png(image),
            pixelated=not isinstance(image, str) and max(image.shape) < SMALL,
            text=image if isinstance(image, str) else "",
            truth=classes[baseline.test_labels[row] == POSITIVE].tolist(),
            marks=[(run, list(_marks(run, row))) for run in shown],
        )


def _marks(run: RunSummary, row: int) -> Iterator[Mark]:
    """What a run makes of the true labels, and what else it sees."""
    predicted = run.decisions.labels(run.test_scores[row])
    labels = run.test_labels[row]
    for column in np.flatnonzero(labels == POSITIVE).tolist():
        yield Mark(run.classes[column], "found" if predicted[column] else "missed")
    for column in np.flatnonzero((labels != POSITIVE) & predicted).tolist():
        yield Mark(run.classes[column], "wrong" if labels[column] == NEGATIVE else "unknown")


def _png(pixels: NDArray[np.uint8]) -> str:
    image, content = Image.fromarray(pixels), io.BytesIO()
    image.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
    image.save(content, "PNG", optimize=True)
    return base64.b64encode(content.getvalue()).decode()
