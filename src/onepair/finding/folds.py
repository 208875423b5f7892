"""Scores of training rows by models that were not fitted to them."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from onepair.labels import Labels
from onepair.methods import METHODS
from onepair.training.folder import RunError, RunFolder
from onepair.training.run import Machine, Narrator, train
from onepair.training.task import Task, prepare_task


@dataclass(frozen=True, eq=False)
class OutOfSample:
    """What the models of all folds say of rows that none of them was fitted to."""

    task: Task  # of the whole run
    scores: NDArray[np.float32]  # (len(task.train), L): each row by the model that it was held out of
    validation: NDArray[np.float32]  # (folds, len(task.validation), L)

    @property
    def validation_labels(self) -> Labels:
        """With unknown cells as such, unlike what an epoch is selected by."""
        return self.task.table.labels[self.task.validation]


def task_of(run: RunFolder) -> Task:
    """What a finished run learned from, if its dataset still says the same."""
    results, config = run.results(), run.config()
    oracle = METHODS[config.method.name].observes == "single positive and all negatives"
    task = prepare_task(config.data, with_all_negatives=oracle).without(set(results["skipped_images"]))
    environment = json.loads((run.path / "environment.json").read_text("utf-8"))
    if environment["labels"] != task.labels_hash():
        raise RunError(f"{run.path}: the labels of {config.data.source} have changed since; train a new run on them")
    return task


def score_out_of_sample(run: RunFolder, folds: int, *, machine: Machine, watch: Narrator) -> OutOfSample:
    """Train a model per fold as the run was trained, without the rows that it is then asked about.

    A fold is a run of its own with the setting data.fold, in finding/folds of the run's folder; one that was done
    before is not done again, and one that was interrupted goes on. All start from the weights that the run started
    from: those that it ended in have seen every row.
    """
    task, config = task_of(run), run.config()
    scores = np.full((len(task.train), len(task.table.classes)), np.nan, np.float32)
    validation = []
    for number in range(1, folds + 1):
        fold = RunFolder(run.path / "finding" / "folds" / f"{number}-of-{folds}")
        watch.say(f"fold {number} of {folds}")
        own = replace(config, data=replace(config.data, fold=f"{number}/{folds}"))
        results = train(own, fold, machine=machine, watch=watch)
        _drop_weights(fold.path)
        held_out = prepare_task(own.data).without(set(results["skipped_images"])).test
        scores[np.searchsorted(task.train, held_out)] = fold.scores("test")
        validation.append(fold.scores("validation"))
    if np.isnan(scores).any():
        raise RunError(f"{run.path / 'finding' / 'folds'}: its folds do not fit the run; delete that folder")
    return OutOfSample(task, scores, np.stack(validation))


def _drop_weights(fold: Path) -> None:
    """Of a finished fold only the scores are needed; its weights take as much room as the run's own."""
    for file in fold.glob("*.safetensors"):
        file.unlink()
