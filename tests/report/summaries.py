"""Small runs to report on."""

from itertools import cycle

import numpy as np

from onepair.finding.suggestions import ClassSummary
from onepair.metrics import average_precision
from onepair.report import RunSummary
from tests.decisions import plain

CLASSES = ("cat", "dog", "bird")
LABELS = np.array([[1, 0, 1], [0, 1, 0], [1, 1, 0], [0, 0, -1]], np.int8)


def records(values, stage="linear"):
    return [
        {"stage": stage, "epoch": i, "loss": 1.0, "validation_map": value, "best_epoch": 1, "images_per_second": 9.0}
        for i, value in enumerate(values, start=1)
    ]


def summary(name, test_map, *, title=None, labels="single positives", shift=0.0, epochs=3, **changes):
    scores = np.where(LABELS == 1, 2.0, -2.0) + shift
    values = {
        "records": records(np.linspace(0.3, test_map, epochs)),
        "classes": CLASSES,
        "class_ap": average_precision(scores, LABELS),
        "best_epoch": epochs,
        "seconds": 75.0,
        "test_scores": scores,
        "test_labels": LABELS,
        "decisions": plain(np.zeros(3)),
        "method": name,
    }
    return RunSummary(name, title or name.upper(), labels, test_map=test_map, **(values | changes))


def found(missing=(2.0, 0.5, 0.0), names=CLASSES):
    """What was found to be missing, of ten images."""
    return [
        ClassSummary(name, seen, 0, 10 - seen, number, number / 2, 2 * number, (seen + number) / 10, 0.5, round(number))
        for name, seen, number in zip(names, cycle((3, 2, 5)), missing, strict=False)
    ]


def four():
    return [
        summary("bce", 0.70, class_ap=np.array([0.5, 0.8, 0.6])),
        summary("opml", 0.75, class_ap=np.array([0.6, 0.8, 0.7])),
        summary("opml-sp", 0.826, class_ap=np.array([0.6, 0.7, 0.9]), found=found()),
        summary("full", 0.90, title="BCE", labels="full labels", class_ap=np.array([0.9, 0.9, 0.9])),
    ]
