"""What an audit tells: how many labels are missing, and how good the model is, with intervals."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from onepair.errors import RunError
from onepair.labels import NEGATIVE, POSITIVE
from onepair.probability.counting import count_missing
from onepair.probability.resampling import Figures, bootstrap_figures, more_to_halve
from onepair.runs.audit import AuditedSplit
from onepair.runs.finished import FinishedRun
from onepair.words import command


class Missing(NamedTuple):
    """Positives that the dataset does not have, in all images that an audit stands for, and an interval of 95 %."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class AuditSummary:
    """What audited images say of those that they were drawn from."""

    split: AuditedSplit
    images: int
    population: int
    observed: int  # positives of the dataset in the split
    found: int  # positives of audited images that the dataset did not have
    denied: int  # and those that it had, which are none
    classes: dict[str, Missing]
    missing: Missing  # of all classes together
    figures: Figures | None  # of the model on the audited images; None where these have no labels at all
    more: int  # audited images that would halve the intervals


def summarise_audit(run: FinishedRun) -> AuditSummary:
    """Count the missing labels of the split that was audited, and judge the model on the audited images.

    Missing labels of audited images are counted, those of the others estimated by `count_missing`; where only a sample
    of these is looked at, it stands for all.
    """
    audit = run.audit
    if audit is None:
        raise RunError(f"{run.path}: not one image is audited yet; run {command('audit', run.path)}")
    rows = run.rows(audit.split)
    places = np.searchsorted(rows, audit.rows)
    others = np.setdiff1d(np.arange(len(rows)), places)
    if len(others) == 0 and audit.population > len(audit):  # of a sample all is audited, and stands for the rest
        others = places
    given, scores = run.table.labels[rows], run.scores(audit.split)
    chances = run.decisions.probabilities(scores)
    found = (audit.labels == POSITIVE) & (given[places] != POSITIVE)
    stands_for = (audit.population - len(audit)) / max(len(others), 1)
    parts = count_missing(given[others], chances[others], audit.labels, chances[places]) if len(others) else None
    by_class = zip(*(stands_for * each for each in parts[0]), strict=True) if parts else [(0.0,) * 3] * given.shape[1]
    together = tuple(stands_for * float(each) for each in parts[1]) if parts else (0.0,) * 3
    predicted = run.decisions.labels(scores[places])
    there = (audit.labels == POSITIVE).any()
    return AuditSummary(
        split=audit.split,
        images=len(audit),
        population=audit.population,
        observed=int(run.table.labels.take(run.task.rows(audit.split)).count(POSITIVE).sum()),
        found=int(found.sum()),
        denied=int(((audit.labels == NEGATIVE) & (given[places] == POSITIVE)).sum()),
        classes={
            name: Missing(*(float(end) + number for end in ends))
            for name, number, ends in zip(run.table.classes, found.sum(0).tolist(), by_class, strict=True)
        },
        missing=Missing(*(end + int(found.sum()) for end in together)),
        figures=bootstrap_figures(scores[places], audit.labels, predicted) if there else None,
        more=more_to_halve(len(audit), audit.population),
    )
