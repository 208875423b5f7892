"""How good a run's model is, on its own dataset or on another, and thresholds chosen anew."""

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from onepair.data.label_table import LabelTable, announce
from onepair.errors import ConfigError, DataError
from onepair.files import writing
from onepair.label_matrix import too_many
from onepair.labels import Indices, Labels
from onepair.metrics import METRICS, Metric
from onepair.plugins import nearest
from onepair.probability import fit_decisions
from onepair.probability.evaluation import Evaluation, evaluate
from onepair.probability.thresholds import Thresholds
from onepair.runs.finished import FinishedRun
from onepair.runs.task import Split, sample_places
from onepair.words import counted, listed

if TYPE_CHECKING:
    import pandas

logger = logging.getLogger(__name__)


class EvaluationSet(NamedTuple):
    """What a model is evaluated on: N images, L classes."""

    scores: NDArray[np.float32]  # (N, L)
    labels: Labels  # (N, L)
    asked: NDArray[np.bool_] | None  # (N, L)
    thresholds: Thresholds
    classes: tuple[str, ...]


def find_metrics(names: Iterable[str]) -> dict[str, Metric]:
    """The registered metrics of these names."""
    for name in names:
        if name not in METRICS:
            raise ConfigError(f"there is no metric {name!r}; {nearest(name, METRICS)}")
    return {name: METRICS[name] for name in names}


def evaluate_run(
    run: FinishedRun,
    split: Split = "test",
    *,
    table: LabelTable | None = None,
    source: str = "",
    metrics: Iterable[str] = (),
    workers: int | None = None,
    strict: bool = False,
) -> Evaluation:
    """Evaluate a run's model, where the split was audited on the images that were drawn for it.

    Args:
        run: the run.
        split: which images.
        table: another dataset, whose classes may come in any order; those that both have are evaluated.
        source: what messages call that dataset.
        metrics: names of further metrics, computed on the known labels.
        workers: threads that read images.
        strict: raise an error at an image that cannot be read, instead of leaving it out.

    """
    chosen = find_metrics(metrics)
    data = _own_set(run, split, workers) if table is None else _other_set(run, table, source, split, workers, strict)
    found = evaluate(
        data.scores, data.labels, data.thresholds, data.classes, process=run.config.data.process, asked=data.asked
    )
    return found._replace(metrics={name: metric(data.scores, data.labels) for name, metric in chosen.items()})


def _own_set(run: FinishedRun, split: Split, workers: int | None) -> EvaluationSet:
    rows, asked = run.eval_mask(split), run.asked(split)
    scores = run.scores(split, workers=workers)
    return EvaluationSet(
        scores[rows], run.labels(split)[rows], None if asked is None else asked[rows], run.decisions, run.classes
    )


def _other_set(
    run: FinishedRun, table: LabelTable, source: str, split: Split, workers: int | None, strict: bool
) -> EvaluationSet:
    """Of one split of another dataset, the images that can be read and the classes that the run has too."""
    from onepair.inference.engine_selector import score_images

    columns, places = _shared_classes(run, table, source)
    rows = table.rows(split)
    if len(rows) == 0:
        there = ", ".join(dict.fromkeys(table.split.tolist()))
        raise DataError(f"{source}: has no {split} images, but {there}; choose them with --split")
    if too_many(len(rows), len(run.classes)):
        some = rows[sample_places(len(rows), len(run.classes))]
        logger.info(f"judged by a random sample of {len(some):,} of {counted(len(rows), f'{split} image')}")
        rows = some
    scores = score_images(
        run.classifier,
        table,
        rows,
        precision=run.description.precision,
        workers=workers,
        report=announce(logger.warning, strict=strict),
    )
    read = np.isfinite(scores).all(1)
    if not read.any():
        raise DataError(f"{source}: not one of its {counted(len(rows), f'{split} image')} can be read")
    rows, scores = rows[read], scores[read]
    return EvaluationSet(
        scores[:, columns],
        table.labels[np.ix_(rows, places)],
        None if table.asked is None else table.asked[np.ix_(rows, places)],
        run.decisions.of_classes(columns),
        tuple(run.classes[i] for i in columns),
    )


def _shared_classes(run: FinishedRun, table: LabelTable, source: str) -> tuple[Indices, Indices]:
    """The classes that a run and a table share, as columns of the one and of the other; the rest is named."""
    shared = [name for name in run.classes if name in table.classes]
    if not shared:
        raise DataError(
            f"{source}: has none of the run's classes; it has {listed(table.classes)}, the run {listed(run.classes)}"
        )
    alone = {
        "the run": [name for name in run.classes if name not in shared],
        source: [name for name in table.classes if name not in shared],
    }
    if only := [f"{who} alone has {listed(names)}" for who, names in alone.items() if names]:
        both = f"{counted(len(shared), 'class')} that both have, {listed(shared)}"
        logger.info(f"judged by {both}; {', and '.join(only)}")
    return (
        np.array([run.classes.index(name) for name in shared]),
        np.array([table.classes.index(name) for name in shared]),
    )


class Chosen(NamedTuple):
    """Thresholds and calibration that were chosen anew, and how good they are."""

    thresholds: Thresholds
    scores: NDArray[np.float32]  # of the images that the model is judged by
    evaluation: Evaluation
    images: int  # that the thresholds were chosen by

    def to_frame(self) -> "pandas.DataFrame":
        """Return a DataFrame with the threshold of each class, as a probability, and what it gives."""
        frame = self.evaluation.to_frame()
        frame.insert(0, "threshold", self.thresholds.as_probabilities())
        return frame

    def __repr__(self) -> str:
        return f"Chosen({self.thresholds.rule}, by {counted(self.images, 'image')}: {self.evaluation!r})"


def choose_thresholds(
    run: FinishedRun,
    *,
    rule: Literal["f1", "precision", "count"] = "f1",
    precision: float = 0.9,
    calibration: Literal["auto", "platt", "isotonic"] = "auto",
) -> Chosen:
    """Choose the thresholds and the calibration of a run's model anew, without training, and store them with it.

    Args:
        run: the run; its validation images, or its out-of-fold scores, are what is chosen by.
        rule: the best F1, a precision in every class, or as many labels as there are.
        precision: of the rule "precision".
        calibration: what makes scores probabilities: lines, rising curves, or whichever fits better.
    """
    sample, asked = run.sample("validation"), run.asked("validation")
    scores, labels = run.scores("validation")[sample], run.known[run.rows("validation")[sample]]
    known_by: dict[str, Any] = {"process": run.config.data.process, "asked": None if asked is None else asked[sample]}
    thresholds = fit_decisions(scores, labels, calibration=calibration, rule=rule, precision=precision, **known_by)
    with writing(run.path):
        run.decide(thresholds)
    rows = run.eval_mask("validation")[sample]
    if known_by["asked"] is not None:
        known_by["asked"] = known_by["asked"][rows]
    found = evaluate(scores[rows], labels[rows], thresholds, run.classes, **known_by)
    return Chosen(thresholds, scores[rows], found, len(labels))
