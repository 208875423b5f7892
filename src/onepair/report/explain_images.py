"""Heat maps as pictures: what a model sees in images, and where."""

import base64
import io
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from numpy.typing import NDArray
from PIL import Image

from onepair.data.images.batches import table_of_files
from onepair.data.images.blocks import pixels_of
from onepair.data.label_table import LabelTable
from onepair.data.text_files import is_file, real
from onepair.errors import DataError, ReportError, UserError
from onepair.inference.engine_selector import score_images
from onepair.inference.heat_maps import suggestion_maps
from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN
from onepair.remote import as_path
from onepair.report.compared_runs import Comparison, RunSummary
from onepair.report.style import INK, MUTED, RULE, drawing
from onepair.runs.config import WITHOUT_IMAGES
from onepair.runs.finished import FinishedRun
from onepair.runs.task import Task
from onepair.words import counted, short

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
    framed = {"axes.grid": False, **{f"axes.spines.{side}": True for side in ("left", "right", "top")}}
    with drawing(9, **framed, **{"text.parse_math": False}):
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


MOST = 8  # predicted labels of an image that are shown, the most probable ones


class Explainer:
    """Explains images of a run's dataset, and any others.

    Args:
        run: whose model it is.
        labels: the names of those to show; without any, those that are predicted.
        needs_dataset: whether the dataset must be at hand, as where images are named by their rows. Elsewhere an image
            is explained without it, and `missing` says why.
    """

    def __init__(self, run: FinishedRun, *, labels: Sequence[str] = (), needs_dataset: bool = False) -> None:
        if run.config.model.backbone in WITHOUT_IMAGES:
            raise ReportError(f"{run.path}: sees no images, only vectors, in which no label has a place")
        self.run = run
        self.wanted = [_column(name, run.classes) for name in labels]
        self.task: Task | None = None
        self.missing: str | None = None
        try:
            self.task = run.task
        except UserError as error:
            if needs_dataset:
                raise
            self.missing = str(error)

    def explain(self, image: str) -> Explained:
        """The labels asked for of an image, or those that are predicted, or else the likeliest one."""
        table, row = self._locate(image)
        classifier, decisions = self.run.classifier, self.run.decisions
        scores = score_images(classifier, table, np.array([row]), precision=self.run.description.precision, workers=0)[
            0
        ].astype(np.float64)
        predicted, probabilities = decisions.labels(scores), decisions.probabilities(scores[None])[0]
        likeliest = np.argsort(-scores, kind="stable")
        shown = np.array(self.wanted or likeliest[predicted[likeliest]][:MOST].tolist() or likeliest[:1])
        maps = suggestion_maps(classifier, table, np.full(len(shown), row), shown, workers=0)
        known, notes = _known(self.task, row) if self.task and table is self.task.table else ("", [""] * len(scores))
        return Explained(
            name=table.path(row).name,
            note=known,
            pixels=pixels_of(table, row),
            sightings=[
                Sighting(
                    label=classifier.classes[each],
                    probability=float(probabilities[each]),
                    note=" · ".join(filter(None, ["" if predicted[each] else "not predicted", notes[each]])),
                    evidence=evidence,
                )
                for each, evidence in zip(shown.tolist(), maps, strict=True)
            ],
        )

    def _locate(self, image: str) -> tuple[LabelTable, int]:
        """An image as a row of the run's dataset, or else of a table of its own."""
        path = as_path(image)
        if self.task and is_row(image):
            if int(image) >= len(self.task.table):
                raise ReportError(
                    f"there is no row {image}; the run's dataset has rows 0 to {len(self.task.table) - 1}"
                )
            return self.task.table, int(image)
        if self.task and self.task.table.pixels is None:
            for row, file in enumerate(self.task.table.files):
                if Path(file).name == path.name and real(self.task.table.path(row)) == real(path):
                    return self.task.table, row
        return table_of_files([path], self.run.classes), 0


def is_row(image: str) -> bool:
    """Whether a name is that of a row, not of a file."""
    return image.isdecimal() and not Path(image).exists()


def _column(name: str, classes: Sequence[str]) -> int:
    if name not in classes:
        near = get_close_matches(name, classes, n=1)
        listed = ", ".join(classes[:5]) + (", …" if len(classes) > 5 else "")
        advice = f"did you mean {near[0]}?" if near else f"there are {listed}"
        raise ReportError(f"the run has no label {name!r}; {advice}")
    return list(classes).index(name)


def _known(task: Task, row: int) -> tuple[str, list[str]]:
    """What the dataset says of an image, and of every label in it."""
    labels = task.table.labels[row]
    words = {POSITIVE: "true", NEGATIVE: "labelled as absent", UNKNOWN: "unknown"}
    notes = [words[label] for label in labels.tolist()]
    split = "validation" if row in task.validation else str(task.table.split[row])
    if row in task.train:
        observed = task.observed[np.searchsorted(task.train, row)]
        for column in np.flatnonzero(labels == POSITIVE).tolist():
            notes[column] = "observed" if observed[column] == POSITIVE else "true, not observed"
    names = [task.table.classes[column] for column in np.flatnonzero(labels == POSITIVE)]
    return f"{split} · {', '.join(names) or 'no label'}", notes


EXAMPLES = 12  # images, unless others are asked for
LONGEST_SIDE = 160  # pixels; larger images are scaled down


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
    for index, row in enumerate(chosen.tolist()):
        if len(images) == most:
            break
        with suppress(DataError):
            images.append(pixels_of(table, row))
            rows.append(index)
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
