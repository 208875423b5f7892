"""`LabelTable`, the one form that every dataset is read into, object boxes, and what can be wrong with a dataset."""

import csv
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from onepair.data.images.tar import joined
from onepair.errors import DataError
from onepair.label_matrix import LabelMatrix
from onepair.labels import Indices
from onepair.words import counted, listed

SPLITS = ("train", "validation", "test")
RESERVED = ("file", "split", "labels", "complete", "asked")  # names of columns, which no class can have
_NOT_UTF8 = re.compile("[\ud800-\udfff]")  # what Python makes of bytes that are not UTF-8, and JSON may hold

VECTORS, TFIDF = "vectors", "tfidf"  # in place of a backbone: vectors as they are given, or made of texts
NOT_FINITE = "holds NaN or an infinite value; compute it anew, or leave the row out"

_AT_ONCE = 2**26  # bytes that are looked at together, and of the sample that tells vectors from others


class Numbered(NamedTuple):
    """Where the rows of a table stood in its file, before any was left out."""

    rows: Indices  # (N,) counted from 0; -1 where several rows were about one
    total: int | None  # rows of the file; None where the table says itself which vector each row has


@dataclass(frozen=True, eq=False)
class Vectors:
    """A vector for every row, read from where it lies when it is asked for."""

    source: str
    parts: tuple[NDArray[Any], ...]  # each (n, D), of any kind of number
    ids: tuple[str, ...] | None = None  # of all vectors, where the file names them
    index: Indices | None = None  # (N,) which of all vectors each row has; None: in their order

    def __len__(self) -> int:
        return self.stored if self.index is None else len(self.index)

    @property
    def stored(self) -> int:
        """How many vectors there are, used or not."""
        return sum(map(len, self.parts))

    @property
    def width(self) -> int:
        return int(self.parts[0].shape[1])

    def take(self, rows: Indices) -> NDArray[Any]:
        """The vectors (n, D) of rows, in half precision if that is how they lie there, else in float32."""
        indices = rows if self.index is None else self.index[rows]
        if len(self.parts) == 1:
            return _as_floats(self.parts[0][indices])
        ends = np.cumsum([len(part) for part in self.parts])
        part_of = np.searchsorted(ends, indices, side="right")
        half = all(part.dtype == np.float16 for part in self.parts)
        found = np.empty((len(indices), self.width), np.float16 if half else np.float32)
        for each in np.unique(part_of).tolist():
            chosen = part_of == each
            found[chosen] = _as_floats(self.parts[each][indices[chosen] - (ends[each] - len(self.parts[each]))])
        return found

    def blocks(self) -> Iterator[tuple[int, NDArray[Any]]]:
        """All rows, some at a time, each with the number of its first."""
        at_once = max(1, _AT_ONCE // (4 * self.width))
        for start in range(0, len(self), at_once):
            yield start, self.take(np.arange(start, min(start + at_once, len(self))))

    def first_not_finite(self) -> int | None:
        """The first row whose vector holds NaN or an infinite value."""
        for start, block in self.blocks():
            finite = np.isfinite(block).all(1)
            if not finite.all():
                return start + int(np.argmin(finite))
        return None

    def require_finite(self, names: Sequence[str]) -> None:
        """Refuse vectors that nothing can be learned from; `names` has that of every row."""
        bad = self.first_not_finite()
        if bad is not None:
            raise DataError(f"{self.source}: {self.words_on(bad)} ({names[bad]}) {NOT_FINITE}")

    def words_on(self, row: int) -> str:
        """Where the vector of a row is, as one would index the array."""
        return f"row {row if self.index is None else int(self.index[row])}"

    def facts(self) -> dict[str, Any]:
        """What tells these vectors from others: their source, their shape, and a digest of all, or of rows spread over
        them where they are large."""
        most = max(1, _AT_ONCE // (4 * self.width))
        rows = np.unique(np.linspace(0, len(self) - 1, min(most, len(self))).round().astype(np.int64))
        digest = hashlib.blake2b(self.take(rows).tobytes(), digest_size=16)
        return {"source": self.source, "shape": [len(self), self.width], "digest": digest.hexdigest()}

    def of_rows(self, rows: Indices) -> "Vectors":
        """Those of some rows."""
        return replace(self, index=np.asarray(rows) if self.index is None else self.index[rows])

    def of_table(self, files: Sequence[str], numbered: Numbered | None, table: str) -> "Vectors":
        """Those of a table: by the names of its rows where the file has names, else row by row.

        Args:
            files: the names of the table's rows.
            numbered: where they stood in the table's file; None where they are all there are, in order.
            table: its path, for sentences.
        """
        if self.ids is not None:
            return replace(self, index=self._joined(self.ids, files, table))
        rows, total = numbered or Numbered(np.arange(len(files)), len(files))
        if total is None:
            if len(rows) and rows.max() >= self.stored:
                raise DataError(
                    f"{table}: names vector {rows.max()}, and {self.source} holds {self.stored:,} from 0 on"
                )
        elif (rows < 0).any():
            raise DataError(
                f"{table}: has several rows for {files[int(np.argmin(rows))]}, so that nothing says which vector is "
                "its own; give vectors with names: a .npz with an array ids, or Parquet with a column file"
            )
        elif total != self.stored:
            raise DataError(
                f"{self.source}: holds {counted(self.stored, 'vector')}, and {table} has {counted(total, 'row')}; "
                "there must be one for each, in the same order"
            )
        in_order = len(rows) == self.stored and (rows == np.arange(len(rows))).all()
        return replace(self, index=None if in_order else rows)

    def _joined(self, ids: Sequence[str], files: Sequence[str], table: str) -> Indices:
        index_of = {name: index for index, name in enumerate(ids)}
        if len(index_of) < len(ids):
            seen: set[str] = set()
            twice = next(name for name in ids if name in seen or seen.add(name))  # type: ignore[func-returns-value]
            raise DataError(f"{self.source}: names {twice} twice; every vector needs a name of its own")
        missing = list(dict.fromkeys(name for name in files if name not in index_of))
        if missing:
            raise DataError(
                f"{self.source}: has no vector for {counted(len(missing), 'row')} of {table}: {listed(missing)}; its "
                f"own names are as {ids[0] if ids else 'none'}"
            )
        return np.array([index_of[name] for name in files], np.int64)


def _as_floats(values: NDArray[Any]) -> NDArray[Any]:
    with np.errstate(over="ignore"):  # what is too large for float32 becomes infinite, which is refused
        return values if values.dtype == np.float16 else np.asarray(values, np.float32)


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
        if self.vectors is not None and self.vectors.ids is None and self.vectors.index is not None:
            more["vector"] = self.vectors.index.tolist()
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
