"""Two runs side by side, before and after people's answers: the same images, the same labels, the same classes."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from onepair.labels import POSITIVE, Indices, Labels
from onepair.probability.evaluation import evaluate
from onepair.probability.intervals import Interval, bootstrap_figures
from onepair.runs.finished import FinishedRun
from onepair.runs.task import Split

MOST_PHOTOS = 24

Scores = NDArray[np.float32]  # (N, L)


class Judged(NamedTuple):
    """A run, by name, and how good it is."""

    name: str
    map: Interval
    f1: Interval
    assumption: str  # what the figures rest on, where labels are unknown


class Change(NamedTuple):
    """A label that is predicted of an image by one run and not by the other, and how sure each is."""

    label: str
    before: float | None  # None: the run before did not know the class
    after: float
    gained: bool


class Photo(NamedTuple):
    """An image of which the two runs say different things."""

    row: int  # of the table of the run before
    file: str
    changes: list[Change]


class BeforeAfter(NamedTuple):
    """What training again has changed."""

    before: Judged
    after: Judged
    split: Split
    images: int
    changed: int  # images that the two say different things of
    photos: list[Photo]  # the first of them, those that changed most first


def compare(before: FinishedRun, after: FinishedRun) -> BeforeAfter:
    """Judge both runs by what is known now, on test images or, without labels on these, on validation images.

    The tables of the two have the same rows, since the second was written from the first; what the second has more are
    labels, and perhaps classes at the end, which are in no figure, as the first run knows nothing of them.
    """
    tested = len(after.task.test) and (after.labels("test") == POSITIVE).any()
    split: Split = "test" if tested else "validation"
    rows, of_before, of_after = np.intersect1d(before.rows(split), after.rows(split), return_indices=True)
    classes = len(before.classes)
    labels, asked = after.labels(split)[of_after, :classes], after.asked(split)
    asked = None if asked is None else asked[of_after, :classes]
    first, second = before.scores(split)[of_before], after.scores(split)[of_after]
    photos = _photos(before, first, after, second, rows)
    return BeforeAfter(
        before=_judge(before, first, labels, asked),
        after=_judge(after, second, labels, asked),
        split=split,
        images=len(rows),
        changed=len(photos),
        photos=photos[:MOST_PHOTOS],
    )


def _judge(run: FinishedRun, scores: Scores, labels: Labels, asked: NDArray[np.bool_] | None) -> Judged:
    """The figures of a run on its first classes: measured where all labels are known, and estimated elsewhere."""
    classes, name = labels.shape[1], run.path.name
    predicted, scores = run.decisions.labels(scores)[:, :classes], scores[:, :classes]
    thresholds = replace(run.decisions, thresholds=run.decisions.thresholds[:classes])  # no calibration is asked of it
    names, process = run.classes[:classes], run.config.data.process
    found = evaluate(scores, labels, thresholds, names, process=process, asked=asked).estimated
    if found is not None:
        return Judged(name, found.map, found.f1, found.assumption)
    measured = bootstrap_figures(scores, labels, predicted)
    return Judged(name, measured.map, measured.f1, "")


def _photos(before: FinishedRun, first: Scores, after: FinishedRun, second: Scores, rows: Indices) -> list[Photo]:
    """The images of which the two say different things, those whose probabilities moved farthest first."""
    known = first.shape[1]
    wider = ((0, 0), (0, second.shape[1] - known))
    was, now = before.decisions.probabilities(first), after.decisions.probabilities(second)
    predicted = after.decisions.labels(second)
    differs = np.pad(before.decisions.labels(first), wider) != predicted
    moved = np.where(differs, np.abs(now - np.pad(was, wider)), 0).max(1)
    changed = np.flatnonzero(differs.any(1))

    def change(image: int, column: int) -> Change:
        chance = float(was[image, column]) if column < known else None
        return Change(after.classes[column], chance, float(now[image, column]), bool(predicted[image, column]))

    return [
        Photo(
            int(rows[image]),
            before.table.files[int(rows[image])],
            [change(image, column) for column in np.flatnonzero(differs[image]).tolist()],
        )
        for image in changed[np.argsort(-moved[changed], kind="stable")].tolist()
    ]
