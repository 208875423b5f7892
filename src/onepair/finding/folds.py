"""Scores of training rows by models that were not fitted to them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from onepair.errors import RunError
from onepair.inference.model_files import WEIGHTS
from onepair.label_matrix import too_many
from onepair.labels import Indices, Labels
from onepair.runs.config import Config, parse_fold
from onepair.runs.finished import FinishedRun
from onepair.runs.folder import RunFolder
from onepair.runs.task import Shared, Split, task_of
from onepair.training.callbacks import Callback
from onepair.training.distributed import first_logger, is_first
from onepair.training.hardware import Hardware
from onepair.training.run import train

_log = first_logger(__name__)

MOST_HELD = 2**26  # labels that are looked through all at once, which takes some 80 bytes for each


@dataclass(frozen=True, eq=False)
class OutOfSample:
    """What the models of K folds say of rows that they were not fitted to."""

    run: FinishedRun
    rows: Indices  # (N,) of the table, ascending: the images that labels are looked for in
    observed: Labels  # (N, L), what is known of them
    scores: NDArray[np.float32]  # (N, L), each row by one model that was not fitted to it
    sample: Labels  # (M, L), of validation images that have all of their labels
    sample_scores: NDArray[np.float32]  # (K, M, L)
    folds: int


def score_out_of_sample(
    run: FinishedRun, folds: int, *, hardware: Hardware, callbacks: Sequence[Callback] = ()
) -> OutOfSample:
    """Train a model per fold as the run was trained, but for the rows that it is then asked about.

    A fold is a run of its own with the setting data.fold, in finding/folds of the run's folder; one that was done
    before is not done again, and one that was interrupted goes on. All start from the weights that the run started
    from, since those that it ended in have seen every row.
    """
    configs = train_folds(run, folds, hardware=hardware, callbacks=callbacks)
    return read_folds(run, configs, shared=hardware.shared)


def train_folds(
    run: FinishedRun, folds: int, *, hardware: Hardware, callbacks: Sequence[Callback] = ()
) -> list[Config]:
    """Do the runs of all folds that are not done yet: their configurations."""
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
            _drop_weights(fold.path, kept=(WEIGHTS,) if is_large(run) else ())
    return configs


def read_solved(run: FinishedRun) -> OutOfSample:
    """What a run that was solved for says of rows that it was not fitted to: nothing is trained.

    Training images have their out-of-fold scores, and validation images, if the dataset names some, those of the model
    of all training images.
    """
    task, rows, classes = run.task, run.searched, len(run.table.classes)
    scores = np.empty((len(rows), classes), np.float32)
    scores[np.searchsorted(rows, task.train)] = run.scores("train")
    sample, sample_scores = np.zeros((0, classes), np.int8), np.zeros((1, 0, classes), np.float32)
    if not task.out_of_fold:
        of_validation = run.scores("validation")
        holes = np.isin(task.validation, rows)
        scores[np.searchsorted(rows, task.validation[holes])] = of_validation[holes]
        complete = np.isin(task.validation, run.in_full)
        sample, sample_scores = run.known[task.validation[complete]], of_validation[None, complete]
    models = run.folds()
    return OutOfSample(run, rows, run.known[rows], scores, sample, sample_scores, 0 if models is None else len(models))


def is_large(run: FinishedRun) -> bool:
    """Whether there are too many labels to look for, or to judge scores by, for a score of each to be kept."""
    rows, classes = max(len(run.searched), len(run.task.validation)), len(run.table.classes)
    return too_many(rows, classes) or rows * classes > MOST_HELD


def models_of(run: FinishedRun, configs: Sequence[Config], *, shared: Shared) -> tuple[list[FinishedRun], Indices]:
    """The finished folds, and which of them, counted from 0, is to score each searched image (N,).

    As for `read_folds`; -1 for an image that was there for the run and not for the models.
    """
    task, rows = run.task, run.searched
    model = np.full(len(rows), -1)
    folds = [FinishedRun(_fold(run, each).path, shared=shared) for each in configs]
    for number, fold in enumerate(folds):
        model[np.isin(rows, fold.task.test)] = number
    holes = np.flatnonzero(np.isin(task.validation, rows))
    for number, fold in enumerate(folds):
        own = task.validation[holes[number :: len(folds)]]
        model[np.searchsorted(rows, own[np.isin(own, fold.task.validation)])] = number
    return folds, model


def read_folds(run: FinishedRun, configs: Sequence[Config], *, shared: Shared) -> OutOfSample:
    """What the models of finished folds said of the rows that they were asked about.

    A training image is scored by the model that it was held out of. No model was fitted to validation images: those
    with holes are searched too, each by one of the models, as training images are. An image that was there for the run
    and not for the models is left out, and so is one that was there for the models alone.
    """
    task, rows, classes = run.task, run.searched, len(run.table.classes)
    folds, model = models_of(run, configs, shared=shared)
    scores = np.full((len(rows), classes), np.nan, np.float32)
    validation = np.full((len(folds), len(task.validation), classes), np.nan, np.float32)
    for number, fold in enumerate(folds):
        _take_scores(scores, rows, fold, "test")
        _take_scores(validation[number], task.validation, fold, "validation")
    holes = np.flatnonzero(np.isin(task.validation, rows))
    places = np.searchsorted(rows, task.validation[holes])
    scores[places] = validation[model[places], holes]
    seen = np.isfinite(validation).all((0, 2))
    if seen.any():
        higher = apart(validation[:, seen].mean(1))
        validation -= higher[:, None]
        scores -= higher[model]
    read = np.isfinite(scores).all(1) & (model >= 0)
    complete = np.isin(task.validation, run.in_full) & seen
    sample = run.known[task.validation[complete]]
    known = run.known[rows[read]]
    return OutOfSample(run, rows[read], known, scores[read], sample, validation[:, complete], len(folds))


def apart(means: NDArray[np.float32]) -> NDArray[np.float32]:
    """How much higher than the others each model scores images that no model was fitted to, by its means (K, L).

    A model that an image's label was held out of has seen one such label less, and scores all images lower by it: as
    if the label spoke against itself, where there are few.
    """
    higher: NDArray[np.float32] = means - means.mean(0)
    return higher


def _take_scores(scores: NDArray[np.float32], rows: Indices, fold: FinishedRun, split: Split) -> None:
    """Put what a fold said of its own rows where the same rows are, of those that there are."""
    own = fold.task.rows(split)
    if len(own):  # none is left of a fold of one image that has gone
        shared = np.isin(own, rows)
        scores[np.searchsorted(rows, own[shared])] = fold.scores(split)[shared]


def _fold(run: FinishedRun, config: Config) -> RunFolder:
    part, parts = parse_fold(config.data.fold or "")
    return RunFolder(run.path / "finding" / "folds" / f"{part}-of-{parts}")


def _drop_weights(fold: Path, *, kept: Collection[str]) -> None:
    """Of a finished fold only the scores are needed, or where there are none its model; weights take much room."""
    for file in fold.glob("*.safetensors"):
        if file.name not in kept:
            file.unlink()
