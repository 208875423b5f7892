"""Scores of training rows by models that were not fitted to them."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from onepair.training.folder import RunError, RunFolder
from onepair.training.run import Machine, Narrator, task_of, train
from onepair.training.task import Task


@dataclass(frozen=True, eq=False)
class OutOfSample:
    """What the models of K folds say of rows that they were not fitted to."""

    task: Task  # of the whole run
    scores: NDArray[np.float32]  # (len(task.train), L), each row by the model that it was held out of
    validation_scores: NDArray[np.float32]  # (K, len(task.validation), L)


def score_out_of_sample(run: RunFolder, folds: int, *, machine: Machine, watch: Narrator) -> OutOfSample:
    """Train a model per fold as the run was trained, but for the rows that it is then asked about.

    A fold is a run of its own with the setting data.fold, in finding/folds of the run's folder; one that was done
    before is not done again, and one that was interrupted goes on. All start from the weights that the run started
    from, since those that it ended in have seen every row.
    """
    skipped, config = set(run.results()["skipped_images"]), run.config()
    if config.data.fold is not None:
        raise RunError(
            f"{run.path}: is a fold, which has no part of its own to be held out; name the run it belongs to"
        )
    task = task_of(config, machine).without(skipped)
    environment = json.loads((run.path / "environment.json").read_text("utf-8"))
    if environment["labels"] != task.labels_hash():
        raise RunError(f"{run.path}: the labels of {config.data.source} have changed since; train a new run on them")
    configs = [replace(config, data=replace(config.data, fold=f"{part}/{folds}")) for part in range(1, folds + 1)]
    held_out = [task_of(each, machine).without(skipped).test for each in configs]
    scores = np.full(task.observed.shape, np.nan, np.float32)
    validation = []
    for part, (own, rows) in enumerate(zip(configs, held_out, strict=True), start=1):
        fold = RunFolder(run.path / "finding" / "folds" / f"{part}-of-{folds}")
        if not fold.finished:
            watch.say(f"fold {part} of {folds}")
            train(own, fold, machine=machine, watch=watch)
        _drop_weights(fold.path)
        scores[np.searchsorted(task.train, rows)] = fold.scores("test")
        validation.append(fold.scores("validation"))
    return OutOfSample(task, scores, np.stack(validation))


def _drop_weights(fold: Path) -> None:
    """Of a finished fold only the scores are needed; its weights take as much room as the run's own."""
    for file in fold.glob("*.safetensors"):
        file.unlink()
