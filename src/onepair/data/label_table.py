"""`LabelTable`, the one form that every dataset is read into, object boxes, and what can be wrong with a dataset."""

import csv
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onepair.data.images.tar import joined
from onepair.data.vectors.align import Numbered, Vectors
from onepair.errors import DataError
from onepair.label_matrix import LabelMatrix
from onepair.labels import Indices

SPLITS = ("train", "validation", "test")
RESERVED = ("file", "split", "labels", "complete", "asked")  # names of columns, which no class can have
_NOT_UTF8 = re.compile("[\ud800-\udfff]")  # what Python makes of bytes that are not UTF-8, and JSON may hold


@dataclass(frozen=True, eq=False)
class LabelTable:
    """Files, their labels, and the split each belongs to; row i of everything is the same image.

    The order of rows and classes is the reader's promise: the published random streams depend on it.

    Examples:
        >>> labels = LabelMatrix.of([[1, -1], [0, 1]])
        >>> LabelTable(("a.jpg", "b.jpg"), ("cat", "dog"), labels, np.array(["train", "test"]), Path("photos")).classes
        ('cat', 'dog')
    """

    files: tuple[str, ...]  # as written in the dataset: relative to `root`, or absolute; perhaps in a tar
    classes: tuple[str, ...]
    labels: LabelMatrix  # (N, L), by its known entries; an array becomes one
    split: NDArray[np.str_]  # (N,) of "train", "validation", "test"
    root: Path
    pixels: NDArray[np.uint8] | None = None  # (N, H, W, 3) images held in memory, where there are no files
    asked: LabelMatrix | None = None  # (N, L) 1 for labels known because a model suggested them, else 0; as `labels`
    places: Sequence[str] | None = None  # where each row was read, as "labels.csv, line 7"
    texts: tuple[str, ...] | None = None  # (N,) of each row, where the dataset has any
    vectors: Vectors | None = None  # (N, D) of each row, where they are given
    numbered: Numbered | None = None  # where each row stood in a table's file
    aliases: Mapping[str, str] = field(default_factory=dict)  # other names that were read as one of `classes`
    group: tuple[str, ...] | None = None  # (N,) what belongs together, as a session; "" is alone
    ids: bool = False  # whether `files` are any names, as those of texts or vectors: there need be no such files

    def __post_init__(self) -> None:
        labels = LabelMatrix.of(self.labels)
        object.__setattr__(self, "labels", labels)
        if not len(self.files) == len(self.split) == len(labels) or len(self.classes) != labels.shape[1]:
            raise DataError(
                f"a table needs one file, one split and one row of labels per image, and one column per class; got "
                f"{len(self.files)} files, {len(self.split)} splits, {len(self.classes)} classes "
                f"and labels of shape {labels.shape}"
            )
        if self.asked is not None:
            asked = (
                self.asked if isinstance(self.asked, LabelMatrix) else LabelMatrix.of(np.asarray(self.asked, np.int8))
            )
            object.__setattr__(self, "asked", asked)
            if asked.shape != labels.shape:
                raise DataError(f"what was asked for has shape {asked.shape}, the labels {labels.shape}")
        for what, rows in (("texts", self.texts), ("vectors", self.vectors), ("groups", self.group)):
            if rows is not None and len(rows) != len(labels):
                raise DataError(f"a table needs one of its {what} per row; got {len(rows)} for {len(labels)} rows")
        strange = sorted(set(self.split.tolist()) - set(SPLITS))
        if strange:
            raise DataError(f"split {strange[0]!r} is not one of {', '.join(SPLITS)}")

    def __len__(self) -> int:
        return len(self.files)

    def rows(self, split: str) -> Indices:
        """The rows of a split, in order."""
        return np.flatnonzero(self.split == split)

    def path(self, row: int) -> Path:
        """Where the image of a row lies."""
        return joined(self.root, self.files[row])

    def groups(self, rows: Indices) -> Indices | None:
        """Which group each of some rows is in, by number; None where there are no groups."""
        if self.group is None:
            return None
        names = [self.group[row] or f"\0{row}" for row in rows.tolist()]
        found: Indices = np.unique(names, return_inverse=True)[1]
        return found

    def more_columns(self) -> dict[str, Sequence[Any]]:
        """What is written beside the labels: texts, and the numbers of vectors that nothing else tells apart."""
        more: dict[str, Sequence[Any]] = {} if self.texts is None else {"text": self.texts}
        if self.group is not None:
            more["group"] = self.group
        if self.vectors is not None and self.vectors.ids is None and self.vectors.place is not None:
            more["vector"] = self.vectors.place.tolist()
        return more

    def check_names(self, source: Path | str) -> None:
        """Refuse names with which the table could not be written, so that nobody labels it in vain.

        Args:
            source: where the table comes from or goes to, for the sentence.

        Raises:
            DataError: a class has the name of a column, or a name is blank, padded with spaces, or not UTF-8.
        """
        taken = {*RESERVED, *self.more_columns()}
        for name in self.classes:
            if name.lower() in taken:
                raise DataError(
                    f"{source}: no class can be named {name!r}, because tables of labels and predictions have a column "
                    f"of that name; rename the class"
                )
            if not name or name != name.strip():
                raise DataError(
                    f"{source}: no class can be named {name!r}: names are not blank and have no spaces around them"
                )
        for what, names in (("file", self.files), ("class", self.classes)):
            if (bad := next(filter(_NOT_UTF8.search, names), None)) is not None:
                raise DataError(f"{source}: the name of the {what} {bad!r} is not UTF-8; rename it")

    def fingerprint(self) -> str:
        """What tells this table from any other: its files, classes, splits and labels, in their order.

        What was asked for is not part of it, nor where the rows were read.
        """
        digest = hashlib.sha256()
        for names in (self.files, self.classes, self.split.tolist()):
            digest.update(f"{len(names)}\n".encode())
            digest.update("\0".join(names).encode("utf-8", "surrogatepass"))
        self.labels.update(digest)
        if self.group is not None:
            digest.update("\0".join(self.group).encode("utf-8", "surrogatepass"))
        return digest.hexdigest()


