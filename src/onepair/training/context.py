"""What both kinds of run share: what they work with, what they say first, and what becomes of their scores."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from lightning_fabric import Fabric
from numpy.typing import NDArray

from onepair.data.label_table import Problem
from onepair.inference.model_files import save_model
from onepair.label_matrix import too_many
from onepair.labels import POSITIVE, UNKNOWN, Indices
from onepair.models import Classifier, IdentityBackbone
from onepair.probability.evaluation import Evaluation, assumption, evaluate, find_precision_recall
from onepair.probability.infer import infer
from onepair.probability.observation import recognise
from onepair.probability.thresholds import Thresholds, fit_decisions
from onepair.runs.config import Config
from onepair.runs.folder import Results, RunFolder, Worth, write_card
from onepair.runs.task import Skipped, Split, Task, knows_negatives, skipped_cells, skipped_images
from onepair.training.callbacks import Callback
from onepair.training.checkpoint import StopRequests
from onepair.training.hardware import Hardware, cpu_state, first_logger, on_first
from onepair.training.sources import FrozenFeatures
from onepair.words import NUMBERS, counted, itemised, listed

_log = first_logger(__name__)

Scores = NDArray[np.float32]
MANY_CELLS = 2**21  # of validation labels, whose mAP takes a minute to estimate, and evaluate does on request


@dataclass(frozen=True, eq=False)
class RunContext:
    """What a run works with, whichever way it learns."""

    fabric: Fabric
    config: Config
    folder: RunFolder
    hardware: Hardware
    task: Task
    classifier: Classifier
    callbacks: Sequence[Callback]
    requests: StopRequests
    test: bool  # whether test images will be looked at
    skipped: Sequence[str] = ()  # files of the task's images that cannot be read

    @property
    def frozen(self) -> FrozenFeatures:
        """Computes what the parts of the network that do not learn make of images."""
        return FrozenFeatures(self.fabric, self.config, self.hardware, self.callbacks, self.requests, self.test)

    def log(self, message: str) -> None:
        """Say something; of what it works on, a fold has nothing new to tell."""
        (_log.debug if self.task.holds_out else _log.info)(message)


def log_table(run: RunContext) -> None:
    """Say what is remarkable about the label files, and what was wrong with them."""
    _announce(run, run.task.problems)
    remarks = [problem for problem in run.task.problems if problem.remark]
    if remarks:
        run.log(itemised("noted about the labels:", remarks, rest="onepair check has all of them"))
    if cells := skipped_cells(run.task):
        _log_skipped(run, f"{counted(len(cells), 'problem')} in the labels:", cells)


def prepare(run: RunContext, unreadable: Sequence[Problem]) -> RunContext:
    """Leave the images out that cannot be read, write down what the run depends on, and say what there is to learn."""
    _announce(run, unreadable)
    cells, images = skipped_cells(run.task), skipped_images(run.task, unreadable)
    if cells or images:
        on_first(run.fabric, lambda: run.folder.write_skipped([*cells, *images]))
    if images:
        _log_skipped(run, f"{counted(len(images), 'image')} left out:", images)
        files = sorted({each.file for each in images})
        run = replace(run, task=run.task.without(files), skipped=files)
    backbone = run.classifier.backbone
    data, weights = run.task.table.fingerprint(), backbone.weights_id()
    on_first(
        run.fabric,
        lambda: run.folder.write_environment(
            data=data,
            weights=weights,
            processes=run.fabric.world_size,
            vectors=run.task.input_fingerprint if isinstance(backbone, IdentityBackbone) else None,
            with_all_negatives=knows_negatives(run.config),
        ),
    )
    _log_task(run)
    return run


def _announce(run: RunContext, problems: Sequence[Problem]) -> None:
    for callback in run.callbacks:
        for problem in problems:
            callback.on_problem(problem)


def _log_skipped(run: RunContext, title: str, skipped: Sequence[Skipped]) -> None:
    run.log(itemised(title, skipped, rest=f"{run.folder.path / 'skipped.csv'} has all of them"))


def _log_task(run: RunContext) -> None:
    """Say how many images there are, what the known labels are taken for, and which classes cannot be learned."""
    task = run.task
    tested = f"{len(task.test):,} to test on"
    if task.out_of_fold:
        run.log(f"{counted(len(task.train), 'image')} to train on, {tested}; judged by {task.selected_on}")
    else:
        what = "the penalty" if run.config.solves else "the best epoch"
        run.log(
            f"{counted(len(task.train), 'image')} to train on, {len(task.validation):,} to select {what} by "
            f"({task.selected_on}), {tested}"
        )
    places, asked = task.eval_rows("train"), task.table.asked
    asked = None if asked is None else asked[task.train[places]]
    sampled = f", by {task.sampled('train')}" if task.sampled("train") else ""
    labels = task.observed.take(places).dense()
    assumed = assumption(recognise(labels, asked, process=run.config.data.process), labels)
    run.log(f"figures{sampled}: {assumed} ({NUMBERS})")
    positives = task.observed.count(POSITIVE)
    nothing = [name for name, number in zip(task.table.classes, positives, strict=True) if number == 0]
    if nothing:
        run.log(f"without a positive to learn from: {listed(nothing)}")


def eval_scores(run: RunContext, split: Split, score_rows: Callable[[Indices], Scores]) -> Scores:
    """The scores of the rows that a split is evaluated by; those of all rows are written, if they are not too many."""
    rows, places = run.task.rows(split), run.task.eval_rows(split)
    if too_many(len(rows), len(run.task.table.classes)):
        return score_rows(rows[places])
    scores = score_rows(rows)
    if run.fabric.is_global_zero:
        run.folder.write_scores(split, scores)
    return scores if len(places) == len(rows) else scores[places]


def finish(
    run: RunContext,
    scores: Mapping[Split, Scores],
    *,
    validation_map: float,
    best_epoch: int | None = None,
    penalty: float | None = None,
) -> Results:
    """Choose thresholds, judge by test images for the first and only time, and write model and results."""
    task = run.task
    weights = cpu_state(run.classifier)
    worth: dict[str, Worth] = {}
    if task.holds_out:  # it is asked for scores alone
        decisions = Thresholds.none(len(task.table.classes))
    else:
        decisions, worth = _decisions(run, scores["validation"])
    tested = _test_metrics(run, scores["test"], decisions) if len(task.test) and not task.holds_out else {}
    results = Results(
        method=run.config.method.name,
        best_epoch=best_epoch,
        penalty=penalty,
        selected_on=task.selected_on,
        validation_map=validation_map,
        skipped_images=list(run.skipped),
        **{"worth": worth, **tested},
    )
    if run.fabric.is_global_zero:
        found = save_model(run.folder.path, run.classifier, decisions, weights=weights, precision=run.config.precision)
        if not task.holds_out:
            write_card(run.folder, run.config, found, results, task)
        run.folder.write_results(results)
    return results


def _decisions(run: RunContext, scores: Scores) -> tuple[Thresholds, dict[str, Worth]]:
    """The thresholds by the scores of validation rows; what they are worth there."""
    task, places, asked = run.task, run.task.eval_rows("validation"), run.task.asked_validation
    labels, known_by = task.validation_labels.take(places).dense(), None if asked is None else asked[places]
    process, inference = run.config.data.process, None
    if (labels == UNKNOWN).any():
        inference = infer(scores, labels, process=process, asked=known_by)
    decisions = fit_decisions(scores, labels, rule="likely", process=process, asked=known_by, inference=inference)
    if not run.test or len(task.test):
        return decisions, {}
    series = task.table.groups(task.validation[places])
    if labels.size > MANY_CELLS:
        found_worth = find_precision_recall(scores, labels, decisions, inference, series)
        return decisions, {"validation": Worth(found_worth, "")}
    found = evaluate(scores, labels, decisions, task.table.classes, inference=inference, series=series)
    return decisions, {"validation": _worth(found, task.sampled("validation"))}


def _worth(found: Evaluation, sampled: str) -> Worth:
    return Worth(found.precision_recall, f"{found.line}, by {sampled}" if sampled else found.line)


def _test_metrics(run: RunContext, scores: Scores, decisions: Thresholds) -> dict[str, Any]:
    """The figures of `Results` that the test images tell."""
    task = run.task
    rows, sampled = task.test[task.eval_rows("test")], task.sampled("test")
    labels, asked = task.table.labels[rows], task.table.asked
    if not (labels == POSITIVE).any():
        return {"test_note": f"no {f'image of {sampled}' if sampled else 'test image'} has a positive label"}
    found = evaluate(
        scores,
        labels,
        decisions,
        task.table.classes,
        process=run.config.data.process,
        asked=None if asked is None else asked[rows],
        series=task.table.groups(rows),
    )
    figures: dict[str, Any] = {
        "worth": {"test": _worth(found, sampled)},
        "test_class_ap": {name: None if np.isnan(each.ap) else each.ap for name, each in found.classes.items()},
    }
    if not np.isnan(found.map):
        figures |= {"test_map": found.map, "test_classes": found.averaged_classes}
    notes = [f"by {sampled}"] if sampled else []
    if found.estimated is not None:
        figures["test_estimate"] = tuple(found.estimated.map)
        notes.append(found.estimated.assumption + found.estimated.over)
    return figures | ({"test_note": "; ".join(notes)} if notes else {})
