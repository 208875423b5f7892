"""Cells of a label matrix worth a look: ranked, chosen, summarised by class, and stored as a file."""

import csv
import io
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import BaseModel

from onepair.data.tables.cell_values import guard, unguard
from onepair.errors import DataError, RunError
from onepair.files import read_record, write_atomically
from onepair.label_matrix import LabelMatrix
from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, Indices, Labels, validate_labels
from onepair.metrics import Floats
from onepair.probability.calibration import Correction
from onepair.probability.intervals import Interval

Kind = Literal["missing", "wrong"]
MOST = 100_000  # suggestions, unless more are asked for
MIN_MISSING, MIN_WRONG = 0.3, 0.05  # probability of a missing label and of a wrong one, unless another is asked for
FEWEST = 50  # suggestions of missing labels, if any may be missing, however probable
LIKELY = 0.5  # the probability from which on a suggestion is likely; the others are asked about last
COLUMNS = ("file", "label", "probability", "rank", "kind")

_KINDS = {UNKNOWN: "missing", POSITIVE: "wrong", NEGATIVE: "wrong"}  # by what is observed


@dataclass(frozen=True, eq=False)
class Suggestions:
    """Cells to look at, the most probable finding first; entry i of every array is the same cell."""

    row: Indices
    label: Indices  # column of the label matrix
    probability: Floats  # that the unknown label is positive, or that the observed one is wrong
    kind: NDArray[np.str_]  # "missing" or "wrong"

    def __len__(self) -> int:
        return len(self.row)

    def __getitem__(self, chosen: slice | NDArray[np.bool_] | Indices) -> "Suggestions":
        """Some of them."""
        return Suggestions(self.row[chosen], self.label[chosen], self.probability[chosen], self.kind[chosen])


def require_writable(path: Path) -> None:
    """Refuse, before any work is done, a file that suggestions cannot be written to."""
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise RunError(f"{path}: suggestions are written as .csv or .parquet; name it so")
    if not path.parent.is_dir():
        raise RunError(f"{path}: there is no folder {path.parent}")


def write_suggestions(path: Path, found: Suggestions, files: Sequence[str], classes: Sequence[str]) -> None:
    """Write file, label, probability, rank and kind of every suggestion, best first, as .csv or .parquet.

    Args:
        path: where to; the file is complete or not there.
        found: the suggestions.
        files: the name of every row.
        classes: the name of every label.
    """
    require_writable(path)
    columns = (
        [files[row] for row in found.row.tolist()],
        [classes[label] for label in found.label.tolist()],
        found.probability.round(6).tolist(),
        list(range(1, len(found) + 1)),
        found.kind.tolist(),
    )
    content = _as_csv(columns) if path.suffix.lower() == ".csv" else _as_parquet(columns)
    write_atomically(path, content)


def read_suggestions(
    path: Path,
    observed: Labels | LabelMatrix,
    files: Sequence[str],
    classes: Sequence[str],
    *,
    answered: Collection[str] = (),
) -> Suggestions:
    """Read the .csv file that `write_suggestions` wrote.

    Args:
        path: the file.
        observed: (N, L), the labels that the suggestions are about.
        files: the name of every row.
        classes: the name of every label.
        answered: files whose labels have become known since.
    """
    cells = list(_read_cells(path, observed, files, classes, answered))
    if not cells:
        raise RunError(f"{path}: suggests nothing")
    row, label, probability, kind = (np.array(values) for values in zip(*cells, strict=True))
    if len(np.unique(row * len(classes) + label)) < len(cells):
        raise RunError(f"{path}: suggests a label of an image twice; run onepair find again")
    return Suggestions(row, label, probability, kind)


