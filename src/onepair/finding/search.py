"""Missing and wrong labels, where labels and scores come in blocks of rows; a matrix is one block."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from onepair.errors import RunError
from onepair.finding.suggestions import MOST, Suggestions
from onepair.label_matrix import LabelMatrix
from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, Indices, Labels
from onepair.metrics import Floats, HighestUnknown, ScoreRows
from onepair.probability.calibration import Correction
from onepair.probability.cell_posterior import CellPosterior, fit_cell_posterior
from onepair.probability.evaluation import assumption
from onepair.probability.intervals import Interval, Z
from onepair.probability.observation import Mask, Process
from onepair.words import counted

FEW_CELLS = 2**24  # that probabilities are fitted to, and all computed of: some 80 bytes each
_FEWEST_OF_A_CLASS = 10
_BLOCK = 2**22  # cells that are scored at once: memory of up to 32 MB is used again and again, more is made anew
_SUSPICIOUS = 0.01  # a fifth of what is suggested by default: the rest of its row may make a label likelier wrong


@dataclass(frozen=True, eq=False)
class BlockFinding:
    """What was found."""

    suggestions: Suggestions
    missing: Interval  # positives of each class among the unknown cells
    total: Interval  # of all classes
    basis: str  # a few words on what the probabilities rest on
    correction: Correction  # of probabilities, by what answers and rows in full told


def find_by_blocks(
    observed: LabelMatrix,
    score: ScoreRows,
    *,
    per_class: int | None = None,
    top: int | None = None,
    full: ArrayLike | None = None,
    full_scores: ArrayLike | None = None,
    asked: LabelMatrix | None = None,
    process: Process = "auto",
    seed: int = 0,
    on_progress: Callable[[int, int], None] = lambda done, rows: None,
) -> BlockFinding:
    """Find the missing and the wrong labels of a matrix, and how many are missing.

    Probabilities are fitted to a random sample of the rows, or to all of them if they are few, and counts are scaled to
    all of them. Of many labels only the likeliest are looked at, by their scores alone, before their whole rows are.

    Args:
        observed: (N, L), the labels to complete and to check.
        score: gives the scores of rows by models that were not fitted to them. Every row is asked for once or twice.
        per_class: of each class look at so many unknown labels at most, those of the highest scores; by default at all
            of few labels, and of more than 2²⁴ at twice as many as make 100,000 of all classes, and 10 at least.
        top: of these and of suspicious observed labels look at so many, the likeliest; by default at all.
        full: (M, L), other rows with all of their labels.
        full_scores: (M, L), theirs, or (K, M, L) by several models.
        asked: (N, L), 1 where a label is known because a model suggested to ask for it.
        process: how labels came to be known, as for `recognise`.
        seed: of the sample.
        on_progress: called with the rows done, and all of them.

    Returns:
        Suggestions, the most probable first, and estimates of how many labels are missing.

    Examples:
        >>> scores = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
        >>> observed = LabelMatrix.of(np.where(scores > 0.5, 1, -1))
        >>> found = find_by_blocks(observed, lambda rows: scores[rows])
        >>> found.missing.value.shape
        (2,)
    """
    rows, classes = observed.shape
    size = min(rows, max(1, FEW_CELLS // classes))
    sample = np.sort(np.random.default_rng(seed).choice(rows, size, replace=False)) if size < rows else np.arange(rows)
    labels = observed[sample]
    if not (labels == POSITIVE).any() and not (full is not None and (np.asarray(full) == POSITIVE).any()):
        raise RunError(
            f"none of {counted(size, 'image')} has a positive label, so nothing can be said of the others; label more "
            "images"
        )
    fitted = fit_cell_posterior(
        labels,
        score(sample),
        sample=full,
        sample_scores=full_scores,
        process=process,
        asked=_asked_in(asked, sample, labels),
    )
    if per_class is None and observed.size <= FEW_CELLS:
        cells = np.arange(observed.size)
    else:
        wanted = per_class or max(_FEWEST_OF_A_CLASS, 2 * MOST // classes)
        cells = _candidates(observed, score, fitted, wanted, top, on_progress)
    suggestions = _rank(observed, score, asked, fitted, cells)
    found = fitted.inference
    basis = assumption(found.observation, labels if full is None else np.concatenate([labels, np.asarray(full)]))
    if size == rows:
        return BlockFinding(suggestions, found.missing, found.total, basis, fitted.order.correction)
    expected, most = np.where(labels == UNKNOWN, found.probabilities[:size], 0), observed.count(UNKNOWN)
    missing = _of_all(found.missing, expected, rows, most)
    total = _of_all(found.total, expected.sum(1), rows, most.sum())
    basis = f"by a random sample of {size:,} of {counted(rows, 'image')}, {basis}"
    return BlockFinding(suggestions, missing, total, basis, fitted.order.correction)


def _asked_in(asked: LabelMatrix | None, rows: Indices, labels: Labels) -> Mask:
    """Which known labels (n, L) of some rows were asked for."""
    return np.zeros(labels.shape, bool) if asked is None else np.asarray(asked[rows] == POSITIVE)


def _of_all(estimate: Interval, expected: Floats, rows: int, most: ArrayLike) -> Interval:
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
    return Interval(*(np.minimum(each * rows / size, most) for each in (value, low, high)))


def _candidates(
    observed: LabelMatrix,
    score: ScoreRows,
    fitted: CellPosterior,
    per_class: int,
    top: int | None,
    on_progress: Callable[[int, int], None],
) -> Indices:
    """The cells that are likeliest by their score alone to be missing or wrong, ascending by row and class."""
    rows, classes = observed.shape
    highest = HighestUnknown(observed, np.minimum(per_class, observed.count(UNKNOWN)))
    wrong_positive, wrong_negative = fitted.noise.by_score(fitted.inference.platt)
    from_there, wrong = wrong_negative.scores_at(_SUSPICIOUS), []
    on_progress(0, rows)
    for start, end in _blocks(rows, _BLOCK // classes):
        block, part = score(np.arange(start, end)), observed.take(slice(start, end))
        if not np.isfinite(block.sum()) and not np.isfinite(block).all():
            raise ValueError(f"scores: row {start + int(np.argmin(np.isfinite(block).all(1)))} is not finite")
        highest.add(slice(start, end), block)
        high = np.nonzero(block >= from_there)
        negative = part[high] == NEGATIVE
        for line, (row, label) in (
            (wrong_positive, part.positives()),
            (wrong_negative, (high[0][negative], high[1][negative])),
        ):
            chance = line.of_cells(block[row, label], label)
            kept = chance >= _SUSPICIOUS
            wrong.append((row[kept] + start, label[kept], chance[kept]))
        on_progress(end, rows)
    row, label, scores = highest.found(highest.most)
    found = [(row, label, fitted.inference.in_any_row.of_cells(scores, label)), *wrong]
    row, label, chance = (np.concatenate(each) for each in zip(*found, strict=True))
    return np.sort((row * classes + label)[np.argsort(-chance, kind="stable")[:top]])


def _rank(
    observed: LabelMatrix, score: ScoreRows, asked: LabelMatrix | None, fitted: CellPosterior, cells: Indices
) -> Suggestions:
    """Cells, ascending by row and class, in order of their probabilities given all that is known of their rows."""
    row, label = np.divmod(cells, observed.shape[1])
    wanted = np.unique(row)
    probability, unknown = np.empty(len(cells)), np.empty(len(cells), bool)
    for start, end in _blocks(len(wanted), _BLOCK // observed.shape[1]):
        here = wanted[start:end]
        own = slice(*np.searchsorted(row, [here[0], here[-1] + 1]))
        at = np.searchsorted(here, row[own]), label[own]
        labels = observed[here]
        positive = fitted(score(here), labels, _asked_in(asked, here, labels))
        probability[own] = np.where(labels == POSITIVE, 1 - positive, positive)[at]
        unknown[own] = (labels == UNKNOWN)[at]
    order = np.argsort(-probability, kind="stable")  # equal ones stay in the order of the matrix
    kind = np.where(unknown, "missing", "wrong")
    return Suggestions(row, label, probability, kind)[order]


def _blocks(rows: int, size: int) -> Iterator[tuple[int, int]]:
    return ((start, min(start + max(size, 1), rows)) for start in range(0, rows, max(size, 1)))
