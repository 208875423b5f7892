"""Large tables of files and lists of names, read column by column: where nothing in them needs a second look."""

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from onepair.data.label_table import LabelTable
from onepair.data.tables.cell_values import BLANK, is_vector, split_of
from onepair.data.tables.find_images import locate
from onepair.data.tables.sheet import file_column
from onepair.data.text_files import check_rows, read_bytes
from onepair.label_matrix import LabelMatrix
from onepair.labels import POSITIVE

LARGE = 4_000_000  # bytes of a file that this pays for
_HEADER = re.compile(rb"[^\r\n]*")
# In a cell of names: what may be more than names between semicolons, spaces around a name, and a guarded formula.
_NEEDS_A_LOOK = r"""^\s|\s$|["\[\]{}|,\\\n\r]|^'|\s;|;\s"""


def is_large(path: Path) -> bool:
    """Whether a file is one that this pays for."""
    try:
        return path.suffix.lower() in (".csv", ".parquet") and path.is_file() and path.stat().st_size >= LARGE
    except OSError:  # which whoever reads it is told, too
        return False


class Places(Sequence[str]):
    """Where each row stands, as "labels.csv, line 7"; made up when asked for, as there may be millions."""

    def __init__(self, name: str, unit: Literal["line", "row"], rows: int) -> None:
        self.name, self.unit, self.rows = name, unit, rows

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, row: Any) -> Any:
        if isinstance(row, slice):
            return tuple(self[each] for each in range(self.rows)[row])
        return f"{self.name}, {self.unit} {range(self.rows)[row] + (2 if self.unit == 'line' else 1)}"


def read_plain_lists(
    path: Path, folders: Sequence[Path], *, unlisted: str, with_vectors: bool = False
) -> LabelTable | None:
    """The table that `onepair.data.tables.read_table.read` would give, or None if anything in it is not plain.

    Plain are columns file, labels and perhaps split and no other, one row for each file, a split in every row or in
    none, and names separated by semicolons, in Parquet also lists.
    """
    try:
        import pyarrow
        import pyarrow.compute
    except ImportError:
        return None
    content = read_bytes(path)
    unit: Literal["line", "row"] = "row" if path.suffix.lower() == ".parquet" else "line"
    try:
        columns = _parquet(path, content) if unit == "row" else _csv(path, content)
        if columns is None:
            return None
        files, lists, splits = (columns.get(name) for name in ("file", "labels", "split"))
        if files is None or lists is None or not _are_plain_files(files):
            return None
        named = _names(lists)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, pyarrow.ArrowNotImplementedError):
        return None
    split = None if splits is None else _splits(splits)
    if named is None or (splits is not None and split is None):
        return None
    written = files.to_pylist()
    if not with_vectors and locate(written, folders) != (folders[0], written):  # which is worth a remark
        return None
    counts, names, codes = named
    order = np.argsort(np.array(names, object))
    place = np.empty(len(names), np.int64)
    place[order] = np.arange(len(names))
    shape, rows = (len(written), len(names)), np.repeat(np.arange(len(written)), counts)
    return LabelTable(
        files=tuple(written),
        classes=tuple(names[i] for i in order.tolist()),
        labels=LabelMatrix.from_entries(shape, rows, place[codes], POSITIVE, complete=unlisted == "negative"),
        split=np.full(len(written), "train") if split is None else split,
        root=folders[0],
        places=Places(path.name, unit, len(written)),
        ids=with_vectors,
    )


def _csv(path: Path, content: bytes) -> dict[str, Any] | None:
    """The columns of a file in UTF-8 with commas, a line for each row, and no quotes."""
    from pyarrow import csv, string

    lines = content.count(b"\n") + (not content.endswith(b"\n"))
    check_rows(path, lines, "lines")
    first = _HEADER.match(content)
    header = first[0].decode("utf-8", "replace").removeprefix("\ufeff").split(",") if first else []
    if b'"' in content or content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return None
    title = _titles(header)
    if title is None:
        return None
    table = csv.read_csv(
        io.BytesIO(content),
        read_options=csv.ReadOptions(skip_rows=1, column_names=title),
        parse_options=csv.ParseOptions(quote_char=False, ignore_empty_lines=False),
        convert_options=csv.ConvertOptions(column_types=dict.fromkeys(title, string()), strings_can_be_null=False),
    )
    return _as_columns(table) if table.num_rows + 1 == lines else None


