"""Labels of many samples and many classes, kept by their known entries."""

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from onepair.errors import DataError, TooManyCellsError
from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, Indices, Labels, validate_labels

MOST_CELLS = 2**28  # of a matrix that is held as a whole; a larger one goes by blocks of rows
_MOST_DENSE = 2**32  # cells that anybody may ask for at once
_BLOCK = 2**24  # cells that are looked at at once


def too_many(rows: int, classes: int) -> bool:
    """Whether nothing should be held for every one of these cells."""
    return rows * classes > limit()


def limit() -> int:
    """How many cells there may be of a matrix that is held as a whole."""
    return MOST_CELLS


class LabelMatrix:
    """An (N, L) matrix of labels: of each row what most of it is, unknown or negative, and the entries that differ.

    Memory grows with what is known, not with N × L: 9 bytes a row and 5 an entry. A row that was looked at in full is
    mostly negative, and any other mostly unknown, so that both are short. Rows come out dense, as int8 arrays; to numpy
    it looks like an array, as long as it is small enough to be one. It never changes.

    Examples:
        >>> labels = LabelMatrix.of([[1, -1, -1], [0, 0, 1]])
        >>> labels.shape, labels.entries, labels[[1]]
        ((2, 3), 2, array([[0, 0, 1]], dtype=int8))
        >>> labels.count(POSITIVE), labels.take(np.array([1])).shape
        (array([1, 0, 1]), (1, 3))
    """

    ndim = 2
    dtype = np.dtype(np.int8)
    __hash__ = None  # type: ignore[assignment]  # as an array, it is compared cell by cell
    __slots__ = ("columns", "row_default", "shape", "starts", "values")

    def __init__(
        self, shape: tuple[int, int], starts: Indices, columns: Any, values: Labels, row_default: Labels
    ) -> None:
        """For the methods below: of each row what most of it is, and entries in order that differ from it."""
        self.shape = shape
        self.starts = starts  # (N+1,), where the entries of each row begin
        self.columns = columns  # int32, ascending within a row
        self.values = values
        self.row_default = row_default  # (N,)

    # Making one

    @classmethod
    def of(cls, labels: "ArrayLike | LabelMatrix") -> "LabelMatrix":
        """From a matrix of 1, 0 and -1."""
        if isinstance(labels, LabelMatrix):
            return labels
        matrix = validate_labels(labels)
        parts = [_entries_of(matrix[rows]) for rows in _row_blocks(*matrix.shape)]
        row_default, counts, columns, values = (np.concatenate(each) for each in zip(*parts, strict=True))
        return cls((matrix.shape[0], matrix.shape[1]), _starts(counts), columns, values, row_default)

    @classmethod
    def from_entries(
        cls,
        shape: tuple[int, int],
        rows: ArrayLike,
        columns: ArrayLike,
        values: ArrayLike,
        *,
        complete: ArrayLike = False,
    ) -> "LabelMatrix":
        """From single labels, of which the last counts if there are several for a cell.

        Args:
            shape: (N, L).
            rows, columns: (n,), where they are.
            values: (n,) of 1, 0 or -1, or one for all.
            complete: (N,), or one for all: whether the cells of a row without an entry are negative, not unknown.

        Examples:
            >>> LabelMatrix.from_entries((2, 3), [0, 1], [2, 0], 1, complete=[False, True]).tolist()
            [[-1, -1, 1], [1, 0, 0]]
        """
        count, width = shape
        if count < 1 or width < 1:
            raise DataError(f"labels: expected a non-empty matrix (samples, classes), got shape {shape}")
        row, column = _whole(rows, "row"), _whole(columns, "column")
        if row.shape != column.shape or row.ndim != 1:
            raise ValueError(f"entries need one row and one column each, got {row.shape} and {column.shape}")
        for name, index, end in (("row", row, count), ("column", column, width)):
            if len(index) and not 0 <= index.min() <= index.max() < end:
                raise ValueError(f"an entry lies outside of the {end} {name}s")
        value = np.broadcast_to(_labels(values), row.shape)
        place = row * width + column
        if (np.diff(place) <= 0).any():
            order = np.argsort(place, kind="stable")
            last = np.append(np.diff(place[order]) > 0, True)
            row, column, value = (each[order[last]] for each in (row, column, value))
        row_default = np.where(np.broadcast_to(complete, (count,)), NEGATIVE, UNKNOWN).astype(np.int8)
        kept = value != row_default[row]
        row, column, value = row[kept], column[kept].astype(np.int32), np.ascontiguousarray(value[kept])
        raw = cls(shape, _starts(np.bincount(row, minlength=count)), column, value, row_default)
        return raw._with_usual_rows()

    def _with_usual_rows(self) -> "LabelMatrix":
        """The same labels with every row kept in the one way that `of` would: equal matrices have equal parts."""
        negative, unknown = (self.row_count(value) for value in (NEGATIVE, UNKNOWN))
        other = np.flatnonzero(np.where(negative > unknown, NEGATIVE, UNKNOWN) != self.row_default)
        return self if len(other) == 0 else self.with_rows(other, LabelMatrix.of(self[other]))

    # Looking at it

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def size(self) -> int:
        """How many cells there are."""
        return self.shape[0] * self.shape[1]

    @property
    def is_large(self) -> bool:
        """Whether there are too many cells for anything to be held for each of them."""
        return too_many(*self.shape)

    @property
    def entries(self) -> int:
        """How many cells are kept."""
        return len(self.columns)

    @property
    def nbytes(self) -> int:
        return sum(each.nbytes for each in (self.starts, self.columns, self.values, self.row_default))

    def __getitem__(self, key: Any) -> Any:
        """Dense labels, as of an array: `[rows]`, `[row]`, `[rows, columns]`, `[:, columns]`."""
        if isinstance(key, tuple):
            rows, columns = key
            if isinstance(rows, int | np.integer) and isinstance(columns, int | np.integer):
                return self._cell(int(rows), int(columns))
            if isinstance(rows, slice) and rows == slice(None):
                return self._columns(columns)
            if isinstance(rows, slice) or isinstance(columns, slice):
                return self[rows][..., columns]
            return self._cells(rows, columns)
        if isinstance(key, int | np.integer):
            return self._dense(np.array([range(len(self))[key]]))[0]
        return self._dense(self._row_numbers(key))

    def __iter__(self) -> Iterator[Labels]:
        for _, block in self.blocks():
            yield from block

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        dense = self.dense()
        return dense if dtype is None else dense.astype(dtype, copy=False)

    def __eq__(self, other: object) -> Any:
        """Cell by cell, as of an array; `same_as` says whether all are equal."""
        return self.dense() == (other.dense() if isinstance(other, LabelMatrix) else other)

    def __ne__(self, other: object) -> Any:
        return self.dense() != (other.dense() if isinstance(other, LabelMatrix) else other)

    def dense(self) -> Labels:
        """All of it as an array, if that is not too large."""
        if self.size > _MOST_DENSE:
            rows, classes = self.shape
            raise TooManyCellsError(
                f"this needs the labels of {rows:,} images and {classes:,} classes in one piece, which are "
                f"{self.size / 1e9:,.0f} GB; take fewer images or fewer classes"
            )
        return self._dense(np.arange(len(self)))

    def tolist(self) -> list[list[int]]:
        rows: list[list[int]] = self.dense().tolist()
        return rows

    def blocks(self, cells: int | None = None) -> Iterator[tuple[slice, Labels]]:
        """Dense blocks of rows of about so many cells, in order, each with its place."""
        for rows in _row_blocks(*self.shape, cells):
            yield rows, self[rows]

    def take(self, rows: Any) -> "LabelMatrix":
        """Some rows, kept as these are."""
        chosen = self._row_numbers(rows)
        counts, entries = self._entries(chosen)
        return LabelMatrix(
            (len(chosen), self.shape[1]),
            _starts(counts),
            self.columns[entries],
            self.values[entries],
            self.row_default[chosen],
        )

    def count(self, value: int) -> Indices:
        """How many cells of each class, (L,), hold a value."""
        default = np.full(self.shape[1], (self.row_default == value).sum(), np.intp)
        given = self.values == value
        counts: Indices = default + np.bincount(self.columns[given], minlength=self.shape[1])
        if default[0]:
            rows = np.repeat(self.row_default == value, np.diff(self.starts))
            counts -= np.bincount(self.columns[rows], minlength=self.shape[1])
        return counts

    def row_count(self, value: int) -> Indices:
        """How many cells of each row, (N,), hold a value."""
        before = np.append(0, np.cumsum(self.values == value))
        given = before[self.starts[1:]] - before[self.starts[:-1]]
        counts: Indices = given + np.where(self.row_default == value, self.shape[1] - np.diff(self.starts), 0)
        return counts

    def has(self, value: int) -> bool:
        """Whether any cell holds a value."""
        return bool(self.row_count(value).any())

    def positives(self) -> tuple[Indices, Indices]:
        """The rows and the columns of all positive cells, in the order of the matrix."""
        found = np.flatnonzero(self.values == POSITIVE)
        return np.searchsorted(self.starts, found, side="right") - 1, self.columns[found].astype(np.intp)

    def same_as(self, other: "LabelMatrix") -> bool:
        """Whether both hold the same labels."""
        return self.shape == other.shape and all(
            np.array_equal(getattr(self, part), getattr(other, part))
            for part in ("starts", "columns", "values", "row_default")
        )

    def update(self, digest: "hashlib._Hash") -> None:
        """Add the labels to a digest: the bytes of all cells, or where these are too many, of what is kept."""
        if self.size <= _MOST_DENSE // 4:
            for _, block in self.blocks():
                digest.update(block.tobytes())
            return
        for part in (self.starts, self.columns, self.values, self.row_default):
            digest.update(np.ascontiguousarray(part).data)

    # Others like it

    def with_entries(self, rows: ArrayLike, columns: ArrayLike, values: ArrayLike) -> "LabelMatrix":
        """The same labels but for some cells."""
        row, column = _whole(rows, "row"), _whole(columns, "column")
        value = np.broadcast_to(_labels(values), row.shape)
        own = np.repeat(np.arange(len(self)), np.diff(self.starts))
        return LabelMatrix.from_entries(
            self.shape,
            np.concatenate([own, row]),
            np.concatenate([self.columns, column]),
            np.concatenate([self.values, value]),
            complete=self.row_default == NEGATIVE,
        )

    def with_rows(self, rows: Indices, labels: "LabelMatrix") -> "LabelMatrix":
        """The same labels but for some rows, given in the same order."""
        place = np.arange(len(self))
        place[rows] = len(self) + np.arange(len(labels))
        return LabelMatrix.stacked([self, labels]).take(place)

    def with_classes(self, more: int) -> "LabelMatrix":
        """The same labels, and so many classes more at the end of which nothing is known."""
        count, width = self.shape
        own = np.repeat(np.arange(count), np.diff(self.starts))
        full = np.flatnonzero(self.row_default == NEGATIVE)
        return LabelMatrix.from_entries(
            (count, width + more),
            np.concatenate([own, np.repeat(full, more)]),
            np.concatenate([self.columns, np.tile(np.arange(width, width + more), len(full))]),
            np.concatenate([self.values, np.full(len(full) * more, UNKNOWN, np.int8)]),
            complete=self.row_default == NEGATIVE,
        )

    def of_classes(self, columns: Any) -> "LabelMatrix":
        """Some classes, in this order, each of them once."""
        chosen = np.asarray(columns, np.intp)
        if len(np.unique(chosen)) < len(chosen):
            raise ValueError("a class can be chosen once only")
        place = np.full(self.shape[1], -1)
        place[chosen] = np.arange(len(chosen))
        kept = place[self.columns] >= 0
        return LabelMatrix.from_entries(
            (len(self), len(chosen)),
            np.repeat(np.arange(len(self)), np.diff(self.starts))[kept],
            place[self.columns[kept]],
            self.values[kept],
            complete=self.row_default == NEGATIVE,
        )

    def with_unknown_negative(self, rows: Indices) -> "LabelMatrix":
        """The same labels, but what is unknown in some rows is negative."""
        chosen = self.take(rows)
        own, column = chosen.positives()
        return self.with_rows(
            rows, LabelMatrix.from_entries(chosen.shape, own, column, np.int8(POSITIVE), complete=True)
        )

    @classmethod
    def stacked(cls, parts: "list[LabelMatrix]") -> "LabelMatrix":
        """One under the other."""
        counts, columns, values, row_default = (
            np.concatenate(each)
            for each in zip(*((np.diff(p.starts), p.columns, p.values, p.row_default) for p in parts), strict=True)
        )
        return cls((len(row_default), parts[0].shape[1]), _starts(counts), columns, values, row_default)

    # Inside

    def _row_numbers(self, rows: Any) -> Indices:
        """Rows as an array of them takes, from 0 on; of a few of very many rows, without looking at the others."""
        if isinstance(rows, slice):
            return np.arange(*rows.indices(len(self)))
        given = np.atleast_1d(np.asarray(rows))
        if given.dtype.kind not in "iu" or given.ndim != 1 or (len(given) and given.min() < 0):
            return np.atleast_1d(np.arange(len(self))[given if given.size else given.astype(np.intp)])
        if len(given) and given.max() >= len(self):
            raise IndexError(f"row {given.max()} is not one of {len(self)}")
        return given.astype(np.intp, copy=False)

    def _entries(self, rows: Indices) -> tuple[Indices, Indices]:
        """How many entries each row has, and where all of them are."""
        begin = self.starts[rows]
        counts = self.starts[rows + 1] - begin
        offset = np.repeat(begin - np.append(0, np.cumsum(counts)[:-1]), counts) if len(rows) else counts
        return counts, np.arange(len(offset)) + offset

    def _dense(self, rows: Indices) -> Labels:
        counts, entries = self._entries(rows)
        dense = np.empty((len(rows), self.shape[1]), np.int8)
        dense[:] = self.row_default[rows, None]
        dense[np.repeat(np.arange(len(rows)), counts), self.columns[entries]] = self.values[entries]
        return dense

    def _cells(self, rows: Any, columns: Any) -> Any:
        """Single cells, of indices that go together as those of an array do."""
        row, column = np.broadcast_arrays(np.arange(len(self))[rows], np.arange(self.shape[1])[columns])
        wanted, number = np.unique(row, return_inverse=True)
        counts, entries = self._entries(wanted)
        place = np.repeat(np.arange(len(wanted)) * self.shape[1], counts) + self.columns[entries]
        asked = number.reshape(row.shape) * self.shape[1] + column
        at = np.searchsorted(place, asked)
        found = np.append(place, -1)[at] == asked
        return np.where(found, np.append(self.values[entries], np.int8(0))[at], self.row_default[row])

    def _cell(self, row: int, column: int) -> np.int8:
        row, column = range(len(self))[row], range(self.shape[1])[column]
        entries = slice(self.starts[row], self.starts[row + 1])
        own = self.columns[entries]
        at = int(np.searchsorted(own, column))
        kept = at < len(own) and own[at] == column
        return np.int8(self.values[entries][at] if kept else self.row_default[row])

    def _columns(self, columns: Any) -> Labels:
        """All rows of some columns, or (N,) of one."""
        chosen = np.arange(self.shape[1])[columns]
        place = np.full(self.shape[1], -1)
        several = np.unique(np.atleast_1d(chosen))
        place[several] = np.arange(len(several))
        dense = np.empty((len(self), len(several)), np.int8)
        dense[:] = self.row_default[:, None]
        kept = np.flatnonzero(place[self.columns] >= 0)
        row = np.searchsorted(self.starts, kept, side="right") - 1
        dense[row, place[self.columns[kept]]] = self.values[kept]
        return dense[:, place[chosen]]


