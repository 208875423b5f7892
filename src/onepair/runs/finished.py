"""A finished run, opened from its folder, with the models of its folds and the files that no output may replace."""

import copy
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from onepair.data.images.image_files import walk
from onepair.data.label_table import LabelTable, announce
from onepair.data.text_files import exists
from onepair.data.vector_files import chosen
from onepair.errors import ConfigError, DataError, ModelError, OnepairError, RunError
from onepair.files import refuse_overwriting, writing
from onepair.inference.model_files import Description, load_model, read_description, write_description
from onepair.label_matrix import LabelMatrix, too_many
from onepair.labels import POSITIVE, UNKNOWN, Indices, Labels
from onepair.metrics import METRICS, Metric
from onepair.plugins import nearest
from onepair.probability import fit_decisions
from onepair.probability.evaluation import Evaluation, evaluate
from onepair.probability.thresholds import Rule, Thresholds
from onepair.remote import as_path, is_remote, is_url
from onepair.runs.audit import Audit, read_audit
from onepair.runs.config import Config
from onepair.runs.folder import Results, RunFolder, Worth, write_card
from onepair.runs.project import RECORD, project_of
from onepair.runs.task import RunCache, Split, Task, describe_observation, sample_places, task_of
from onepair.words import counted, listed

if TYPE_CHECKING:
    import pandas

    from onepair.models import Classifier


