"""Missing labels of more images and classes than can be looked at at once: the likeliest of each class."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from onepair.finding.suggestions import Suggestions
from onepair.label_matrix import LabelMatrix
from onepair.labels import POSITIVE, UNKNOWN, Indices, Labels
from onepair.metrics import Floats
from onepair.probability.counting import Estimate
from onepair.probability.incomplete import Inference, infer
from onepair.probability.observation import Observation, Process
from onepair.score_blocks import HighestUnknown

Score = Callable[[Indices], NDArray[np.float32]]  # from rows (n,) to their scores (n, L)

_SAMPLED_CELLS = 2**24  # by which scores are calibrated, and missing labels counted
_BLOCK = 2**25  # cells that are scored at once


@dataclass(frozen=True, eq=False)
class BlockFinding:
    """What was found."""

    suggestions: Suggestions
    missing: Estimate  # positives of each class among the unknown cells
    total: Estimate  # of all classes
    sentence: str  # how labels seem to have come to be known
    sample: int  # rows that probabilities rest on


def find_by_blocks(
    observed: LabelMatrix,
    score: Score,
    *,
    per_class: int = 10,
    top: int | None = None,
    full: ArrayLike | None = None,
    full_scores: ArrayLike | None = None,
    asked: LabelMatrix | None = None,
    process: Process = "auto",
    seed: int = 0,
    on_progress: Callable[[int, int], None] = lambda done, rows: None,
) -> BlockFinding:
    """The missing labels that are likeliest, so many of each class, and how many there are.

    As `onepair.probability.judgement.judge` and `rank`, with these differences: lines and counts rest on a random
    sample of the rows, and are scaled to all of them; of each class only the highest-scored unknown labels are judged;
    what labels say of each other beyond how they came to be known is not learned; and observed labels are not suspected
    to be wrong.

    Args:
        observed: (N, L), the labels to complete.
        score: gives the scores of rows by models that were not fitted to them. Every row is asked for once, and those
            of the sample and of suggestions once more.
        per_class: suggestions of each class, at most.
        top: suggestions of all classes, at most.
        full, full_scores: (M, L), other rows with all of their labels, and their scores.
        asked: (N, L), 1 where a label is known because a model suggested to ask for it.
        process: how labels came to be known, as for `recognise`.
        seed: of the sample.
        on_progress: called with the rows done, and all of them.
    """
    rows, classes = observed.shape
    size = min(rows, max(1, _SAMPLED_CELLS // classes))
    sample = np.sort(np.random.default_rng(seed).choice(rows, size, replace=False))
    shown = observed.take(sample)
    if not shown.has(POSITIVE):
        raise ValueError("no positive label is observed, so nothing can be said of the others")
    inference = _infer(score, sample, shown, full, full_scores, asked, process)
    row, label, chance = _highest(observed, score, per_class, inference, on_progress)
    chosen = np.argsort(-chance, kind="stable")[:top]
    row, label = row[chosen], label[chosen]
    probability = _posterior(observed, score, row, label, inference)
    order = np.lexsort((label, row, -probability))
    found = Suggestions(row[order], label[order], probability[order], np.full(len(row), "missing"))
    missing, total = (
        Estimate(*(np.minimum(each * rows / size, most) for each in estimate))
        for estimate, most in (
            (inference.missing, observed.count(UNKNOWN)),
            (inference.total, observed.count(UNKNOWN).sum()),
        )
    )
    return BlockFinding(found, missing, total, inference.observation.sentence, size)


def _infer(
    score: Score,
    sample: Indices,
    shown: LabelMatrix,
    full: ArrayLike | None,
    full_scores: ArrayLike | None,
    asked: LabelMatrix | None,
    process: Process,
) -> Inference:
    scores, labels = score(sample).astype(np.float64), shown.dense()
    suggested = np.zeros(labels.shape, bool) if asked is None else asked[sample] == POSITIVE
    if full is not None and full_scores is not None:
        others = np.asarray(full, np.int8)
        scores, labels = np.concatenate([scores, np.asarray(full_scores)]), np.concatenate([labels, others])
        suggested = np.concatenate([suggested, np.zeros(others.shape, bool)])
    return infer(scores, labels, process=process, asked=suggested, counted=len(sample))


def _highest(
    observed: LabelMatrix,
    score: Score,
    per_class: int,
    inference: Inference,
    on_progress: Callable[[int, int], None],
) -> tuple[Indices, Indices, Floats]:
    """The unknown cells with the highest scores of each class, and how likely each is by its score alone."""
    rows, classes = observed.shape
    highest = HighestUnknown(observed, np.minimum(per_class, observed.count(UNKNOWN)))
    size = max(1, _BLOCK // classes)
    on_progress(0, rows)
    for start in range(0, rows, size):
        block = score(np.arange(start, min(start + size, rows)))
        highest.add(slice(start, start + len(block)), block)
        on_progress(start + len(block), rows)
    row, label, scores = highest.found(highest.most)
    return row, label, inference.in_any_row.of_cells(scores, label)


def _posterior(observed: LabelMatrix, score: Score, row: Indices, label: Indices, inference: Inference) -> Floats:
    """The probabilities of cells, given all that is known of their rows."""
    wanted, place = np.unique(row, return_inverse=True)
    probability = np.empty(len(row))
    size = max(1, _SAMPLED_CELLS // observed.shape[1])
    for start in range(0, len(wanted), size):
        here = wanted[start : start + size]
        labels = observed[here]
        bound = _bound(inference.observation, labels)
        posterior = bound.posterior(inference.in_any_row(score(here)), labels, inference.rates)
        own = np.flatnonzero((place >= start) & (place < start + len(here)))
        probability[own] = posterior[place[own] - start, label[own]]
    return probability


def _bound(observation: Observation, labels: Labels) -> Observation:
    """How the labels of other rows came to be known, by the process of the sample: rows known in full say nothing."""
    known_in_full = (labels != UNKNOWN).all(1, keepdims=True)
    free = np.broadcast_to(known_in_full | observation.free.all(), labels.shape)
    return Observation(observation.sentence, observation.drawn, free, np.zeros(labels.shape, bool), observation.empty)
