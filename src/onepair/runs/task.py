"""What there is to learn: the rows of each split, the observed labels, and the labels to evaluate by."""

import hashlib
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from onepair.data.formats.read import read_dataset, recognise
from onepair.data.label_table import TFIDF, LabelTable, Problem, collect, object_areas
from onepair.data.quality import missing_file
from onepair.data.text_files import exists
from onepair.errors import ConfigError, DataError
from onepair.label_matrix import LabelMatrix
from onepair.labels import (
    NEGATIVE,
    POSITIVE,
    UNKNOWN,
    Indices,
    Labels,
    fold_groups,
    observe_fraction,
    observe_positives,
    observe_preferred,
    split_stratified,
    split_validation,
)
from onepair.models import best_at_hand
from onepair.remote import as_path
from onepair.runs.config import AUTO, Config, DataConfig, flatten, image_settings, parse_fold
from onepair.words import counted

if TYPE_CHECKING:
    from onepair.methods import Method

Thing = TypeVar("Thing")


class RunCache:
    """Keeps in memory what is slow to make and the same for many runs, each thing by all that decides it.

    >>> cache = RunCache()
    >>> cache.get_or_make("table", lambda: [1, 2]) is cache.get_or_make("table", lambda: [3, 4])
    True
    """

    def __init__(self) -> None:
        self._made: dict[Hashable, Any] = {}

    def get_or_make(self, key: Hashable, make: Callable[[], Thing]) -> Thing:
        if key not in self._made:
            self._made[key] = make()
        made: Thing = self._made[key]
        return made


Split = Literal["train", "validation", "test"]

MAX_EVAL_CELLS = 2**25  # cells of a split that probabilities are computed of


@dataclass(frozen=True, eq=False)
class Task:
    """A dataset, cut into what is learned from, selected on and tested on."""

    table: LabelTable
    train: Indices  # rows of the table, ascending, as the other two
    validation: Indices
    test: Indices
    observed: LabelMatrix  # (len(train), L), what the learner sees
    validation_labels: LabelMatrix  # (len(validation), L), what a model is selected by, unknown ones as such
    selected_on: str  # a few words on what those are
    holds_out: bool = False  # whether the test rows are training rows that a fold holds out
    out_of_fold: bool = False  # whether the validation rows are the training rows, by models not fitted to them
    problems: Sequence[Problem] = ()  # remarks on the label files, and what was wrong with them and became of it

    @property
    def input_fingerprint(self) -> dict[str, Any] | None:
        """What tells the vectors, or else the texts of the table from any others; None where it has images alone."""
        if self.table.vectors is not None:
            return self.table.vectors.facts()
        if self.table.texts is None:
            return None
        texts = "".join(f"{len(text)}\n{text}" for text in self.table.texts)
        return {"texts": len(self.table.texts), "digest": hashlib.sha256(texts.encode("utf-8", "replace")).hexdigest()}

    def rows(self, split: Split) -> Indices:
        return {"train": self.train, "validation": self.validation, "test": self.test}[split]

    @property
    def images(self) -> Indices:
        """All rows that are used, ascending."""
        return np.unique(np.concatenate([self.train, self.validation, self.test]))

    def eval_rows(self, split: Split) -> Indices:
        """By which rows of a split, counted from 0, probabilities are fitted and figures computed.

        By all of them, or where they are too many a random sample.
        """
        return sample_places(len(self.rows(split)), len(self.table.classes))

    def sampled(self, split: Split) -> str:
        """A few words on the sample that a split is judged by, if it is not all of its images; else nothing."""
        some, every = len(self.eval_rows(split)), len(self.rows(split))
        return "" if some == every else f"a random sample of {some:,} of {counted(every, f'{split} image')}"

    @property
    def asked_validation(self) -> LabelMatrix | None:
        """Which validation labels are known because a model suggested them, if any are."""
        return None if self.table.asked is None else self.table.asked.take(self.validation)

    def without(self, files: Collection[str]) -> "Task":
        """The task with fewer images: those of other names than `files`."""
        if not files:
            return self
        train, validation, test = (self._others(rows, files) for rows in (self.train, self.validation, self.test))
        for split, kept in (("training", train), ("validation", validation)):
            if not kept.any():
                raise DataError(
                    f"not one {split} image can be read in {self.table.root}, for example {min(files)}; if they are "
                    "elsewhere, say where by --folder (in Python by folder=)"
                )
        validation_labels = self.validation_labels.take(validation)
        if not validation_labels.has(POSITIVE):
            images = counted(len(validation_labels), "training image" if self.out_of_fold else "validation image")
            raise DataError(
                f"{self.table.root}: of the {images} that can be read none has a positive label, so there is nothing "
                "to select a model by; mend or label some"
            )
        return replace(
            self,
            train=self.train[train],
            observed=self.observed.take(train),
            validation=self.validation[validation],
            validation_labels=validation_labels,
            selected_on=_selected_on(validation_labels, out_of_fold=self.out_of_fold),
            test=self.test[test],
        )

    def _others(self, rows: Indices, files: Collection[str]) -> NDArray[np.bool_]:
        return np.array([self.table.files[row] not in files for row in rows.tolist()], bool)


