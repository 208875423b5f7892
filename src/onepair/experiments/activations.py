"""The figure of class activation maps: labels that nobody gave, and where the model sees them."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from onepair.data.streaming import pixels_of
from onepair.experiments.drawing import Drawing
from onepair.experiments.figures import Panels
from onepair.inference.heat_maps import suggestion_maps
from onepair.inference.scoring import score_images
from onepair.labels import POSITIVE
from onepair.report.picture import fitted, overlay
from onepair.runs.finished import FinishedRun

LOOKED_AT = 200  # training images to choose examples from
IMAGES, MAPS = 4, 4  # rows of the figure, and labels in each
INCHES = 1.45  # of one picture

_COLOURS = {"observed": "#0067a8", "missing": "#00785a", "other": "#c24a00"}
_WORDS = {
    ("observed", True): "observed",
    ("observed", False): "observed, not found",
    ("missing", True): "missing, found",
    ("missing", False): "missing, not found",
    ("other", True): "found, not in the truth",
}


class Sign(NamedTuple):
    """A label of an image, and what is known of it."""

    column: int  # of the class
    kind: str  # "observed"; "missing": true, but not observed; "other": not true
    found: bool
    probability: float


class Example(NamedTuple):
    """A training image, and its labels to show."""

    row: int  # of the table
    marks: Sequence[Sign]

    @property
    def completed(self) -> int:
        """How many missing labels are found."""
        return sum(mark.found for mark in self.marks if mark.kind == "missing")

    @property
    def goes_beyond(self) -> bool:
        """Whether a label is found that even the ground truth does not have."""
        return any(mark.kind == "other" for mark in self.marks)


def activations(panels: Panels) -> Drawing:
    """Training images, each followed by the maps of its labels: observed, missing, and others that the model finds."""
    parts = []
    for dataset, outcomes in panels.items():
        run = outcomes[0].runs[0]
        parts.append((dataset, run, choose_examples(run)))
    height = sum(len(examples) for *_, examples in parts)
    across = 1 + max(len(example.marks) for *_, examples in parts for example in examples)
    figure = Figure(figsize=(across * INCHES, height * (INCHES + 0.35)), layout="constrained")
    rows = iter(figure.subplots(height, across, squeeze=False))
    numbers: list[dict[str, Any]] = []
    findings = []
    for dataset, run, examples in parts:
        for example, (image, maps) in zip(examples, _pictures(run, examples), strict=True):
            _draw(next(rows), image, maps, example.marks, run.classes)
            numbers += [
                {
                    "dataset": dataset.name,
                    "image": run.table.files[example.row],
                    "label": run.classes[mark.column],
                    "kind": mark.kind,
                    "found": int(mark.found),
                    "probability": round(mark.probability, 4),
                }
                for mark in example.marks
            ]
        missing = sum(mark.kind == "missing" for example in examples for mark in example.marks)
        found = sum(example.completed for example in examples)
        findings.append(
            f"{dataset.title}: of the {missing} missing labels shown, the model finds {found}; these are the images "
            f"where it finds most, of the first {LOOKED_AT} training images with several labels."
        )
    return Drawing(figure, numbers, findings)


def choose_examples(run: FinishedRun) -> list[Example]:
    """Of some training images with several labels, those with the most to show: missing labels found, or others."""
    task, decisions = run.task, run.decisions
    truth = task.table.labels[task.train]
    positives = (truth == POSITIVE).sum(axis=1)
    several = np.flatnonzero(positives >= min(2, positives.max()))[:LOOKED_AT]
    scores = score_images(run.classifier, task.table, task.train[several], precision=run.description.precision)
    examples = []
    for place, chances, seen in zip(
        several.tolist(), decisions.probabilities(scores), decisions.labels(scores), strict=True
    ):
        true, observed = truth[place] == POSITIVE, task.observed[place] == POSITIVE
        kinds = np.where(observed, "observed", np.where(true, "missing", "other"))
        shown = np.flatnonzero(true | seen)
        marks = [
            Sign(column, str(kinds[column]), bool(seen[column]), float(chances[column])) for column in shown.tolist()
        ]
        marks.sort(key=lambda mark: (list(_COLOURS).index(mark.kind), -mark.probability))
        examples.append(Example(int(task.train[place]), marks[:MAPS]))
    return sorted(examples, key=lambda example: -example.completed - example.goes_beyond)[:IMAGES]


def _pictures(run: FinishedRun, examples: Sequence[Example]) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.uint8]]]:
    """The image (H, W, 3) of each example, and the evidence (K, h, w) for its labels."""
    cells = [(example.row, mark.column) for example in examples for mark in example.marks]
    rows, columns = (np.array(each) for each in zip(*cells, strict=True))
    maps = iter(suggestion_maps(run.classifier, run.table, rows, columns, workers=0))
    for example in examples:
        row = example.row
        pixels = pixels_of(run.table, row)
        yield pixels, np.stack([next(maps) for _ in example.marks])


def _draw(
    axes: Sequence[Axes],
    image: NDArray[np.uint8],
    maps: NDArray[np.uint8],
    marks: Sequence[Sign],
    classes: Sequence[str],
) -> None:
    """One row: the image, then the evidence for each label over it."""
    image = fitted(image)
    axes[0].imshow(image)
    axes[0].set_title("image", fontsize=8)
    for panel, mark, evidence in zip(axes[1:], marks, maps, strict=False):
        panel.imshow(overlay(image, evidence))
        words = f"{classes[mark.column]} {mark.probability:.2f}\n{_WORDS[mark.kind, mark.found]}"
        panel.set_title(words, fontsize=7.5, color=_COLOURS[mark.kind])
    for panel in axes:
        panel.set_axis_off()
