"""Scores of training rows by models that were not fitted to them."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from onepair.labels import Labels
from onepair.runs.finished import FinishedRun
from onepair.runs.folder import RunError, RunFolder
from onepair.runs.task import Task
from onepair.training.machine import Machine, Narrator
from onepair.training.run import train


@dataclass(frozen=True, eq=False)
class OutOfSample:
    """What the models of K folds say of rows that they were not fitted to."""

    task: Task  # of the whole run
    scores: NDArray[np.float32]  # (len(task.train), L), each row by the model that it was held out of
    validation_scores: NDArray[np.float32]  # (K, len(task.validation), L)
    validation_labels: Labels  # (len(task.validation), L), completed by an audit, where there is one


def score_out_of_sample(run: FinishedRun, folds: int, *, machine: Machine, watch: Narrator) -> OutOfSample:
    """Train a model per fold as the run was trained, but for the rows that it is then asked about.

    A fold is a run of its own with the setting data.fold, in finding/folds of the run's folder; one that was done
    before is not done again, and one that was interrupted goes on. All start from the weights that the run started
    from, since those that it ended in have seen every row.
    """
    config, task = run.config, run.task
    if config.data.fold is not None:
        raise RunError(
            f"{run.path}: is a fold, which has no part of its own to be held out; name the run it belongs to"
        )
    configs = [replace(config, data=replace(config.data, fold=f"{part}/{folds}")) for part in range(1, folds + 1)]
    scores = np.full(task.observed.shape, np.nan, np.float32)
    validation = []
    for part, own in enumerate(configs, start=1):
        fold = RunFolder(run.path / "finding" / "folds" / f"{part}-of-{folds}")
        if not fold.finished:
            watch.say(f"fold {part} of {folds}")
            train(own, fold, machine=machine, watch=watch)
        _drop_weights(fold.path)
        done = FinishedRun(fold.path, shared=machine.shared)
        scores[np.searchsorted(task.train, done.rows("test"))] = done.scores("test")
        validation.append(done.scores("validation"))
    return OutOfSample(task, scores, np.stack(validation), run.labels("validation"))


def _drop_weights(fold: Path) -> None:
    """Of a finished fold only the scores are needed; its weights take as much room as the run's own."""
    for file in fold.glob("*.safetensors"):
        file.unlink()