def sample_places(rows: int, classes: int) -> Indices:
    """All of so many rows, counted from 0, or where they and the classes are too many a random sample of them."""
    most = max(1, MAX_EVAL_CELLS // classes)
    if rows <= most:
        return np.arange(rows)
    return np.sort(np.random.default_rng(0).choice(rows, most, replace=False))


def task_of(config: Config, cache: RunCache, *, with_all_negatives: bool = False) -> Task:
    """`prepare_task` for a run; runs that differ in their folds share the dataset."""
    whole = replace(config.data, fold=None)
    task = cache.get_or_make(
        ("task", whole, with_all_negatives, config.solves),
        lambda: prepare_task(whole, with_all_negatives=with_all_negatives, out_of_fold=config.solves, cache=cache),
    )
    return hold_out(task, config.data)


def _read(config: DataConfig, cache: RunCache) -> tuple[LabelTable, list[Problem]]:
    """The table of a dataset, and what was wrong with it."""

    def read() -> tuple[LabelTable, list[Problem]]:
        problems: list[Problem] = []
        table = read_dataset(
            config.source,
            format=config.format,
            unlisted=config.unlisted,
            zeros=config.zeros,
            spellings=config.spellings,
            same=config.same,
            classes=config.classes,
            images=config.images,
            label_columns=config.label_columns or None,
            complete_splits=config.complete_splits,
            features=config.features,
            report=collect(problems, strict=config.on_error == "raise"),
        )
        return table, problems

    return cache.get_or_make(("table", config.images_alone), read)


def dataset_of(config: DataConfig, cache: RunCache) -> LabelTable:
    """Read the dataset of a run, once for all who share a cache."""
    return _read(config, cache)[0]


def prepare_task(
    config: DataConfig,
    *,
    with_all_negatives: bool = False,
    out_of_fold: bool = False,
    cache: RunCache | None = None,
) -> Task:
    """Read a dataset and hide the labels that the learner should not see.

    Labels are hidden over the whole official training set, and the validation rows are taken from it afterwards, as
    the published results do; validation and test keep the labels they have.

    Args:
        config: which dataset, and what of it to observe.
        with_all_negatives: where labels are hidden, keep the negatives: for the oracle that knows them.
        out_of_fold: hold no validation rows out of the training rows, where the dataset names none: models are judged
            by the training rows that they were not fitted to, and by the labels that are observed.
        cache: keeps the dataset for others.
    """
    table, problems = _read(config, cache or RunCache())
    official = table.rows("train")
    if len(official) == 0:
        raise DataError(f"{config.source}: has no training images; is its split column right?")
    given = table.labels.take(official)
    observed = given if config.observe == "given" else _hide(table, official, config, negatives=with_all_negatives)
    validation = table.rows("validation")
    kept = np.arange(len(official))
    drawn = len(validation) == 0
    out_of_fold = out_of_fold and drawn
    if out_of_fold:
        if len(official) == 1:
            raise DataError(
                f"{config.source}: 1 image is too few: of two at least, each is judged by a model of the other"
            )
        validation = official
    elif drawn:
        kept, held_out = _split(given, config, table.groups(official))
        validation = official[held_out]
    validation_labels = observed if out_of_fold else table.labels.take(validation)
    if not validation_labels.has(POSITIVE):
        if out_of_fold:
            raise DataError(
                f"{config.source}: none of its {counted(len(official), 'training image')} has a positive label, so "
                "there is nothing to learn; label some"
            )
        others = (
            "choose others with data.validation or data.seed" if drawn else "take the validation split out of the table"
        )
        raise DataError(
            f"{config.source}: of {counted(len(validation), 'validation image')} none has a positive label, so no "
            f"epoch is better than another; label some, or {others}"
        )
    task = Task(
        table=table,
        train=official[kept],
        validation=validation,
        test=table.rows("test"),
        observed=observed.take(kept),
        validation_labels=validation_labels,
        selected_on=_selected_on(validation_labels, out_of_fold=out_of_fold),
        problems=problems,
        out_of_fold=out_of_fold,
    )
    return hold_out(task, config)


def hold_out(task: Task, config: DataConfig) -> Task:
    """The task with one part of its training rows in the place of its test rows, if the configuration names a fold."""
    if config.fold is None:
        return task
    part, parts = parse_fold(config.fold)
    if parts > len(task.train):
        raise DataError(
            f"{config.source}: {counted(len(task.train), 'training image')} cannot be cut into {parts} folds"
        )
    groups = task.table.groups(task.train)
    if groups is None:
        order = np.random.RandomState(config.seed).permutation(len(task.train))
        held_out = np.sort(order[part - 1 :: parts])
    else:
        held_out = np.flatnonzero(fold_groups(groups, folds=parts, seed=config.seed) == part - 1)
    kept = np.delete(np.arange(len(task.train)), held_out)
    part_of = replace(
        task, train=task.train[kept], observed=task.observed.take(kept), test=task.train[held_out], holds_out=True
    )
    if task.out_of_fold:
        return replace(part_of, validation=part_of.train, validation_labels=part_of.observed)
    return part_of


def _split(labels: LabelMatrix, config: DataConfig, groups: Indices | None) -> tuple[Indices, Indices]:
    if len(labels) == 1:
        raise DataError(
            f"{config.source}: 1 image is too few: one at least to train on, and one to select the best epoch by"
        )
    if groups is not None and len(np.unique(groups)) > 1:
        fold = fold_groups(groups, folds=max(2, round(1 / config.validation)), seed=config.seed)
        return np.flatnonzero(fold > 0), np.flatnonzero(fold == 0)
    published = config.split == "published" or (config.split == "auto" and config.observe != "given")
    try:
        if published:
            return split_validation(len(labels), fraction=config.validation, seed=config.seed)
        return split_stratified(labels, fraction=config.validation, seed=config.seed)
    except ValueError as error:
        raise DataError(f"{config.source}: {error}; change data.validation, or add a validation split") from None


def _hide(table: LabelTable, rows: Indices, config: DataConfig, *, negatives: bool) -> LabelMatrix:
    """What the learner sees of full labels, by the process that the configuration names, and perhaps all negatives."""
    full = table.labels.take(rows)
    if full.has(UNKNOWN):
        raise DataError(f"{config.source}: to hide labels, every training label must be known")
    dense = full.dense()
    observed = _observe(dense, table, rows, config)
    return LabelMatrix.of(np.where(dense == NEGATIVE, dense, observed) if negatives else observed)


def _observe(full: Labels, table: LabelTable, rows: Indices, config: DataConfig) -> Labels:
    if config.observe == "fraction":
        observed = observe_fraction(full, known=config.known, seed=config.seed)
        if (observed == UNKNOWN).all():
            raise DataError(f"{config.source}: data.known={config.known:g} of {full.size:,} labels is none; raise it")
        return observed
    if config.observe == "most-frequent":
        return observe_preferred(full, (full == POSITIVE).sum(0))
    if config.observe == "largest-object":
        if config.boxes is None:
            raise DataError(f"{config.source}: to see the largest object alone, name a file of objects as data.boxes")
        return observe_preferred(full, object_areas(Path(config.boxes), table)[rows])
    return observe_positives(
        full, per_sample=config.positives if config.observe == "few-positives" else 1, seed=config.seed
    )


def describe_observation(config: DataConfig) -> str:
    """A few words on the labels that the learner sees.

    >>> describe_observation(DataConfig(observe="fraction", known=0.25))
    '25 % of all labels'
    """
    return {
        "given": "labels as given",
        "single-positive": "single positives",
        "few-positives": f"up to {config.positives} positives of each image",
        "fraction": f"{100 * config.known:g} % of all labels",
        "most-frequent": "single positives of the most frequent classes",
        "largest-object": "single positives of the largest objects",
    }[config.observe]


def _selected_on(labels: LabelMatrix, *, out_of_fold: bool) -> str:
    """A few words on the labels that a model is selected by."""
    words = "full labels of all training images, out of fold" if out_of_fold else "full validation labels"
    if labels.has(UNKNOWN):
        which = "of all training images, out of fold" if out_of_fold else "of validation images"
        words = f"observed labels {which}, with an estimate of what the unknown ones are"
    positives = labels.count(POSITIVE)
    if (positives[positives > 0] == len(labels)).all():
        words += "; by these, every model reaches 100"
    return words


class Skipped(NamedTuple):
    """Something that was left out."""

    file: str  # as the dataset names it; "" where a row does not tell
    reason: str
    place: str  # in the label files, as "labels.csv, line 7"; "" where they have no lines

    def __str__(self) -> str:
        return f"{self.place or self.file}: {self.reason}"


def skipped_cells(task: Task) -> list[Skipped]:
    """What was wrong with the label files."""
    return [Skipped("", problem.what, problem.where) for problem in task.problems if not problem.remark]


def skipped_images(task: Task, problems: Iterable[Problem]) -> list[Skipped]:
    """The images of a task that cannot be read, by what was found at their paths."""
    table, found = task.table, {problem.where: problem for problem in problems}
    rows = [row for row in task.images.tolist() if str(table.path(row)) in found]
    return [_skipped_image(task, row, found[str(table.path(row))]) for row in rows]


def _skipped_image(task: Task, row: int, problem: Problem) -> Skipped:
    table = task.table
    place = table.places[row] if table.places else ""
    if not exists(table.path(row)):
        return Skipped(table.files[row], missing_file(table, row).what, place)
    return Skipped(table.files[row], f"{table.files[row]} {problem.what}" if place else problem.what, place)


def make_method(config: Config) -> "Method":
    """The method that a run with this configuration learns by."""
    from onepair.methods import METHODS, create_method

    name, options = config.method.name, config.method.options
    if name in METHODS:
        options = {**METHODS[name].run_options(epochs=_epochs(config), seed=config.seed), **options}
    try:
        return create_method(name, **options)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"method: {error}") from None


