"""Two runs side by side, before and after people's answers: the same images, the same labels, the same classes."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from onepair.labels import POSITIVE, Indices, Labels
from onepair.metrics import Floats
from onepair.probability.evaluation import evaluate
from onepair.probability.intervals import Interval, bootstrap_figures
from onepair.probability.thresholds import Thresholds
from onepair.runs.finished import FinishedRun
from onepair.runs.task import Split

MOST_PHOTOS = 24


class Judged(NamedTuple):
    """A run, by name, and how good it is."""

    name: str
    map: Interval
    f1: Interval


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
    assumption: str  # what the figures rest on, where labels are unknown
    changed: int  # images that the two say different things of
    photos: list[Photo]  # the first of them, those that changed most first


class _Side(NamedTuple):
    """What one run says of the images that both are judged by."""

    run: FinishedRun
    scores: NDArray[np.float32]  # (N, L)
    predicted: NDArray[np.bool_]
    probabilities: Floats


def compare(before: FinishedRun, after: FinishedRun) -> BeforeAfter:
    """Judge both runs by what is known now, on test images or, without labels on these, on validation images.

    The tables of the two have the same rows, since the second was written from the first; what the second has more are
    labels, and perhaps classes at the end, which are in no figure, as the first run knows nothing of them.
    """
    split = _judged_by(after)
    rows, of_before, of_after = np.intersect1d(before.rows(split), after.rows(split), return_indices=True)
    first, second = _side(before, split, of_before), _side(after, split, of_after)
    classes = len(before.classes)
    labels = after.labels(split)[of_after, :classes]
    asked = after.asked(split)
    asked = None if asked is None else asked[of_after, :classes]
    judged = [_judge(side, labels, asked) for side in (first, second)]
    photos = _photos(first, second, rows)
    return BeforeAfter(
        before=judged[0][0],
        after=judged[1][0],
        split=split,
        images=len(rows),
        assumption=judged[1][1],
        changed=len(photos),
        photos=photos[:MOST_PHOTOS],
    )


def _judged_by(run: FinishedRun) -> Split:
    tested = len(run.task.test) and (run.labels("test") == POSITIVE).any()
    return "test" if tested else "validation"


def _side(run: FinishedRun, split: Split, chosen: Indices) -> _Side:
    scores = run.scores(split)[chosen]
    return _Side(run, scores, run.decisions.labels(scores), run.decisions.probabilities(scores))


def _judge(side: _Side, labels: Labels, asked: NDArray[np.bool_] | None) -> tuple[Judged, str]:
    """The figures of a run, measured where all labels are known and estimated elsewhere, and what they rest on."""
    classes, name = labels.shape[1], side.run.path.name
    scores, predicted = side.scores[:, :classes], side.predicted[:, :classes]
    found = evaluate(
        scores,
        labels,
        _of_classes(side.run.decisions, classes),
        side.run.classes[:classes],
        process=side.run.config.data.process,
        asked=asked,
    )
    if found.estimated is not None:
        return Judged(name, found.estimated.map, found.estimated.f1), found.estimated.assumption
    measured = bootstrap_figures(scores, labels, predicted)
    return Judged(name, measured.map, measured.f1), ""


def _of_classes(decisions: Thresholds, classes: int) -> Thresholds:
    """The thresholds of the first classes; to evaluate them takes no calibration."""
    return replace(decisions, thresholds=decisions.thresholds[:classes])


def _photos(first: _Side, second: _Side, rows: Indices) -> list[Photo]:
    """The images of which the two say different things, those whose probabilities moved farthest first."""
    known = first.predicted.shape[1]
    more = second.predicted.shape[1] - known
    predicted = np.pad(first.predicted, ((0, 0), (0, more)))
    moved = np.abs(second.probabilities - np.pad(first.probabilities, ((0, 0), (0, more))))
    differs = predicted != second.predicted
    found = np.flatnonzero(differs.any(1))
    order = found[np.argsort(-np.where(differs, moved, 0).max(1)[found], kind="stable")]
    table, classes = first.run.table, second.run.classes
    return [
        Photo(
            row := int(rows[image]),
            table.files[row],
            [
                Change(
                    classes[column],
                    float(first.probabilities[image, column]) if column < known else None,
                    float(second.probabilities[image, column]),
                    bool(second.predicted[image, column]),
                )
                for column in np.flatnonzero(differs[image]).tolist()
            ],
        )
        for image in order.tolist()
    ]
