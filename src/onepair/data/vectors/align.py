"""Vectors that were computed elsewhere, one for each row of a table."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from onepair.errors import DataError
from onepair.labels import Indices
from onepair.words import counted, listed

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
    place: Indices | None = None  # (N,) which of all vectors each row has; None: in their order

    def __len__(self) -> int:
        return self.stored if self.place is None else len(self.place)

    @property
    def stored(self) -> int:
        """How many vectors there are, used or not."""
        return sum(map(len, self.parts))

    @property
    def width(self) -> int:
        return int(self.parts[0].shape[1])

    def take(self, rows: Indices) -> NDArray[Any]:
        """The vectors (n, D) of rows, in half precision if that is how they lie there, else in float32."""
        places = rows if self.place is None else self.place[rows]
        if len(self.parts) == 1:
            return _as_floats(self.parts[0][places])
        ends = np.cumsum([len(part) for part in self.parts])
        part_of = np.searchsorted(ends, places, side="right")
        half = all(part.dtype == np.float16 for part in self.parts)
        found = np.empty((len(places), self.width), np.float16 if half else np.float32)
        for each in np.unique(part_of).tolist():
            chosen = part_of == each
            found[chosen] = _as_floats(self.parts[each][places[chosen] - (ends[each] - len(self.parts[each]))])
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
        return f"row {row if self.place is None else int(self.place[row])}"

    def facts(self) -> dict[str, Any]:
        """What tells these vectors from others: their source, their shape, and a digest of all, or of rows spread over
        them where they are large."""
        most = max(1, _AT_ONCE // (4 * self.width))
        rows = np.unique(np.linspace(0, len(self) - 1, min(most, len(self))).round().astype(np.int64))
        digest = hashlib.blake2b(self.take(rows).tobytes(), digest_size=16)
        return {"source": self.source, "shape": [len(self), self.width], "digest": digest.hexdigest()}

    def of_rows(self, rows: Indices) -> "Vectors":
        """Those of some rows."""
        return replace(self, place=np.asarray(rows) if self.place is None else self.place[rows])

    def of_table(self, files: Sequence[str], numbered: Numbered | None, table: str) -> "Vectors":
        """Those of a table: by the names of its rows where the file has names, else row by row.

        Args:
            files: the names of the table's rows.
            numbered: where they stood in the table's file; None where they are all there are, in order.
            table: its path, for sentences.
        """
        if self.ids is not None:
            return replace(self, place=self._joined(self.ids, files, table))
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
        return replace(self, place=None if in_order else rows)

    def _joined(self, ids: Sequence[str], files: Sequence[str], table: str) -> Indices:
        place_of = {name: place for place, name in enumerate(ids)}
        if len(place_of) < len(ids):
            seen: set[str] = set()
            twice = next(name for name in ids if name in seen or seen.add(name))  # type: ignore[func-returns-value]
            raise DataError(f"{self.source}: names {twice} twice; every vector needs a name of its own")
        missing = list(dict.fromkeys(name for name in files if name not in place_of))
        if missing:
            raise DataError(
                f"{self.source}: has no vector for {counted(len(missing), 'row')} of {table}: {listed(missing)}; its "
                f"own names are as {ids[0] if ids else 'none'}"
            )
        return np.array([place_of[name] for name in files], np.int64)


def _as_floats(values: NDArray[Any]) -> NDArray[Any]:
    with np.errstate(over="ignore"):  # what is too large for float32 becomes infinite, which is refused
        return values if values.dtype == np.float16 else np.asarray(values, np.float32)
