"""What was found, class by class, and how much of it is shown."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel

from onepair.data.own_files import read_record
from onepair.errors import DataError
from onepair.finding.suggestions import MOST, Suggestions, write_suggestions
from onepair.label_matrix import LabelMatrix
from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, Indices
from onepair.probability.intervals import Interval


@dataclass(frozen=True)
class ClassSummary:
    """How complete the labels of one class are."""

    name: str
    observed: int  # positives
    negative: int
    unknown: int
    missing: float  # how many positives there are among the unknown, as estimated
    missing_low: float  # and the ends of its interval
    missing_high: float
    prior: float  # the share of images that it is in, known and missing ones together
    threshold: float  # probability at which as many are suggested as are missing
    suggested: int  # unknown cells that reach it

    @property
    def images(self) -> int:
        return self.observed + self.negative + self.unknown

    @property
    def prior_interval(self) -> tuple[float, float]:
        """The ends of the interval of the share of images that it is in."""
        low, high = ((self.observed + end) / max(self.images, 1) for end in (self.missing_low, self.missing_high))
        return low, high


class _Summary(BaseModel):
    """What is looked at of the file."""

    classes: list[ClassSummary]


def read_summary(run: Path) -> list[ClassSummary]:
    """What `onepair find` found in a run, class by class; nothing where it was not run, or by another version."""
    try:
        summary = read_record(run / "finding" / "summary.json", _Summary)
    except DataError:
        return []
    return [] if summary is None else summary.classes


def summarise(
    observed: LabelMatrix, found: Suggestions, missing: Interval, classes: Sequence[str]
) -> list[ClassSummary]:
    """Summarise every class.

    As many suggestions of a class reach its threshold as labels are missing, so that their precision and recall are
    about equal; 1 for a class that misses less than half a label.

    Args:
        observed: (N, L).
        found: suggestions for these rows, all or the likeliest of each class.
        missing: how many positives of each class are among the unknown cells.
        classes: their names.
    """
    cells = found[found.kind == "missing"]
    order = np.lexsort((-cells.probability, cells.label))
    counts = np.bincount(cells.label, minlength=len(classes))
    wanted = np.minimum(np.rint(missing.value).astype(int), counts)
    last = np.cumsum(counts) - counts + wanted - 1
    limits = np.ones(len(classes))
    limits[wanted > 0] = cells.probability[order][last[wanted > 0]]
    suggested = np.bincount(cells.label[cells.probability >= limits[cells.label]], minlength=len(classes))
    positive, negative, unknown = (observed.count(value) for value in (POSITIVE, NEGATIVE, UNKNOWN))
    prior = (positive + missing.value) / len(observed)
    columns = (each.tolist() for each in (positive, negative, unknown, *missing, prior, limits, suggested))
    return [ClassSummary(name, *values) for name, *values in zip(classes, *columns, strict=True)]


MIN_PROBABILITY = 0.05
FEWEST = 50  # of missing labels, where the labels do not tell how many are missing


@dataclass(frozen=True, eq=False)
class Finding:
    """What was found in the images of a run that may miss labels."""

    suggestions: Suggestions  # rows count from the first of these images
    classes: list[ClassSummary]
    missing: Interval  # of all classes together
    rows: Indices  # of the table, of these images
    files: Sequence[str]  # their names
    folds: int
    basis: str  # a few words on what the probabilities rest on

    @property
    def uninformed(self) -> bool:
        """Whether labels are suggested as missing though none is thought to be."""
        least = self.suggestions.probability[self.suggestions.kind == "missing"]
        return len(least) > 0 and float(least.max()) < MIN_PROBABILITY

    def write(self, path: Path) -> None:
        write_suggestions(path, self.suggestions, self.files, [each.name for each in self.classes])

    def to_dict(self) -> dict[str, Any]:
        value, low, high = map(float, self.missing)
        kinds = self.suggestions.kind
        return {
            "images": len(self.files),
            "folds": self.folds,
            "scores": f"by {self.folds} models, each trained without the images it scores",
            "probabilities": f"calibrated by {self.basis}",
            "suggestions": {
                "missing": int((kinds == "missing").sum()),
                "wrong": int((kinds == "wrong").sum()),
            },
            "observed": sum(each.observed for each in self.classes),
            "missing": value,
            "missing_low": low,
            "missing_high": high,
            "classes": [asdict(each) for each in self.classes],
        }


def choose(found: Suggestions, total: Interval, top: int | None, min_probability: float | None) -> Suggestions:
    """The suggestions that are worth a look, of all in order: those that are probable enough, and not too many.

    Args:
        found: all of them.
        total: how many labels are missing.
        top: how many at most.
        min_probability: how probable at least; by default `MIN_PROBABILITY`, unless `top` says how many.
    """
    if min_probability is not None or top is None:
        kept = found.probability >= (MIN_PROBABILITY if min_probability is None else min_probability)
        missing = found.kind == "missing"
        if min_probability is None and total.high >= 1 and not (kept & missing).any():
            # Likelihood may take all that is unknown for negative, where few negatives are known: the order holds.
            kept |= missing & (np.cumsum(missing) <= FEWEST)
        found = found[kept]
    return found[: MOST if top is None else top]