def _whole(numbers: ArrayLike, name: str) -> Indices:
    """Whole numbers, or a sentence on others."""
    given = np.asarray(numbers)
    whole = given.astype(np.int64)
    if given.size and not (whole == given).all():
        raise ValueError(f"the {name} of an entry must be a whole number")
    return whole


def _labels(values: ArrayLike) -> Labels:
    given = np.asarray(values)
    if not np.isin(given, (POSITIVE, NEGATIVE, UNKNOWN)).all():
        raise DataError("a label is 1 (positive), 0 (negative) or -1 (unknown)")
    return given.astype(np.int8)


def _starts(counts: Indices) -> Indices:
    return np.append(0, np.cumsum(counts)).astype(np.int64)


def _row_blocks(rows: int, width: int, cells: int | None = None) -> Iterator[slice]:
    size = max(1, (cells or _BLOCK) // width)
    return (slice(start, min(start + size, rows)) for start in range(0, rows, size))


def _entries_of(matrix: Labels) -> tuple[Labels, Indices, NDArray[np.int32], Labels]:
    """Of dense rows: what most of each is, and how many entries differ, in which columns, and what they are."""
    row_default = np.where((matrix == NEGATIVE).sum(1) > (matrix == UNKNOWN).sum(1), NEGATIVE, UNKNOWN).astype(np.int8)
    differs = matrix != row_default[:, None]
    row, column = np.nonzero(differs)
    return row_default, np.bincount(row, minlength=len(matrix)), column.astype(np.int32), matrix[row, column]
