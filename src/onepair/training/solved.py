"""The run on fixed features: a classifier that is solved for, with out-of-fold scores of its training images."""

import time

import numpy as np
import torch
from numpy.typing import NDArray

from onepair.data.label_table import Problem
from onepair.data.vectors.align import TFIDF
from onepair.labels import Indices
from onepair.linear.fit import LinearFit, Trial, ValidationRows, fit_kernel, fit_linear
from onepair.methods import METHODS
from onepair.models import IdentityBackbone
from onepair.models.backbone import KernelHead
from onepair.probability.selection_score import estimated_map_by_blocks
from onepair.runs.config import AUTO
from onepair.runs.finished import FoldModels
from onepair.runs.folder import Results
from onepair.runs.task import Split, make_method
from onepair.score_blocks import one_block
from onepair.training.callbacks import EpochRecord
from onepair.training.context import RunContext, Scores, eval_scores, finish, prepare
from onepair.training.sources import FeatureSource

FEATURES_TO_SCORE = 4096
MUCH_WORK = 2e12  # products of a pass over all features and classes, which takes a minute


def run_solved(run: RunContext) -> Results:
    """Solve for the classifier; score the training images out of fold and the others with the model of all."""
    run = prepare(run, unreadable_features(run))
    found, source = solve_head(run)
    task = run.task
    place = np.full(len(task.table), -1)
    place[task.train] = np.arange(len(task.train))

    def out_of_fold(rows: Indices) -> Scores:
        return found.out_of_fold(_features_of(source, rows), place[rows])

    def by_all(rows: Indices) -> Scores:
        scores = np.empty((len(rows), len(task.table.classes)), np.float32)
        for start in range(0, len(rows), FEATURES_TO_SCORE):
            some = rows[start : start + FEATURES_TO_SCORE]
            scores[start : start + len(some)] = found.scores(_features_of(source, some))
        return scores

    scores: dict[Split, Scores] = {"train": eval_scores(run, "train", out_of_fold)}
    scores["validation"] = scores["train"] if task.out_of_fold else eval_scores(run, "validation", by_all)
    if len(task.test):
        scores["test"] = eval_scores(run, "test", by_all)
    if run.fabric.is_global_zero:
        FoldModels(found.fold_coef, found.fold_intercept, found.fold).write(run.folder.path)
    labels = task.validation_labels.take(task.eval_rows("validation"))
    validation_map = estimated_map_by_blocks(one_block(scores["validation"]), labels)
    return finish(run, scores, validation_map=validation_map, penalty=_penalty(found.C))


def unreadable_features(run: RunContext) -> list[Problem]:
    """The images that have no features, because they cannot be read."""
    backbone = run.classifier.backbone
    if run.task.table.pixels is not None or isinstance(backbone, IdentityBackbone):
        return []
    return run.frozen.features(backbone, run.task).unreadable


def feature_source(run: RunContext) -> FeatureSource:
    """The fixed features of all images, or the vectors that stand in their place."""
    backbone, table, device = run.classifier.backbone, run.task.table, run.fabric.device
    if not isinstance(backbone, IdentityBackbone):
        return FeatureSource(run.frozen.features(backbone, run.task).by_row)
    if table.vectors is not None:
        return FeatureSource(table.vectors, device)
    return FeatureSource(torch.from_numpy(backbone.vectors_of(table, np.arange(len(table)))).to(device))


def solve_head(run: RunContext) -> tuple[LinearFit, FeatureSource]:
    """Fit the classifier to the features of all training images, and put it in its place.

    The penalty is chosen by validation images where the dataset names some, else out of fold; metrics.jsonl gets a line
    for each that is tried.
    """
    config, task, head = run.config, run.task, run.classifier.head
    method, asked, penalty = METHODS[config.method.name], task.table.asked, config.linear.penalty
    source = feature_source(run)
    if len(task.train) * head.out_features * head.in_features > MUCH_WORK and config.method.name != "ridge":
        images, classes = f"{len(task.train):,} images", f"{head.out_features:,} classes"
        run.log(f"{images} of {classes} take long; --method ridge takes a minute")
    tried: list[EpochRecord] = []
    began = time.perf_counter()

    def on_trial(trial: Trial) -> None:
        nonlocal began
        run.requests.raise_if_asked(kept="nothing was saved yet")
        now = time.perf_counter()
        tried.append(
            {
                "stage": "linear",
                "trial": len(tried) + 1,
                "penalty": _penalty(trial.C),
                "validation_map": trial.estimated_map,
                "seconds": round(now - began, 3),
            }
        )
        began = now
        if run.fabric.is_global_zero:
            run.folder.start_metrics(tried)

    validation = None
    if not task.out_of_fold:
        places = task.eval_rows("validation")
        features = _features_of(source, task.validation[places])
        validation = ValidationRows(features, task.validation_labels.take(places))
    found = (fit_kernel if config.linear.head == "kernel" else fit_linear)(
        _features_of(source, task.train),
        task.observed,
        make=lambda: make_method(config),
        rounds=method.rounds,
        C="auto" if penalty == AUTO else 1 / float(penalty),
        validation=validation,
        one_unit=config.model.backbone == TFIDF,
        process=config.data.process,
        asked=None if asked is None else asked.take(task.train),
        seed=config.data.seed,
        groups=task.table.groups(task.train),
        on_trial=on_trial,
    )
    if found.kernel is not None:
        head = run.classifier.head = KernelHead(found.kernel, head.out_features)
    with torch.no_grad():
        head.weight.copy_(torch.from_numpy(found.coef))
        head.bias.copy_(torch.from_numpy(found.intercept))
    if not found.converged and method.convex:
        run.log(
            f"the solver stopped after {found.iterations} steps where scores would still change by about "
            f"{found.residual:.1g}; a stronger penalty (linear.penalty) is solved sooner"
        )
    return found, source


def _features_of(source: FeatureSource, rows: Indices) -> NDArray[np.float32]:
    """The features (n, D) of rows of the table."""
    if isinstance(source.features, torch.Tensor):
        taken = source.features[torch.from_numpy(rows).to(source.features.device)].float().cpu().numpy()
    else:
        taken = source.features.take(rows).astype(np.float32, copy=False)
    return np.ascontiguousarray(taken)


def _penalty(C: float) -> float:  # noqa: N803 (the name that users of scikit-learn know)
    return float(f"{1 / C:.4g}")
