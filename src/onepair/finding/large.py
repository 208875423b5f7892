"""Finding where there are too many labels for a score of each: by blocks of images, by the models of the folds."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray

from onepair.finding.by_blocks import BlockFinding, Score, find_by_blocks
from onepair.finding.folds import apart, models_of
from onepair.finding.found import MOST, Finding, choose
from onepair.finding.summary import ClassSummary
from onepair.inference.choice import Engines
from onepair.inference.scoring import score_images
from onepair.inference.torch_engine import TorchEngine
from onepair.label_matrix import LabelMatrix
from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, Indices
from onepair.models import Classifier
from onepair.runs.config import Config
from onepair.runs.finished import FinishedRun
from onepair.runs.fold_models import FoldModels
from onepair.runs.task import judged_places
from onepair.runs.without_images import WITHOUT_IMAGES
from onepair.training.fixed import Fixed
from onepair.training.machine import Machine, Narrator
from onepair.training.stopping import Requests
from onepair.words import counted

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
    machine: Machine,
    watch: Narrator,
    top: int | None,
    min_probability: float | None,
) -> Finding:
    """The likeliest missing labels of each class, by finished folds that have kept their models.

    The other arguments are those of `find_labels`. What differs from finding in few labels is told by `find_by_blocks`.
    """
    table, solved = run.table, run.folds() if run.config.solves else None
    if solved is None:
        folds, model = models_of(run, configs, shared=machine.shared)
        models, gone = _scorers(run, [fold.classifier for fold in folds], fabric, machine, watch)
        seen = _seen_by_all(run, folds, gone)
        higher = _higher(models, seen, len(table.classes))
    else:
        models, model, gone, seen = _solved(run, solved, fabric, machine, watch)
        higher = np.zeros((len(models), len(table.classes)), np.float32)
    there = np.flatnonzero((model >= 0) & ~np.isin(run.searched, gone))
    rows = run.searched[there]
    complete = np.intersect1d(run.in_full, seen)
    complete = complete[judged_places(len(complete), len(table.classes))]
    observed, most = run.known.take(rows), max(MOST, top or 0)  # so that fewer are the first of the same
    watch.say(f"looking through {len(rows):,} images for the likeliest of {len(table.classes):,} classes")
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
        on_progress=watch.extraction("looking through images") or (lambda done, rows: None),
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
    run: FinishedRun, solved: FoldModels, fabric: Fabric, machine: Machine, watch: Narrator
) -> tuple[list[Score], Indices, Indices, Indices]:
    """The scorers of a run that was solved for, which of them is to score each searched row, rows that have gone, and
    validation rows that none was fitted to.
    """
    models, gone = _scorers(
        run, [solved.classifier(run.classifier, number) for number in range(len(solved))], fabric, machine, watch
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
    run: FinishedRun, folds: Sequence[Classifier], fabric: Fabric, machine: Machine, watch: Narrator
) -> tuple[list[Score], Indices]:
    """What scores rows of the table, of each fold: from features where these are fixed, else from what there is.

    And the rows without features, whose images have gone since the folds were trained.
    """
    if run.config.model.mode == "linear" and run.config.model.backbone not in WITHOUT_IMAGES:
        with Requests() as requests:
            fixed = Fixed(fabric, run.config, machine, watch, requests, test=True)
            features = fixed.features(run.classifier.backbone, run.task).by_row
        gone = np.flatnonzero(features[:, 0].isnan().cpu().numpy())
        return [_of_features(fold, features) for fold in folds], gone
    return [_of_inputs(run, fold, machine) for fold in folds], np.zeros(0, np.intp)


def _of_features(fold: Classifier, features: torch.Tensor) -> Score:
    head = TorchEngine(fold.head, None)
    return lambda rows: head(features[torch.from_numpy(rows).to(features.device)].cpu().numpy())


def _of_inputs(run: FinishedRun, fold: Classifier, machine: Machine) -> Score:
    engines = Engines(fold, precision=run.description.precision)
    return lambda rows: score_images(fold, run.table, rows, engines=engines, workers=machine.workers, over=machine.over)


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
