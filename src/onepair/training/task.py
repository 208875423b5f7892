"""What there is to learn: the rows of each split, the labels the learner sees, and those it is judged by."""

import hashlib
from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from onepair.data.labeltable import LabelTable
from onepair.data.problems import DataError
from onepair.data.reading import read_dataset
from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, Indices, Labels, observe_positives, split_validation
from onepair.training.config import DataConfig


@dataclass(frozen=True, eq=False)
class Task:
    """A dataset, cut into what is learned from, selected on and tested on."""

    table: LabelTable
    train: Indices  # rows of the table, ascending, as the other two
    validation: Indices
    test: Indices
    observed: Labels  # (len(train), L), what the learner sees
    validation_labels: Labels  # (len(validation), L), what the best epoch is selected by
    selected_on: str  # a few words on what those are

    def labels_hash(self) -> str:
        """What tells these labels from any others, for the record of a run."""
        digest = hashlib.sha256()
        for array in (self.observed, self.validation_labels, self.table.labels[self.test]):
            digest.update(array.tobytes())
        return digest.hexdigest()

    def without(self, files: Collection[str]) -> "Task":
        """The task with fewer training images: those whose paths are not among `files`."""
        kept = np.array([str(self.table.path(row)) not in files for row in self.train.tolist()], bool)
        if not kept.any():
            raise DataError("not one training image can be read")
        return replace(self, train=self.train[kept], observed=self.observed[kept])


def prepare_task(config: DataConfig, *, with_all_negatives: bool = False) -> Task:
    """Read a dataset and hide the labels that the learner should not see.

    Labels are hidden over the whole official training set, and the validation rows are taken from it afterwards, as
    the published results do; validation and test keep the labels they have.

    Args:
        config: which dataset, and what of it to observe.
        with_all_negatives: where labels are hidden, keep the negatives: for the oracle that knows them.
    """
    table = read_dataset(config.source, format=config.format, unlisted=config.unlisted, images=config.images)
    official = table.rows("train")
    if len(official) == 0:
        raise DataError(f"{config.source}: has no training images; is its split column right?")
    given = table.labels[official]
    observed = _hide(given, config, with_all_negatives) if config.observe == "single-positive" else given
    validation = table.rows("validation")
    kept = np.arange(len(official))
    if len(validation) == 0:
        kept, held_out = _split(len(official), config)
        validation = official[held_out]
    validation_labels, selected_on = _selection_labels(table.labels[validation])
    if not (validation_labels == POSITIVE).any():
        raise DataError(
            f"{config.source}: none of the {len(validation)} validation images has a positive label, so no epoch is "
            "better than another; label some, or choose others with data.validation or data.seed"
        )
    return Task(
        table=table,
        train=official[kept],
        validation=validation,
        test=table.rows("test"),
        observed=observed[kept],
        validation_labels=validation_labels,
        selected_on=selected_on,
    )


def _split(rows: int, config: DataConfig) -> tuple[Indices, Indices]:
    try:
        return split_validation(rows, fraction=config.validation, seed=config.seed)
    except ValueError as error:
        raise DataError(f"{config.source}: {error}; change data.validation, or add a validation split") from None


def _hide(full: Labels, config: DataConfig, with_all_negatives: bool) -> Labels:
    if (full == UNKNOWN).any():
        raise DataError(f"{config.source}: to simulate single positives, every training label must be known")
    observed = observe_positives(full, seed=config.seed)
    if with_all_negatives:
        observed[full == NEGATIVE] = NEGATIVE
    return observed


def _selection_labels(labels: Labels) -> tuple[Labels, str]:
    """The validation labels, with unknown ones as negative: left out, they would make every ranking look good."""
    if (labels == UNKNOWN).any():
        return np.maximum(labels, NEGATIVE), "observed validation labels, unknown ones counted as negative"
    return labels, "full validation labels"