def _read_cells(
    path: Path,
    observed: Labels | LabelMatrix,
    files: Sequence[str],
    classes: Sequence[str],
    answered: Collection[str],
) -> Iterator[tuple[int, int, float, str]]:
    """Row, column, probability and kind of each line."""
    row_of = {name: row for row, name in enumerate(files)}
    column_of = {name: column for column, name in enumerate(classes)}
    try:
        with path.open(encoding="utf-8", newline="") as text:
            lines = csv.reader(text)
            header = next(lines, [])
            if not set(COLUMNS) - {"rank"} <= set(header):
                raise RunError(f"{path}: its columns are not {', '.join(COLUMNS)}; run onepair find again")
            places = [header.index(name) for name in ("file", "label", "probability", "kind")]
            for line in lines:
                try:
                    file, label, probability, kind = (line[place] for place in places)
                    row, column = row_of[unguard(file)], column_of[unguard(label)]
                    fits = kind == _KINDS[int(observed[row, column])] or files[row] in answered
                    fits = fits and 0 <= float(probability) <= 1
                except (KeyError, ValueError, IndexError):
                    fits = False
                if not fits:
                    raise RunError(
                        f"{path}, line {lines.line_num}: does not fit the run's dataset; run onepair find again"
                    )
                yield row, column, float(probability), kind
    except (UnicodeDecodeError, csv.Error) as error:
        raise RunError(f"{path}: is not a CSV file in UTF-8 ({error}); run onepair find again") from None
    except OSError as error:
        raise RunError(f"{path}: cannot be read ({error.strerror})") from None


def _as_csv(columns: Sequence[Sequence[object]]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text)  # ends lines in CR LF, which is also what makes it quote names that hold either
    writer.writerow(COLUMNS)
    files, labels, *numbers = columns
    writer.writerows(zip(*([guard(str(each)) for each in names] for names in (files, labels)), *numbers, strict=True))
    return text.getvalue().encode()


def _as_parquet(columns: Sequence[Sequence[object]]) -> bytes:
    import pyarrow
    import pyarrow.parquet

    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.table(dict(zip(COLUMNS, columns, strict=True))), sink)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def rank(labels: ArrayLike, probabilities: ArrayLike) -> Suggestions:
    """Every cell as a suggestion, by the probability that there is something to find in it.

    An unknown label may be *missing*, with the probability that it is positive. An observed one may be *wrong*: a
    positive with the probability that it is negative, a negative with the probability that it is positive. Equal
    probabilities stay in the order of the matrix.

    Args:
        labels: (N, L) of 1 (positive), 0 (negative), -1 (unknown).
        probabilities: (N, L), of each cell to be truly positive, given all that is known, its own label included.

    Examples:
        >>> found = rank([[1, -1, 0]], [[0.7, 0.9, 0.05]])
        >>> list(zip(found.label.tolist(), found.kind.tolist(), found.probability.round(2).tolist()))
        [(1, 'missing', 0.9), (0, 'wrong', 0.3), (2, 'wrong', 0.05)]
    """
    known, positive = validate_labels(labels), np.asarray(probabilities, np.float64)
    if positive.shape != known.shape:
        raise ValueError(f"labels and probabilities must have one shape, got {known.shape} and {positive.shape}")
    outside = ~((positive >= 0) & (positive <= 1))
    if outside.any():
        at = tuple(np.argwhere(outside)[0].tolist())
        raise ValueError(f"probabilities: row {at[0]}, column {at[1]} is {positive[at]}, not from 0 to 1")
    finding = np.where(known == POSITIVE, 1 - positive, positive).ravel()
    order = np.argsort(-finding, kind="stable")
    row, label = np.divmod(order, known.shape[1])
    kind = np.where(known.ravel()[order] == UNKNOWN, "missing", "wrong")
    return Suggestions(row, label, finding[order], kind)


@dataclass(frozen=True)
class ClassSummary:
    """How complete the labels of one class are."""

    name: str
    observed: int  # positives
    negative: int
    unknown: int
    missing: float  # how many positives there are among the unknown, as estimated
    missing_low: float  # and the ends of its interval
    missing_high: float
    prior: float  # the share of images that it is in, known and missing ones together
    threshold: float  # probability at which as many are suggested as are missing
    suggested: int  # unknown cells that reach it

    @property
    def images(self) -> int:
        return self.observed + self.negative + self.unknown

    @property
    def interval(self) -> Interval:
        """How many are missing."""
        return Interval(self.missing, self.missing_low, self.missing_high)

    @property
    def prior_interval(self) -> tuple[float, float]:
        """The ends of the interval of the share of images that it is in."""
        low, high = ((self.observed + end) / max(self.images, 1) for end in (self.missing_low, self.missing_high))
        return low, high


class _Summary(BaseModel):
    """What is looked at of the file."""

    classes: list[ClassSummary]


def read_summary(run: Path) -> list[ClassSummary]:
    """What `onepair find` found in a run, class by class; nothing where it was not run, or by another version."""
    try:
        summary = read_record(run / "finding" / "summary.json", _Summary)
    except DataError:
        return []
    return [] if summary is None else summary.classes