class FinishedRun:
    """What a run was asked to do, what it learned from, and what came of it.

    Everything is read when it is first asked for. The dataset is the one that the run was trained on, or a sentence
    that it has changed since: scores belong to rows, and other rows would make other figures of them.

    Args:
        path: the run's folder.
        shared: keeps the datasets of runs that are opened one after another.
    """

    def __init__(self, path: Path, *, shared: RunCache | None = None) -> None:
        self.folder = RunFolder(path)
        self.results: Results = self.folder.results()  # or a sentence that there is no finished run
        self._shared = shared or RunCache()

    @property
    def path(self) -> Path:
        return self.folder.path

    @cached_property
    def config(self) -> Config:
        return self.folder.config()

    @property
    def title(self) -> str:
        """Its method, as the papers call it."""
        from onepair.methods import METHODS

        info = METHODS.get(self.config.method.name)
        return self.config.method.name if info is None else info.title

    @property
    def trained_on(self) -> str:
        """Which labels, in a few words."""
        return describe_observation(self.config.data)

    @property
    def worth(self) -> list[str]:
        """What its labels are worth, a sentence for each split that tells."""
        return [f"{split.title()}, {worth.precision_recall.sentence}." for split, worth in self.results.worth.items()]

    @cached_property
    def history(self) -> list[dict[str, Any]]:
        """What was measured after every epoch."""
        return self.folder.metrics()

    @property
    def test_map(self) -> float:
        """The mAP of its test images, for whoever cannot do without."""
        results = self.results
        if results.test_map is not None:
            return results.test_map
        why = results.test_note or "its dataset has no labelled test images; name some in a column split"
        if results.test_estimate is not None:
            why = "known labels of its test images do not tell it; onepair audit lets a person complete those of some"
        raise RunError(f"{self.path}: has no test mAP: {why}")

    # The dataset

    def require_same_data(self) -> None:
        """Refuse a dataset that has changed since the run was trained."""
        self._read()

    @cached_property
    def task(self) -> Task:
        """The rows of each split and the labels that the run saw, without the images that it left out."""
        return self._read().without(self.results.skipped_images)

    def _read(self) -> Task:
        environment = self.folder.environment()
        oracle = bool(environment.get("with_all_negatives"))
        try:
            task = task_of(self.config, self._shared, with_all_negatives=oracle)
        except DataError as error:
            source = as_path(self.config.data.source)
            if is_remote(source) or exists(source):
                raise
            if source.parent == self.path.resolve():
                raise RunError(
                    f"{self.path}: was trained on images that a Python program held in memory; open it there, with "
                    f"onepair.Run({str(self.path)!r}, data=dataset)"
                ) from None
            go = "" if source.is_absolute() else ", or go to the folder that the command was run in"
            raise RunError(f"{error}; {self.path} was trained on it: bring it back{go}") from None
        if environment["data"] != task.table.fingerprint() and task.table.aliases:  # a run of before they were merged
            kept = replace(self.config, data=replace(self.config.data, spellings="keep"))
            task = task_of(kept, self._shared, with_all_negatives=oracle)
        if environment["data"] != task.table.fingerprint():
            raise RunError(
                f"{self.path}: {self.config.data.source} has changed since it was trained (its files, classes, splits "
                "or labels); bring the old one back, or train it anew with --restart"
            )
        if environment.get("vectors") not in (None, task.input_fingerprint):
            what = self.config.data.features or f"the texts of {self.config.data.source}"
            raise RunError(
                f"{self.path}: {what} have changed since it was trained; bring the old ones back, or train a new run"
            )
        return task

    @property
    def table(self) -> LabelTable:
        return self.task.table

    def rows(self, split: Split) -> Indices:
        """The rows of the table in a split: "train" is what was learned from.

        Where they are too many for a score of each class, the random sample that the run itself was judged by.
        """
        rows = self.task.rows(split)
        if len(rows) == 0:
            there = [name for name in ("test", "validation", "train") if len(self.task.rows(name))]
            raise RunError(f"{self.path}: its dataset has no {split} images; choose {' or '.join(there)} with --split")
        return rows[self.task.eval_rows(split)] if too_many(len(rows), len(self.table.classes)) else rows

    @property
    def judged_by(self) -> Split:
        """The test images, or where there are none those of validation."""
        return "test" if len(self.task.test) else "validation"

    def sampled(self, split: Split) -> str:
        """A few words on how many images figures of a split rest on, if it is not all of them; else nothing."""
        sample = self.task.sampled(split)
        return f"by {sample}" if sample else ""

    def labels(self, split: Split) -> Labels:
        """What the dataset says of a split, whatever the run was shown of it, completed by an audit."""
        rows = self.rows(split)
        labels: Labels = self.table.labels[rows]
        if self.audit is not None and self.audit.split == split:
            labels[np.searchsorted(rows, self.audit.rows)] = self.audit.labels
        return labels

    @cached_property
    def audit(self) -> Audit | None:
        """The images that people have given all of their labels; `write_audit` has them read anew."""
        return read_audit(self)

    def eval_mask(self, split: Split) -> NDArray[np.bool_]:
        """By which images (N,) of a split the model is judged: after an audit by those that were drawn for it.

        The known labels of the others are mostly positive, so that together with them every model would look good; and
        those that the dataset happens to have all labels of were not drawn.
        """
        audit = self.audit
        if audit is None or audit.split != split or not (self.labels(split) == UNKNOWN).any():
            return self.sample(split)
        return np.isin(self.rows(split), audit.rows)

    def sample(self, split: Split) -> NDArray[np.bool_]:
        """Which images (N,) of a split are enough to fit and judge by: all, or where they are many a random sample of
        them, and those that were audited.
        """
        rows, audit = self.rows(split), self.audit
        chosen = np.zeros(len(rows), bool)
        chosen[sample_places(len(rows), len(self.table.classes))] = True
        return chosen if audit is None or audit.split != split else chosen | np.isin(rows, audit.rows)

    def asked(self, split: Split) -> NDArray[np.bool_] | None:
        """Which labels of a split are known because a model suggested them, if any are."""
        return None if self.table.asked is None else self.table.asked[self.rows(split)] == POSITIVE

    @cached_property
    def known(self) -> LabelMatrix:
        """What is known of all rows of the table (N, L): what the run saw of its training images, and all of others."""
        labels = self.table.labels.with_rows(self.task.train, self.task.observed)
        audit = self.audit
        return labels if audit is None else labels.with_rows(audit.rows, LabelMatrix.of(audit.labels))

    @cached_property
    def in_full(self) -> Indices:
        """The validation rows that have all of their labels."""
        complete: Indices = self.task.validation[self.known.take(self.task.validation).row_count(UNKNOWN) == 0]
        return complete

    @cached_property
    def searched(self) -> Indices:
        """The rows whose labels may be missing: those that were trained on, and validation images with holes.

        An image that the table names in both splits is asked about once.
        """
        train, files = self.task.train, self.table.files
        holes = np.setdiff1d(self.task.validation, self.in_full)
        trained_on = {files[row] for row in train.tolist()} if len(holes) else set()
        return np.union1d(train, np.array([row for row in holes.tolist() if files[row] not in trained_on], np.intp))

    # The model

    @cached_property
    def description(self) -> Description:
        return read_description(self.path)

    @property
    def classes(self) -> tuple[str, ...]:
        return self.description.classes

    @property
    def decisions(self) -> Thresholds:
        return self.description.decisions

    def decide(self, decisions: Thresholds, found: Evaluation | None = None) -> None:
        """Store other decisions with the model, and what they are worth on validation images."""
        if found is not None:
            worth = {"validation": Worth(found.precision_recall, found.line)}
            self.results = self.results.model_copy(update={"worth": worth})
            self.folder.write_results(self.results)
        self.description = self.description._replace(decisions=decisions)
        write_description(self.path, self.description)
        write_card(self.folder, self.config, self.description, self.results, self.task)

    @cached_property
    def classifier(self) -> "Classifier":
        """On the CPU, in evaluation mode. It is one object: who needs it elsewhere moves a copy."""
        return load_model(self.path)[0]

    def scores(self, split: Split, *, workers: int | None = None) -> NDArray[np.float32]:
        """The logits (N, L) of a split's images: those that the run has kept, or computed now.

        Where the classifier was solved for, those of training images are out of fold: each by a model that was not
        fitted to it. Validation images, where the dataset names none, are these.
        """
        split = "train" if split == "validation" and self.task.out_of_fold else split
        rows = self.rows(split)
        kept = self.folder.scores(split)
        if kept is not None:
            expected = (len(rows), len(self.table.classes))
            if kept.shape != expected:
                size = f"{counted(expected[0], 'image')} and {counted(expected[1], 'class')}"
                raise RunError(
                    f"{self.path}: scores_{split}.npy is not of {size}; delete it to compute the scores anew"
                )
            return kept
        if split == "train" and self.config.solves:
            return self._out_of_fold(rows, workers)
        from onepair.inference.engine_selector import score_images

        return score_images(self.classifier, self.table, rows, precision=self.description.precision, workers=workers)

    def folds(self) -> "FoldModels | None":
        """The models of a solved classifier that were fitted without one fold of the training images each."""
        return read_folds(self.path, rows=len(self.task.train), classes=len(self.table.classes))

    def _out_of_fold(self, rows: Indices, workers: int | None) -> NDArray[np.float32]:
        from onepair.inference.engine_selector import score_images

        models = self.folds()
        if models is None:
            raise RunError(f"{self.path}: has no out-of-fold models; train it anew with --restart")
        scores = np.empty((len(rows), len(self.table.classes)), np.float32)
        fold = models.fold[np.searchsorted(self.task.train, rows)]
        for number in np.unique(fold).tolist():
            own = np.flatnonzero(fold == number)
            classifier = models.classifier(self.classifier, number)
            scores[own] = score_images(
                classifier, self.table, rows[own], precision=self.description.precision, workers=workers
            )
        return scores


