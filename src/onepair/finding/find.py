"""Missing and wrong labels, by blocks of rows, and from a finished run to the files that a person reviews."""

import copy
import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from onepair.errors import RunError
from onepair.files import locked, write_atomically, writing
from onepair.finding.folds import OutOfSample, read_out_of_sample, train_folds
from onepair.finding.suggestions import MOST, Finding, Suggestions, choose, summarise
from onepair.label_matrix import LabelMatrix
from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, Indices, Labels
from onepair.metrics import Floats, HighestUnknown, ScoreRows
from onepair.probability.calibration import Correction
from onepair.probability.cell_posterior import CellPosterior, fit_cell_posterior
from onepair.probability.evaluation import assumption
from onepair.probability.intervals import Interval, Z
from onepair.probability.observation import Mask, Process
from onepair.runs.config import WITHOUT_IMAGES, Config
from onepair.runs.finished import FinishedRun
from onepair.runs.folder import RunFolder
from onepair.training.callbacks import Callback, progress_of
from onepair.training.hardware import Hardware, first_logger, leave_to_first, on_first
from onepair.words import counted, listed

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


if TYPE_CHECKING:
    import torch

FOLDS = 5

_log = first_logger(__name__)


def find_labels(
    run: FinishedRun,
    *,
    folds: int | None = None,
    top: int | None = None,
    min_probability: float | None = None,
    maps: bool = True,
    hardware: Hardware,
    callbacks: Sequence[Callback] = (),
) -> Finding:
    """Find the missing and the wrong labels of a run's images, and write them into finding/ of its folder.

    Looked at are training images, and validation images that have unknown labels.

    Writes suggestions.csv, summary.json and, unless `maps` is false, maps.npy, whose entry i belongs to suggestion i.

    Args:
        run: a finished run.
        folds: how many models are trained, each without one part of the rows; by default 5, fewer for fewer rows. A
            run that was solved for has its out-of-fold scores, and trains none.
        top: keep at most so many suggestions.
        min_probability: keep those that are at least so probable.
        maps: whether to compute where in its image each suggested label is.
        hardware, callbacks: as for training. Of several processes only the first returns: once models are trained, the
            others have nothing left to do, and end.
    """
    folder = run.path / "finding"
    fabric = hardware.fabric(run.config.precision)
    fabric.launch()  # before the folder is held: the processes that this starts are not to find it taken
    with ExitStack() as held:
        on_first(fabric, lambda: held.enter_context(_held(folder)))
        configs = _fold_configs(run, folds, hardware, callbacks)
        leave_to_first(fabric)
        scored = read_out_of_sample(run, configs, fabric=fabric, hardware=hardware, callbacks=callbacks)
        found = find_in(scored, top=top, min_probability=min_probability, callbacks=callbacks)
        if lost := np.setdiff1d(run.searched, found.rows).tolist():
            names = listed([run.table.files[row] for row in lost])
            _log.info(f"{counted(len(lost), 'image')} left out that can no longer be read: {names}")
        (folder / "maps.npy").unlink(missing_ok=True)  # those of other suggestions
        found.write(folder / "suggestions.csv")
        RunFolder(folder).write_json("summary.json", found.to_dict())
        if maps and run.config.model.backbone in WITHOUT_IMAGES:
            _log.info("there are no heat maps: the model sees no images, only vectors")
        elif maps:
            _write_maps(folder / "maps.npy", run, found, fabric.device, hardware, callbacks)
    return found


def _fold_configs(
    run: FinishedRun, folds: int | None, hardware: Hardware, callbacks: Sequence[Callback]
) -> list[Config]:
    """The configurations of the folds, which are trained now; none where the run has out-of-fold scores already."""
    if run.config.solves:
        if folds is not None:
            _log.info("the run has out-of-fold scores already: --folds does nothing")
        return []
    parts = folds or max(2, min(FOLDS, len(run.task.train)))
    return train_folds(run, parts, hardware=hardware, callbacks=callbacks)


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    with writing(folder):
        folder.mkdir(exist_ok=True)
        with locked(folder / ".lock"):
            yield


def find_in(
    scored: OutOfSample,
    *,
    top: int | None = None,
    min_probability: float | None = None,
    callbacks: Sequence[Callback] = (),
) -> Finding:
    """Find labels by scores at hand, without writing anything."""
    table, rows, observed = scored.run.table, scored.rows, scored.observed
    if observed.size > FEW_CELLS:
        _log.info(f"looking through {len(rows):,} images for the likeliest of {len(table.classes):,} classes")
    has_sample = len(scored.sample) > 0
    found = find_by_blocks(
        observed,
        scored.score,
        top=max(MOST, top or 0),  # so that fewer are the first of the same
        full=scored.sample if has_sample else None,
        full_scores=scored.sample_scores if has_sample else None,
        asked=None if table.asked is None else table.asked.take(rows),
        process=scored.run.config.data.process,
        on_progress=progress_of(callbacks, "looking through images"),
    )
    suggestions = _unanswered(scored, found.suggestions)
    return Finding(
        suggestions=choose(suggestions, found.total, top, min_probability),
        classes=summarise(observed, found.suggestions, found.missing, table.classes),
        missing=found.total,
        rows=rows,
        files=[table.files[row] for row in rows.tolist()],
        folds=scored.folds,
        basis=found.basis,
        correction=found.correction,
    )


def _unanswered(scored: OutOfSample, found: Suggestions) -> Suggestions:
    """Suggestions without those about labels that a person has answered: these are not contradicted."""
    table, audit, rows = scored.run.table, scored.run.audit, scored.rows[found.row]
    if table.asked is None and audit is None:
        return found
    open_ = np.ones(len(found), bool) if table.asked is None else table.asked[rows, found.label] != POSITIVE
    return found[open_ if audit is None else open_ & ~np.isin(rows, audit.rows)]


def _write_maps(
    path: Path,
    run: FinishedRun,
    found: Finding,
    device: "torch.device",
    hardware: Hardware,
    callbacks: Sequence[Callback],
) -> None:
    from onepair.inference.heat_maps import suggestion_maps

    suggestions = found.suggestions
    rows = found.rows[suggestions.row]
    _log.info(
        f"looking for {counted(len(suggestions), 'label')} in {counted(len(np.unique(rows)), 'image')}, to show where"
    )
    classifier = copy.deepcopy(run.classifier).to(device)
    on_progress = progress_of(callbacks, "looking where labels are")
    maps = suggestion_maps(
        classifier,
        run.table,
        rows,
        suggestions.label,
        workers=hardware.workers,
        cache=hardware.cache,
        on_progress=on_progress,
    )
    content = io.BytesIO()
    np.save(content, maps)
    write_atomically(path, content.getvalue())