def _parquet(path: Path, content: bytes) -> dict[str, Any] | None:
    from pyarrow import parquet

    file = parquet.ParquetFile(io.BytesIO(content))
    check_rows(path, file.metadata.num_rows)
    table = file.read()
    title = _titles(table.column_names)
    return None if title is None else _as_columns(table.rename_columns(title))


def _titles(header: Sequence[str]) -> list[str] | None:
    """The names of the columns as this module calls them, if there are none but these."""
    names = [name.strip().lower() for name in header]
    file = file_column(header)
    if file is not None:
        names[file] = "file"
    plain = sorted(names) in (["file", "labels"], ["file", "labels", "split"])
    return names if plain else None


def _as_columns(table: Any) -> dict[str, Any] | None:
    return {name: table[name].combine_chunks() for name in table.column_names} if table.num_rows else None


def _matches(texts: Any, pattern: str) -> bool:
    from pyarrow import compute

    return bool(compute.any(compute.match_substring_regex(texts, pattern)).as_py())


def _is_text(column: Any) -> bool:
    from pyarrow import types

    return bool(types.is_string(column.type) or types.is_large_string(column.type))


def _are_plain_files(files: Any) -> bool:
    """Whether every row names another file, as files are named here."""
    from pyarrow import compute

    if not _is_text(files) or files.null_count or compute.count_distinct(files).as_py() < len(files):
        return False
    return not _matches(files, r"^\s|\s$|^$|\\|^'")


def _splits(splits: Any) -> NDArray[np.str_] | None:
    if not _is_text(splits) or splits.null_count:
        return None
    encoded = splits.dictionary_encode()
    meant = [split_of(name) for name in encoded.dictionary.to_pylist()]
    if None in meant or len(meant) == 0:
        return None
    found: NDArray[np.str_] = np.array(meant)[encoded.indices.to_numpy(zero_copy_only=False)]
    return found


def _names(lists: Any) -> tuple[NDArray[np.intp], list[str], NDArray[np.intp]] | None:
    """How many names each row lists, all names, and which of them they are, one row after another."""
    from pyarrow import compute, types

    if _is_text(lists):
        lists = compute.fill_null(lists, "")
        if _matches(lists, _NEEDS_A_LOOK) or split_of(lists[0].as_py()) is not None:
            return None
        if _matches(lists, r"\s") and not _matches(lists, ";"):  # it may be what separates names
            return None
        blank = {text for text in compute.unique(lists).to_pylist() if text.lower() in BLANK}
        lists = compute.split_pattern(compute.if_else(compute.is_in(lists, _texts(blank)), "", lists), ";")
        may_be_blank = True
    elif types.is_list(lists.type) or types.is_large_list(lists.type):
        may_be_blank = False
    else:
        return None
    if not _is_text(lists.flatten()):
        return None
    encoded = lists.flatten().dictionary_encode()
    names, codes = encoded.dictionary.to_pylist(), encoded.indices
    strange = any(name != name.strip() or (not name and not may_be_blank) for name in names)
    if codes.null_count or strange or not any(names) or is_vector(names * 3):
        return None
    counts = compute.fill_null(compute.list_value_length(lists), 0).to_numpy(zero_copy_only=False).astype(np.intp)
    code = codes.to_numpy(zero_copy_only=False).astype(np.intp)
    if "" in names:  # of a blank cell, or between two semicolons
        nothing = names.index("")
        kept = code != nothing
        rows = np.repeat(np.arange(len(counts)), counts)[kept]
        counts, code = np.bincount(rows, minlength=len(counts)), code[kept]
        code, names = code - (code > nothing), [name for name in names if name]
    return counts, names, code


def _texts(values: set[str]) -> Any:
    import pyarrow

    return pyarrow.array(sorted(values), pyarrow.string())
