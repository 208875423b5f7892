"""What was found, class by class."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike
from pydantic import BaseModel

from onepair.data.stored import StoredError, read_record
from onepair.finding.filter import likely, thresholds
from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, validate_labels
from onepair.probability.counting import Estimate


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
    except StoredError:
        return []
    return [] if summary is None else summary.classes


def summarise(
    labels: ArrayLike, probabilities: ArrayLike, missing: Estimate, classes: Sequence[str]
) -> list[ClassSummary]:
    """A summary of every class.

    Args:
        labels, probabilities: (N, L), as for `rank`.
        missing: how many positives of each class are among the unknown cells.
        classes: their names.
    """
    known = validate_labels(labels)
    limits = thresholds(known, probabilities, missing.value)
    suggested = likely(known, probabilities, limits).sum(0)
    counts = ((known == value).sum(0) for value in (POSITIVE, NEGATIVE, UNKNOWN))
    prior = ((known == POSITIVE).sum(0) + missing.value) / len(known)
    columns = (np.asarray(each).tolist() for each in (*counts, *missing, prior, limits, suggested))
    return [ClassSummary(name, *values) for name, *values in zip(classes, *columns, strict=True)]
