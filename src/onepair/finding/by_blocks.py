"""Missing labels of more images and classes than can be looked at at once: the likeliest of each class."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from onepair.finding.suggestions import FindingError, Suggestions
from onepair.label_matrix import LabelMatrix
from onepair.labels import POSITIVE, UNKNOWN, Indices, Labels
from onepair.metrics import Floats
from onepair.probability.counting import Estimate, Z
from onepair.probability.incomplete import Inference, infer
from onepair.probability.observation import Mask, Observation, Process
from onepair.score_blocks import HighestUnknown
from onepair.words import counted

Score = Callable[[Indices], NDArray[np.float32]]  # from rows (n,) to their scores (n, L)

_SAMPLED_CELLS = 2**24  # by which scores are calibrated, and missing labels counted
_BLOCK = 2**22  # cells that are scored at once: memory of up to 32 MB is used again and again, more is made anew


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
    shown = observed.take(sample).dense()
    suggested = _asked_in(asked, sample, shown)
    inference = _infer(score(sample), shown, suggested, full, full_scores, process)
    row, label, chance = _highest(observed, score, per_class, inference, on_progress)
    chosen = np.argsort(-chance, kind="stable")[:top]
    row, label = row[chosen], label[chosen]
    lists = _lists(inference.observation, shown, suggested)
    probability = _posterior(observed, asked, score, row, label, inference, lists)
    order = np.lexsort((label, row, -probability))
    found = Suggestions(row[order], label[order], probability[order], np.full(len(row), "missing"))
    expected, most = np.where(shown == UNKNOWN, inference.probabilities[:size], 0), observed.count(UNKNOWN)
    missing = _of_all(inference.missing, expected, rows, most)
    total = _of_all(inference.total, expected.sum(1), rows, most.sum())
    return BlockFinding(found, missing, total, inference.observation.sentence, size)


def _asked_in(asked: LabelMatrix | None, rows: Indices, labels: Labels) -> Mask:
    """Which known labels (n, L) of some rows were asked for."""
    if asked is None:
        return np.zeros(labels.shape, bool)
    return np.asarray((asked[rows] == POSITIVE) & (labels != UNKNOWN))


def _infer(
    scores: NDArray[np.float32],
    shown: Labels,
    suggested: Mask,
    full: ArrayLike | None,
    full_scores: ArrayLike | None,
    process: Process,
) -> Inference:
    rows = len(shown)
    if full is not None and full_scores is not None:
        others = np.asarray(full, np.int8)
        scores, shown = np.concatenate([scores, np.asarray(full_scores)]), np.concatenate([shown, others])
        suggested = np.concatenate([suggested, np.zeros(others.shape, bool)])
    if not (shown == POSITIVE).any():
        raise FindingError(
            f"of {counted(rows, 'image')} drawn at random none has a positive label, so nothing can be said of the "
            "others; label more images"
        )
    return infer(scores, shown, process=process, asked=suggested, counted=rows)


def _of_all(estimate: Estimate, expected: Floats, rows: int, most: ArrayLike) -> Estimate:
    """How many there are in all of N rows, by an estimate for n of them, drawn at random.

    Its interval is wider by what other draws would tell: the variance of the number expected (n, …) of each row, and
    what a score interval for a rate adds, by which a class that the sample does not hold is not taken to be nowhere.
    """
    size = len(expected)
    left_out = 1 - size / rows
    unseen = left_out * Z**2 / 2
    drawn = np.sqrt(Z**2 * left_out * size * expected.var(0) + unseen**2)
    value = estimate.value
    low = np.maximum(value - np.hypot(value - estimate.low, drawn - unseen), 0)
    high = value + np.hypot(estimate.high - value, drawn + unseen)
    return Estimate(*(np.minimum(each * rows / size, most) for each in (value, low, high)))


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
        if not np.isfinite(block.sum()) and not np.isfinite(block).all():
            raise ValueError(f"scores: row {start + int(np.argmin(np.isfinite(block).all(1)))} is not finite")
        highest.add(slice(start, start + len(block)), block)
        on_progress(start + len(block), rows)
    row, label, scores = highest.found(highest.most)
    return row, label, inference.in_any_row.of_cells(scores, label)


def _posterior(
    observed: LabelMatrix,
    asked: LabelMatrix | None,
    score: Score,
    row: Indices,
    label: Indices,
    inference: Inference,
    lists: Collection[bytes],
) -> Floats:
    """The probabilities of cells, given all that is known of their rows."""
    wanted, place = np.unique(row, return_inverse=True)
    probability = np.empty(len(row))
    size = max(1, _SAMPLED_CELLS // observed.shape[1])
    for start in range(0, len(wanted), size):
        here = wanted[start : start + size]
        labels = observed[here]
        bound = _bound(inference.observation, labels, _asked_in(asked, here, labels), lists)
        posterior = bound.posterior(inference.in_any_row(score(here)), labels, inference.rates)
        own = np.flatnonzero((place >= start) & (place < start + len(here)))
        probability[own] = posterior[place[own] - start, label[own]]
    return probability


def _lists(observation: Observation, labels: Labels, suggested: Mask) -> set[bytes]:
    """By which lists of classes rows (n, L) of the sample were looked at."""
    by_list = observation.free[: len(labels)].all(1) & (labels == UNKNOWN).any(1)
    return set(_patterns(labels[by_list], suggested[by_list]))


def _patterns(labels: Labels, suggested: Mask) -> list[bytes]:
    """Of each row which labels are known that nobody asked for."""
    return [row.tobytes() for row in np.packbits((labels != UNKNOWN) & ~suggested, axis=1)]


def _bound(observation: Observation, labels: Labels, suggested: Mask, lists: Collection[bytes]) -> Observation:
    """How the labels of other rows came to be known, by the process of the sample."""
    by_list = [each in lists for each in _patterns(labels, suggested)]
    free = suggested | np.array(by_list)[:, None] | observation.free.all()
    return Observation(observation.sentence, observation.drawn, free, suggested, observation.empty)
