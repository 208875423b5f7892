"""Missing labels where scores come in blocks of images."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import ArrayLike, NDArray

from onepair.errors import RunError
from onepair.finding.folds import apart, models_of
from onepair.finding.suggestions import Suggestions
from onepair.finding.summary import MOST, ClassSummary, Finding, choose
from onepair.inference.engine_selector import EngineSelector, TorchEngine, score_images
from onepair.label_matrix import LabelMatrix
from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, Indices, Labels
from onepair.metrics import Floats
from onepair.models import Classifier
from onepair.probability.counting import Estimate, Z
from onepair.probability.infer import Inference, infer
from onepair.probability.observation import Mask, Observation, Process
from onepair.runs.config import Config
from onepair.runs.config_types import WITHOUT_IMAGES
from onepair.runs.finished import FinishedRun, FoldModels
from onepair.runs.task import judged_places
from onepair.score_blocks import HighestUnknown
from onepair.training.callbacks import Callback, progress_of
from onepair.training.checkpoint import Requests
from onepair.training.distributed import first_logger
from onepair.training.frozen_features import Fixed
from onepair.training.hardware import Hardware
from onepair.words import counted

Score = Callable[[Indices], NDArray[np.float32]]  # from rows (n,) to their scores (n, L)

_SAMPLED_CELLS = 2**24  # by which scores are calibrated, and missing labels counted
_BLOCK = 2**22  # cells that are scored at once: memory of up to 32 MB is used again and again, more is made anew

_log = first_logger(__name__)


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

    As `onepair.probability.cell_posterior.judge` and `rank`, with these differences: lines and counts rest on a random
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
        raise RunError(
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
    by_list = observation.ignorable[: len(labels)].all(1) & (labels == UNKNOWN).any(1)
    return set(_patterns(labels[by_list], suggested[by_list]))


def _patterns(labels: Labels, suggested: Mask) -> list[bytes]:
    """Of each row which labels are known that nobody asked for."""
    return [row.tobytes() for row in np.packbits((labels != UNKNOWN) & ~suggested, axis=1)]


def _bound(observation: Observation, labels: Labels, suggested: Mask, lists: Collection[bytes]) -> Observation:
    """How the labels of other rows came to be known, by the process of the sample."""
    by_list = [each in lists for each in _patterns(labels, suggested)]
    free = suggested | np.array(by_list)[:, None] | observation.ignorable.all()
    return Observation(observation.sentence, observation.max_shown, free, suggested, observation.has_empty_rows)


_FEWEST_OF_A_CLASS = 10


@dataclass(frozen=True, eq=False)
class FoldScores:
    """Scores of images, each by the model that was not fitted to it: from places (n,) to (n, L)."""

    rows: Indices  # (N,) of the table
    model: Indices  # (N,) which of the models
    models: Sequence[Score]  # each from rows of the table to scores
    higher: NDArray[np.float32]  # (K, L), than the others each of them scores

    def __call__(self, places: Indices) -> NDArray[np.float32]:
        chosen = self.model[places]
        own = [np.flatnonzero(chosen == number) for number in range(len(self.models))]
        parts = [score(self.rows[places[each]]) for score, each in zip(self.models, own, strict=True) if len(each)]
        scores = np.empty((len(places), parts[0].shape[1]), np.float32)
        scores[np.concatenate(own)] = np.concatenate(parts)
        return scores - self.higher[chosen]


def find_large(
    run: FinishedRun,
    configs: Sequence[Config],
    *,
    fabric: Fabric,
    hardware: Hardware,
    callbacks: Sequence[Callback],
    top: int | None,
    min_probability: float | None,
) -> Finding:
    """The likeliest missing labels of each class, by finished folds that have kept their models.

    The other arguments are those of `find_labels`. What differs from finding in few labels is told by `find_by_blocks`.
    """
    table, solved = run.table, run.folds() if run.config.solves else None
    if solved is None:
        folds, model = models_of(run, configs, shared=hardware.shared)
        models, gone = _scorers(run, [fold.classifier for fold in folds], fabric, hardware, callbacks)
        seen = _seen_by_all(run, folds, gone)
        higher = _higher(models, seen, len(table.classes))
    else:
        models, model, gone, seen = _solved(run, solved, fabric, hardware, callbacks)
        higher = np.zeros((len(models), len(table.classes)), np.float32)
    there = np.flatnonzero((model >= 0) & ~np.isin(run.searched, gone))
    rows = run.searched[there]
    complete = np.intersect1d(run.in_full, seen)
    complete = complete[judged_places(len(complete), len(table.classes))]
    observed, most = run.known.take(rows), max(MOST, top or 0)  # so that fewer are the first of the same
    _log.info(f"looking through {len(rows):,} images for the likeliest of {len(table.classes):,} classes")
    found = find_by_blocks(
        observed,
        FoldScores(rows, model[there], models, higher),
        per_class=max(_FEWEST_OF_A_CLASS, 2 * most // len(table.classes)),
        top=most,
        full=run.known[complete] if len(complete) else None,
        full_scores=FoldScores(complete, np.arange(len(complete)) % len(models), models, higher)(
            np.arange(len(complete))
        )
        if len(complete)
        else None,
        asked=None if table.asked is None else table.asked.take(rows),
        process=run.config.data.process,
        on_progress=progress_of(callbacks, "looking through images"),
    )
    return Finding(
        suggestions=choose(found.suggestions, found.total, top, min_probability),
        classes=_summarise(observed, found, table.classes),
        missing=found.total,
        rows=rows,
        files=[table.files[row] for row in rows.tolist()],
        folds=len(models),
        basis=f"a random sample of {found.sample:,} of {counted(len(rows), 'image')}, if {found.sentence}",
        suspects=False,
    )


def _solved(
    run: FinishedRun, solved: FoldModels, fabric: Fabric, hardware: Hardware, callbacks: Sequence[Callback]
) -> tuple[list[Score], Indices, Indices, Indices]:
    """The scorers of a run that was solved for, which of them is to score each searched row, rows that have gone, and
    validation rows that none was fitted to.
    """
    models, gone = _scorers(
        run, [solved.classifier(run.classifier, number) for number in range(len(solved))], fabric, hardware, callbacks
    )
    model = np.arange(len(run.searched)) % len(models)  # of images that no model was fitted to
    model[np.searchsorted(run.searched, run.task.train)] = solved.fold
    seen = run.task.validation[:0] if run.task.out_of_fold else np.setdiff1d(run.task.validation, gone)
    return models, model, gone, seen


def _seen_by_all(run: FinishedRun, folds: Sequence[FinishedRun], gone: Indices) -> Indices:
    """The validation rows that every fold has."""
    rows: Indices = np.setdiff1d(run.task.validation, gone)
    for fold in folds:
        rows = np.intersect1d(rows, fold.task.validation)
    return rows


def _higher(models: Sequence[Score], seen: Indices, classes: int) -> NDArray[np.float32]:
    """How much higher than the others each model scores, by rows that no model was fitted to or a sample of them."""
    rows = seen[judged_places(len(seen), classes)]
    if len(rows) == 0:
        return np.zeros((len(models), classes), np.float32)
    return apart(np.stack([score(rows).mean(0) for score in models]))


def _scorers(
    run: FinishedRun, folds: Sequence[Classifier], fabric: Fabric, hardware: Hardware, callbacks: Sequence[Callback]
) -> tuple[list[Score], Indices]:
    """What scores rows of the table, of each fold: from features where these are fixed, else from what there is.

    And the rows without features, whose images have gone since the folds were trained.
    """
    if run.config.model.mode == "linear" and run.config.model.backbone not in WITHOUT_IMAGES:
        with Requests() as requests:
            fixed = Fixed(fabric, run.config, hardware, callbacks, requests, test=True)
            features = fixed.features(run.classifier.backbone, run.task).by_row
        gone = np.flatnonzero(features[:, 0].isnan().cpu().numpy())
        return [_of_features(fold, features) for fold in folds], gone
    return [_of_inputs(run, fold, hardware) for fold in folds], np.zeros(0, np.intp)


def _of_features(fold: Classifier, features: torch.Tensor) -> Score:
    head = TorchEngine(fold.head, None)
    return lambda rows: head(features[torch.from_numpy(rows).to(features.device)].cpu().numpy())


def _of_inputs(run: FinishedRun, fold: Classifier, hardware: Hardware) -> Score:
    engines = EngineSelector(fold, precision=run.description.precision)
    return lambda rows: score_images(
        fold, run.table, rows, engines=engines, workers=hardware.workers, executor=hardware.executor
    )


def _summarise(observed: LabelMatrix, found: BlockFinding, classes: Sequence[str]) -> list[ClassSummary]:
    """As `summarise`, where thresholds are those of the suggestions of each class, if these are fewer than miss."""
    label, probability = found.suggestions.label, found.suggestions.probability
    together = np.lexsort((-probability, label))
    first = np.searchsorted(label[together], np.arange(len(classes)))
    counts = np.bincount(label, minlength=len(classes))
    wanted = np.minimum(np.rint(found.missing.value).astype(int), counts)
    last = np.where(wanted > 0, first + wanted - 1, 0)
    limits = np.where(wanted > 0, probability[together][last], 1.0) if len(label) else np.ones(len(classes))
    suggested = np.bincount(label[probability >= limits[label]], minlength=len(classes))
    positive, negative, unknown = (observed.count(value) for value in (POSITIVE, NEGATIVE, UNKNOWN))
    prior = (positive + found.missing.value) / len(observed)
    columns = (each.tolist() for each in (positive, negative, unknown, *found.missing, prior, limits, suggested))
    return [ClassSummary(name, *values) for name, *values in zip(classes, *columns, strict=True)]