def summarise(
    observed: LabelMatrix, found: Suggestions, missing: Interval, classes: Sequence[str]
) -> list[ClassSummary]:
    """Summarise every class.

    As many suggestions of a class reach its threshold as labels are missing, so that their precision and recall are
    about equal; 1 for a class that misses less than half a label.

    Args:
        observed: (N, L).
        found: suggestions for these rows, all or the likeliest of each class.
        missing: how many positives of each class are among the unknown cells.
        classes: their names.
    """
    cells = found[found.kind == "missing"]
    order = np.lexsort((-cells.probability, cells.label))
    counts = np.bincount(cells.label, minlength=len(classes))
    wanted = np.minimum(np.rint(missing.value).astype(int), counts)
    last = np.cumsum(counts) - counts + wanted - 1
    limits = np.ones(len(classes))
    limits[wanted > 0] = cells.probability[order][last[wanted > 0]]
    suggested = np.bincount(cells.label[cells.probability >= limits[cells.label]], minlength=len(classes))
    positive, negative, unknown = (observed.count(value) for value in (POSITIVE, NEGATIVE, UNKNOWN))
    prior = (positive + missing.value) / len(observed)
    columns = (each.tolist() for each in (positive, negative, unknown, *missing, prior, limits, suggested))
    return [ClassSummary(name, *values) for name, *values in zip(classes, *columns, strict=True)]


@dataclass(frozen=True, eq=False)
class Finding:
    """What was found in the images of a run that may miss labels."""

    suggestions: Suggestions  # rows count from the first of these images
    classes: list[ClassSummary]
    missing: Interval  # of all classes together
    rows: Indices  # of the table, of these images
    files: Sequence[str]  # their names
    folds: int
    basis: str  # a few words on what the probabilities rest on
    correction: Correction  # of probabilities, by what answers and images labelled in full told

    def right(self, first: int = 100) -> Interval:
        """The share that is right of so many of the first suggestions of missing labels, if there are any."""
        probabilities = self.suggestions.probability[self.suggestions.kind == "missing"][:first]
        return self.correction.share(probabilities) if len(probabilities) else Interval(0.0, 0.0, 1.0)

    @property
    def are_right(self) -> str:
        """How many of the first hundred are right, in words."""
        number = min(int((self.suggestions.kind == "missing").sum()), 100)
        right = self.right()
        value, low, high = (number * each for each in right)
        if not right.is_informative:
            return f"how many of the first {number:,} are right, answers will tell: give 30, or audit 30 images"
        return f"of the first {number:,}, about {value:.0f} are right ({low:.0f} to {high:.0f})"

    def write(self, path: Path) -> None:
        write_suggestions(path, self.suggestions, self.files, [each.name for each in self.classes])

    def to_dict(self) -> dict[str, Any]:
        value, low, high = map(float, self.missing)
        kinds = self.suggestions.kind
        return {
            "format": 1,
            "images": len(self.files),
            "folds": self.folds,
            "scores": f"by {self.folds} models, each trained without the images it scores",
            "probabilities": self.basis,
            "suggestions": {
                "missing": int((kinds == "missing").sum()),
                "wrong": int((kinds == "wrong").sum()),
            },
            "right": dict(zip(("share", "low", "high"), self.right(), strict=True)),
            "observed": sum(each.observed for each in self.classes),
            "missing": value,
            "missing_low": low,
            "missing_high": high,
            "classes": [asdict(each) for each in self.classes],
        }


def choose(found: Suggestions, total: Interval, top: int | None, min_probability: float | None) -> Suggestions:
    """The suggestions that are worth a look, of all in order: those that are probable enough, and not too many.

    Args:
        found: all of them.
        total: how many labels are missing.
        top: how many at most.
        min_probability: how probable at least; by default `MIN_MISSING` or `MIN_WRONG`, unless `top` says how many.
    """
    if min_probability is not None:
        found = found[found.probability >= min_probability]
    elif top is None:
        missing = found.kind == "missing"
        kept = found.probability >= np.where(missing, MIN_MISSING, MIN_WRONG)
        # Where labels hardly tell how many are missing, probabilities may be low, but their order holds.
        kept |= missing & (np.cumsum(missing) <= FEWEST) & (total.high >= 1)
        found = found[kept]
    return found[: MOST if top is None else top]
