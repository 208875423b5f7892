"""A classifier that is solved for, on the fixed features of all training images."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from onepair.data.vectors import TFIDF
from onepair.inference.inputs import FeatureSource
from onepair.labels import Indices
from onepair.linear.fit import Judges, LinearFit, Trial, fit_linear
from onepair.methods import METHODS
from onepair.runs.config import Config
from onepair.runs.learning import method_of
from onepair.runs.stages import AUTO
from onepair.runs.task import Task

Matrix = NDArray[np.float32]


def features_of(source: FeatureSource, rows: Indices) -> Matrix:
    """The features (n, D) of rows of the table."""
    if isinstance(source.features, torch.Tensor):
        taken = source.features[torch.from_numpy(rows).to(source.features.device)].float().cpu().numpy()
    else:
        taken = source.features.take(rows).astype(np.float32)
    return np.ascontiguousarray(taken)


def solve_task(
    config: Config,
    task: Task,
    source: FeatureSource,
    *,
    on_trial: Callable[[Trial], None] = lambda trial: None,
) -> LinearFit:
    """Fit the classifier of a run to the features of its training images.

    The penalty is judged by validation images where the dataset names some, else out of fold.
    """
    judges = None
    if not task.out_of_fold:
        places = task.judged("validation")
        judges = Judges(features_of(source, task.validation[places]), task.validation_labels[places])
    asked, penalty = task.table.asked, config.linear.penalty
    return fit_linear(
        features_of(source, task.train),
        task.observed,
        make=lambda: method_of(config),
        rounds=METHODS[config.method.name].rounds,
        C="auto" if penalty == AUTO else 1 / float(penalty),
        judges=judges,
        one_unit=config.model.backbone == TFIDF,
        process=config.data.process,
        asked=None if asked is None else asked.take(task.train),
        seed=config.data.seed,
        on_trial=on_trial,
    )


class TrialRecords:
    """A record of every strength that was tried, as those of epochs: for metrics.jsonl."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        self.began = time.perf_counter()

    def add(self, trial: Trial) -> None:
        now = time.perf_counter()
        record = {
            "stage": "linear",
            "trial": len(self.records) + 1,
            "penalty": float(f"{1 / trial.C:.4g}"),
            "validation_map": trial.estimated_map,
            "seconds": round(now - self.began, 3),
        }
        self.began = now
        self.records.append(record)