NAME = "folds.safetensors"


@dataclass(frozen=True, eq=False)
class FoldModels:
    """K linear layers on the same features, each fitted without one fold of the training images."""

    coef: NDArray[np.float32]  # (K, L, D)
    intercept: NDArray[np.float32]  # (K, L)
    fold: Indices  # (N,), of every training image

    def __len__(self) -> int:
        return len(self.coef)

    def classifier(self, whole: "Classifier", number: int) -> "Classifier":
        """The classifier of all images with the layer of one fold in its place."""
        import torch

        head = copy.deepcopy(whole.head)
        parts = {"weight": torch.from_numpy(self.coef[number]), "bias": torch.from_numpy(self.intercept[number])}
        head.load_state_dict(head.state_dict() | parts)
        other = copy.copy(whole)
        other._modules = {**whole._modules, "head": head}
        return other

    def write(self, folder: Path) -> None:
        import torch

        from onepair.models import save_weights

        parts = {"coef": self.coef, "intercept": self.intercept, "fold": self.fold.astype(np.int64)}
        save_weights(folder / NAME, {name: torch.from_numpy(part) for name, part in parts.items()})


def read_folds(folder: Path, *, rows: int, classes: int) -> FoldModels | None:
    """What `write` wrote, if anything."""
    path = folder / NAME
    if not path.exists():
        return None
    from onepair.models.weights import read_state

    try:
        state = {name: tensor.numpy() for name, tensor in read_state(path).items()}
        coef, intercept, fold = (state[name] for name in ("coef", "intercept", "fold"))
    except (ModelError, KeyError):
        raise RunError(f"{path}: is damaged; train the run anew with --restart") from None
    fits = coef.ndim == 3 and intercept.shape == coef.shape[:2] == (len(coef), classes) and fold.shape == (rows,)
    if not fits or not (np.isfinite(coef).all() and np.isfinite(intercept).all()) or fold.max(initial=0) >= len(coef):
        raise RunError(f"{path}: does not fit the run; train it anew with --restart")
    return FoldModels(coef, intercept, fold)


def protect_inputs(
    output: Path | None, *, run: Path | None = None, table: LabelTable | None = None, others: Iterable[object] = ()
) -> None:
    """Refuse an output that is one of the files that it is made from, by whatever name.

    Nothing is read unless there is a file at `output` already.

    Args:
        output: the file to be written; None is no output.
        run: the folder of a run: its table, images, vectors, boxes, weights, settings and answers, and its project's.
        table: a dataset: its images.
        others: paths of further files, or of folders of them.

    Raises:
        OnepairError: `output` is one of these files.
    """
    if output is not None:
        refuse_overwriting(output, _inputs(run, table, others))