_COLUMNS = ("file", "class", "xmin", "ymin", "xmax", "ymax")


def object_areas(path: Path, table: LabelTable) -> NDArray[np.float64]:
    """The area (N, L) of the largest box of each class in each image, 0 where there is none.

    The file has the columns file, class, xmin, ymin, xmax and ymax, in one unit within an image. Its files are found in
    the table by their own names, without folders.
    """
    row_of = {PurePosixPath(file).name: row for row, file in enumerate(table.files)}
    column_of = {name: column for column, name in enumerate(table.classes)}
    areas = np.zeros((len(table), len(table.classes)))
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            for number, line in enumerate(csv.DictReader(lines), start=2):
                row = row_of.get(PurePosixPath(line.get("file") or "").name)
                column = column_of.get(line.get("class") or "")
                if row is not None and column is not None:
                    areas[row, column] = max(areas[row, column], _area(line, where=f"{path}, line {number}"))
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read ({error})") from None
    if not areas.any():
        columns = ", ".join(_COLUMNS)
        raise DataError(f"{path}: has no box of an image and a class of the dataset; its columns must be {columns}")
    return areas


def _area(line: dict[str, str], *, where: str) -> float:
    try:
        left, top, right, bottom = (float(line[side]) for side in _COLUMNS[2:])
    except (KeyError, TypeError, ValueError):
        raise DataError(f"{where}: a box is four numbers, {', '.join(_COLUMNS[2:])}") from None
    return max(right - left, 0.0) * max(bottom - top, 0.0)


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a dataset, and where."""

    kind: str  # a short name to count by, as "bad value" or "missing file"
    where: str  # as "labels.csv, line 7, column dog"
    what: str  # as "holds 2; a label is 1, 0 or blank"
    remark: bool = False  # worth saying, but nothing to mend, so that nobody stops at it

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


Report = Callable[[Problem], object]


_OUTCOMES = {  # of problems that a reader finds: what it does about them
    "bad value": "now unknown",
    "missing label": "now unknown",
    "contradiction": "now unknown",
    "contradiction of classes": "the implied label is left out",
    "duplicate": "the first one stays",
    "bad split": "the row is left out",
    "no file name": "the row is left out",
}


def raise_problem(problem: Problem) -> None:
    """Raise a `DataError` at the first problem, and pass over remarks. A list's `append` collects all instead."""
    if not problem.remark:
        raise DataError(str(problem))


def outcome(problem: Problem) -> Problem:
    """Return a problem that a reader found, with what it did about it; a remark stays as it is."""
    if problem.remark:
        return problem
    return replace(problem, what=f"{problem.what}; {_OUTCOMES.get(problem.kind, 'left out')}")


def collect(found: list[Problem], *, strict: bool) -> Report:
    """Return a report that collects problems with what the reader did about them; a strict one raises the first."""
    return raise_problem if strict else lambda problem: found.append(outcome(problem))


def announce(say: Callable[[str], object], *, strict: bool) -> Report:
    """Return a report that says which images are left out; a strict one raises the first problem."""
    return raise_problem if strict else lambda problem: say(f"left out: {problem}")
