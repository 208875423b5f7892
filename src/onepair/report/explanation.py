"""What a run's model sees in single images, and where."""

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

import numpy as np

from onepair.data.labeltable import LabelTable
from onepair.data.loading import table_of_files
from onepair.data.sources import real
from onepair.data.streaming import pixels_of
from onepair.errors import UserError
from onepair.inference.heat_maps import suggestion_maps
from onepair.inference.scoring import score_images
from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN
from onepair.remote import as_path
from onepair.report.picture import Explained, Sighting
from onepair.runs.finished import FinishedRun
from onepair.runs.task import Task
from onepair.runs.without_images import WITHOUT_IMAGES

MOST = 8  # predicted labels of an image that are shown, the most probable ones


class ExplanationError(UserError, ValueError):
    """An image or a label that cannot be explained."""


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
            raise ExplanationError(f"{run.path}: sees no images, only vectors, in which no label has a place")
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
                raise ExplanationError(
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
        raise ExplanationError(f"the run has no label {name!r}; {advice}")
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
