"""Scores of training rows by models that were not fitted to them."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray

from onepair.errors import RunError
from onepair.inference.engine_selector import EngineSelector, TorchEngine, score_images
from onepair.inference.model_files import WEIGHTS
from onepair.label_matrix import LabelMatrix, too_many
from onepair.labels import Indices, Labels
from onepair.metrics import ScoreRows
from onepair.models import Classifier
from onepair.runs.config import WITHOUT_IMAGES, Config, parse_fold
from onepair.runs.finished import FinishedRun
from onepair.runs.folder import RunFolder
from onepair.runs.task import Split, sample_places, task_of
from onepair.training.callbacks import Callback
from onepair.training.checkpoint import StopRequests
from onepair.training.hardware import Hardware, first_logger, is_first
from onepair.training.run import train
from onepair.training.sources import FrozenFeatures

_log = first_logger(__name__)

_ScorersOf = Callable[[Sequence[Classifier]], tuple[list[ScoreRows], Indices]]


@dataclass(frozen=True, eq=False)
class OutOfSample:
    """What models say of rows that they were not fitted to."""

    run: FinishedRun
    rows: Indices  # (N,) of the table, ascending: the images that labels are looked for in
    scorers: Sequence[ScoreRows]  # K models, by rows of the table
    scorer: Indices  # (N,), which of them was not fitted to the row
    bias: NDArray[np.float32]  # (K, L), how much higher than the others each of them scores
    sample: Labels  # (M, L), of validation images that have all of their labels
    sample_scores: NDArray[np.float32]  # (J, M, L), by every model that was not fitted to these
    folds: int

    @cached_property
    def observed(self) -> LabelMatrix:
        """What is known of the rows, (N, L)."""
        return self.run.known.take(self.rows)

    def score(self, places: Indices) -> NDArray[np.float32]:
        """The scores (n, L) of some of the rows, counted from 0."""
        chosen = self.scorer[places]
        scores = np.empty((len(places), self.bias.shape[1]), np.float32)
        for number in np.unique(chosen).tolist():
            own = np.flatnonzero(chosen == number)
            scores[own] = self.scorers[number](self.rows[places[own]]) - self.bias[number]
        return scores

    @property
    def scores(self) -> NDArray[np.float32]:
        """Those of all rows, (N, L)."""
        return self.score(np.arange(len(self.rows)))


def train_folds(run: FinishedRun, folds: int, *, hardware: Hardware, callbacks: Sequence[Callback]) -> list[Config]:
    """Train a model per fold as the run was trained, but for the rows that it is then asked about.

    A fold is a run of its own with the setting data.fold, in finding/folds of the run's folder; one that was done
    before is not done again, and one that was interrupted goes on. All start from the weights that the run started
    from, since those that it ended in have seen every row.

    Returns:
        The configurations of the folds.
    """
    config = run.config
    if config.data.fold is not None:
        raise RunError(
            f"{run.path}: is a fold, which has no part of its own to be held out; name the run it belongs to"
        )
    # What cannot be is refused before any fold is trained, and a number of folds before there are so many of them.
    task_of(replace(config, data=replace(config.data, fold=f"{folds}/{folds}")), hardware.shared)
    configs = [replace(config, data=replace(config.data, fold=f"{part}/{folds}")) for part in range(1, folds + 1)]
    for each in configs:
        task_of(each, hardware.shared)
    for part, each in enumerate(configs, start=1):
        fold = _fold(run, each)
        if not fold.finished:
            _log.info(f"fold {part} of {folds}")
            train(each, fold, hardware=hardware, callbacks=callbacks)
        if is_first():
            _drop_weights(fold.path, kept=() if keeps_scores(run) else (WEIGHTS,))
    return configs


def keeps_scores(run: FinishedRun) -> bool:
    """Whether scores of all rows are kept in files; of too many labels the models are kept instead."""
    return not too_many(max(len(run.searched), len(run.task.validation)), len(run.table.classes))


def read_out_of_sample(
    run: FinishedRun, configs: Sequence[Config], *, fabric: Fabric, hardware: Hardware, callbacks: Sequence[Callback]
) -> OutOfSample:
    """What models said, or say when they are asked, of the rows that they were not fitted to.

    A training image is scored by the model that it was held out of. No model was fitted to validation images: those
    with holes are searched too, as training images are. An image that was there for the run and not for the models is
    left out, and so is one that was there for the models alone.

    Args:
        run: a finished run.
        configs: those of its folds, which are finished; none where the run was solved for.
        fabric, hardware, callbacks: for scores that are computed.
    """
    solved, classes = run.config.solves, len(run.table.classes)
    scorers_of = partial(_scorers, run, fabric, hardware, callbacks)
    found = _solved_models(run, scorers_of) if solved else _fold_models(run, configs, hardware, scorers_of)
    bias = np.zeros((len(found.scorers), classes), np.float32)
    if not solved and len(found.seen):
        rows = found.seen[sample_places(len(found.seen), classes)]
        bias = relative_bias(np.stack([score(rows).mean(0) for score in found.scorers]))
    complete = np.intersect1d(run.in_full, found.seen)
    complete = complete[sample_places(len(complete), classes)]
    sample_scores = np.zeros((1, 0, classes), np.float32)
    if len(complete):
        sample_scores = np.stack([found.scorers[number](complete) - bias[number] for number in found.judges])
    there = np.flatnonzero((found.scorer >= 0) & ~np.isin(run.searched, found.gone))
    sample = run.known[complete]
    rows, scorer = run.searched[there], found.scorer[there]
    return OutOfSample(run, rows, found.scorers, scorer, bias, sample, sample_scores, found.folds)


class _Models(NamedTuple):
    scorers: list[ScoreRows]  # K of them
    scorer: Indices  # (N,), of every searched row; -1 for one that was not there for the models
    judges: Sequence[int]  # scorers that were fitted to no validation row
    seen: Indices  # the validation rows that all of them can score
    gone: Indices  # rows whose images have gone since
    folds: int


def _scorers(
    run: FinishedRun, fabric: Fabric, hardware: Hardware, callbacks: Sequence[Callback], models: Sequence[Classifier]
) -> tuple[list[ScoreRows], Indices]:
    """What computes scores by each model, and the rows whose images have gone.

    From features where these are fixed, else from what there is.
    """
    config = run.config
    if config.model.mode != "linear" or config.model.backbone in WITHOUT_IMAGES:
        return [_of_inputs(run, model, hardware) for model in models], np.zeros(0, np.intp)
    with StopRequests() as requests:
        fixed = FrozenFeatures(fabric, config, hardware, callbacks, requests, test=True)
        features = fixed.features(run.classifier.backbone, run.task).by_row
    gone = np.flatnonzero(features[:, 0].isnan().cpu().numpy())
    return [_of_features(model, features) for model in models], gone


def _of_inputs(run: FinishedRun, model: Classifier, hardware: Hardware) -> ScoreRows:
    engines = EngineSelector(model, precision=run.description.precision)
    return lambda rows: score_images(
        model, run.table, rows, engines=engines, workers=hardware.workers, executor=hardware.executor
    )


def _of_features(model: Classifier, features: torch.Tensor) -> ScoreRows:
    head = TorchEngine(model.head, None)
    return lambda rows: head(features[torch.from_numpy(rows).to(features.device)].cpu().numpy())


def _kept(run: FinishedRun, splits: Sequence[Split]) -> ScoreRows:
    """The scores that a run has kept, of rows of some splits."""
    splits = [split for split in splits if len(run.task.rows(split))]
    if not splits:  # a fold of one image that has gone
        return lambda rows: np.zeros((0, len(run.table.classes)), np.float32)
    rows = np.concatenate([run.task.rows(split) for split in splits])
    scores = np.concatenate([run.scores(split) for split in splits])
    order = np.argsort(rows)
    return lambda wanted: scores[order[np.searchsorted(rows, wanted, sorter=order)]]


def _solved_models(run: FinishedRun, scorers_of: _ScorersOf) -> _Models:
    """Training rows by models of other folds; validation rows, if the dataset names some, by the model of all."""
    task, models, gone = run.task, run.folds(), np.zeros(0, np.intp)
    of_train: Indices = np.zeros(len(task.train), np.intp)
    scorers = []
    if keeps_scores(run):
        scorers = [_kept(run, ["train"])] + ([] if task.out_of_fold else [_kept(run, ["validation"])])
    elif models is None:
        raise RunError(f"{run.path}: has no out-of-fold models; train it anew with --restart")
    else:
        of_folds = [models.classifier(run.classifier, number) for number in range(len(models))]
        scorers, gone = scorers_of([*of_folds, run.classifier])
        of_train = models.fold
    scorer = np.full(len(run.searched), len(scorers) - 1)
    scorer[np.searchsorted(run.searched, task.train)] = of_train
    seen = task.validation[:0] if task.out_of_fold else np.setdiff1d(task.validation, gone)
    return _Models(scorers, scorer, [len(scorers) - 1], seen, gone, 0 if models is None else len(models))


def _fold_models(run: FinishedRun, configs: Sequence[Config], hardware: Hardware, scorers_of: _ScorersOf) -> _Models:
    """Training rows by the fold that they were held out of; validation rows with holes by each fold in turn."""
    searched, validation = run.searched, run.task.validation
    folds = [FinishedRun(_fold(run, each).path, shared=hardware.shared) for each in configs]
    scorer = np.full(len(searched), -1)
    holes = validation[np.isin(validation, searched)]
    for number, fold in enumerate(folds):
        scorer[np.isin(searched, fold.task.test)] = number
        own = holes[number :: len(folds)]
        scorer[np.searchsorted(searched, own[np.isin(own, fold.task.validation)])] = number
    if keeps_scores(run):
        scorers, gone = [_kept(fold, ["test", "validation"]) for fold in folds], np.zeros(0, np.intp)
    else:
        scorers, gone = scorers_of([fold.classifier for fold in folds])
    seen = np.setdiff1d(validation, gone)
    for fold in folds:
        seen = np.intersect1d(seen, fold.task.validation)
    return _Models(scorers, scorer, range(len(folds)), seen, gone, len(folds))


def relative_bias(means: NDArray[np.float32]) -> NDArray[np.float32]:
    """How much higher than the others each model scores images that no model was fitted to, by its means (K, L).

    A model that an image's label was held out of has seen one such label less, and scores all images lower by it: as
    if the label spoke against itself, where there are few.
    """
    higher: NDArray[np.float32] = means - means.mean(0)
    return higher


def _fold(run: FinishedRun, config: Config) -> RunFolder:
    part, parts = parse_fold(config.data.fold or "")
    return RunFolder(run.path / "finding" / "folds" / f"{part}-of-{parts}")


def _drop_weights(fold: Path, *, kept: Collection[str]) -> None:
    """Of a finished fold only the scores are needed, or where there are none its model; weights take much room."""
    for file in fold.glob("*.safetensors"):
        if file.name not in kept:
            file.unlink()