def _epochs(config: Config) -> int:
    """Those of all stages that have any, or the rounds in which a classifier is solved for."""
    from onepair.methods import METHODS

    if config.solves:
        return METHODS[config.method.name].rounds
    solved = config.linear.protocol == "solve"
    return sum(stage.epochs for name, stage in config.stages.items() if not (name == "linear" and solved))


def knows_negatives(config: Config) -> bool:
    """Whether the method is the oracle that is shown all negatives, also where labels are hidden."""
    from onepair.methods import METHODS

    return METHODS[config.method.name].observes == "single positive and all negatives"


def choose_backbone(config: Config, cache: RunCache) -> Config:
    """The configuration with a backbone in place of "auto": the best that is on this machine, or tfidf for texts."""
    if config.model.backbone != AUTO:
        return config
    if config.model.weights != AUTO:
        raise ConfigError(f"model.weights {config.model.weights}: are those of which network? Name it with --backbone")
    is_table = recognise(as_path(config.data.source), config.data.format).name == "table"
    backbone = TFIDF if is_table and _read(config.data, cache)[0].ids else best_at_hand()
    chosen = replace(config, model=replace(config.model, backbone=backbone))
    if refusal := image_settings(flatten(chosen)):
        raise ConfigError(refusal)
    return chosen