def _inputs(run: Path | None, table: LabelTable | None, others: Iterable[object]) -> Iterator[Path]:
    for path in others:
        yield from _files_at(path)
    if table is not None:
        yield from _images(table)
    if run is not None:
        yield from _files_at(run / "audit")
        yield from (run / "config.toml", run / "finding" / "review.sqlite", *run.glob("*.safetensors"))
        if (project := project_of(run)) and (record := project.record()):
            yield from _files_at(project.source_of(record))
            yield from (
                project.path / RECORD,
                project.answers,
                *project.runs.glob("*-labels.*"),
                *project.runs.glob("*-images.csv"),
                *project.runs.glob("*/config.toml"),
                *project.runs.glob("*/*.safetensors"),
            )
        if (run / "config.toml").exists():
            config = RunFolder(run).config()
            data = config.data
            for path in (data.source, data.features, data.boxes, data.classes, config.model.weights):
                yield from _files_at(path)
            if data.images is not None and not is_url(data.images) and Path(data.images).is_dir():
                yield from walk(Path(data.images))  # an earlier output may lie beside them
            try:
                yield from _images(FinishedRun(run).table)
            except OnepairError:  # a dataset that is no more cannot be lost
                return


def _files_at(given: object) -> Iterator[Path]:
    """A file, and of a folder all files in it, if they are on this machine."""
    text = str(given)
    if given is None or not text or is_url(text):
        return
    path = chosen(text)[0]
    yield path
    if path.is_dir():
        yield from path.rglob("*")


def _images(table: LabelTable) -> Iterator[Path]:
    if table.pixels is None and not is_url(str(table.root)):
        yield from map(table.path, range(len(table)))


logger = logging.getLogger(__name__)


class EvaluationSet(NamedTuple):
    """What a model is evaluated on: N images, L classes."""

    scores: NDArray[np.float32]  # (N, L)
    labels: Labels  # (N, L)
    asked: NDArray[np.bool_] | None  # (N, L)
    thresholds: Thresholds
    classes: tuple[str, ...]
    series: Indices | None  # (N,), which images belong together


def find_metrics(names: Iterable[str]) -> dict[str, Metric]:
    """The registered metrics of these names."""
    for name in names:
        if name not in METRICS:
            raise ConfigError(f"there is no metric {name!r}; {nearest(name, METRICS)}")
    return {name: METRICS[name] for name in names}


def evaluate_run(
    run: FinishedRun,
    split: Split | None = None,
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
        split: which images; by default "test", or "validation" where the run has no test images.
        table: another dataset, whose classes may come in any order; those that both have are evaluated.
        source: what messages call that dataset.
        metrics: names of further metrics, computed on the known labels.
        workers: threads that read images.
        strict: raise an error at an image that cannot be read, instead of leaving it out.

    """
    chosen = find_metrics(metrics)
    split = split or (run.judged_by if table is None else "test")
    data = _own_set(run, split, workers) if table is None else _other_set(run, table, source, split, workers, strict)
    found = evaluate(
        data.scores,
        data.labels,
        data.thresholds,
        data.classes,
        process=run.config.data.process,
        asked=data.asked,
        series=data.series,
    )
    return found._replace(metrics={name: metric(data.scores, data.labels) for name, metric in chosen.items()})


def _own_set(run: FinishedRun, split: Split, workers: int | None) -> EvaluationSet:
    rows, asked = run.eval_mask(split), run.asked(split)
    scores = run.scores(split, workers=workers)
    return EvaluationSet(
        scores[rows],
        run.labels(split)[rows],
        None if asked is None else asked[rows],
        run.decisions,
        run.classes,
        run.table.groups(run.rows(split)[rows]),
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
        table.groups(rows),
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
    rule: Rule = "likely",
    precision: float = 0.9,
    calibration: Literal["auto", "platt", "isotonic"] = "auto",
) -> Chosen:
    """Choose the thresholds and the calibration of a run's model anew, without training, and store them with it.

    Args:
        run: the run; its validation images, or its out-of-fold scores, are what is chosen by.
        rule: labels at least as likely right as wrong, the best F1, a precision in every class, or as many labels as
            there are.
        precision: of the rule "precision".
        calibration: what makes scores probabilities: lines, rising curves, or whichever fits better.
    """
    sample, asked = run.sample("validation"), run.asked("validation")
    scores, labels = run.scores("validation")[sample], run.known[run.rows("validation")[sample]]
    known_by: dict[str, Any] = {"process": run.config.data.process, "asked": None if asked is None else asked[sample]}
    thresholds = fit_decisions(scores, labels, calibration=calibration, rule=rule, precision=precision, **known_by)
    rows = run.eval_mask("validation")[sample]
    if known_by["asked"] is not None:
        known_by["asked"] = known_by["asked"][rows]
    series = run.table.groups(run.rows("validation")[sample][rows])
    found = evaluate(scores[rows], labels[rows], thresholds, run.classes, series=series, **known_by)
    with writing(run.path):
        run.decide(thresholds, found)
    return Chosen(thresholds, scores[rows], found, len(labels))
