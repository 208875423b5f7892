"""Label tables as CSV or Parquet files: one row per image, with a column per class or a list of labels."""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from onepair.data.labeltable import SPLITS, LabelTable
from onepair.data.problems import DataError, Problem, Report, refuse
from onepair.data.sources import exists, read_bytes, read_text
from onepair.files import write_atomically
from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, Labels

Unlisted = Literal["unknown", "negative"]

_RESERVED = ("file", "split", "labels")  # column names with a meaning of their own
_OTHER_FILE_NAMES = ("image", "filename", "path")  # taken for `file` in the first column
_SPLIT_OF = {**{split: split for split in SPLITS}, "val": "validation", "valid": "validation"}
_LABEL_OF: dict[object, int] = {
    **dict.fromkeys((1, "1", "1.0"), POSITIVE),  # 1 also stands for 1.0 and True
    **dict.fromkeys((0, "0", "0.0"), NEGATIVE),
    **dict.fromkeys((None, ""), UNKNOWN),
}
_BAD = 2


class _Sheet(NamedTuple):
    """A file as columns of cells: texts from CSV; numbers, texts, lists or None from Parquet."""

    source: Path
    header: list[str]
    columns: list[Sequence[Any]]
    places: Sequence[str]  # of each row, as "line 7"

    def where(self, row: int, column: int) -> str:
        return f"{self.source.name}, {self.places[row]}, column {self.header[column]}"

    def find(self, name: str) -> int | None:
        return next((i for i, title in enumerate(self.header) if title.lower() == name), None)


def detect(path: Path) -> bool:
    """Whether `path` is a file named .csv, .tsv or .parquet."""
    return path.suffix.lower() in (".csv", ".tsv", ".parquet") and exists(path)


def read(
    path: Path, *, unlisted: Unlisted = "unknown", images: Path | None = None, report: Report = refuse
) -> LabelTable:
    """Read a table in one of two shapes, rows in the order of the file.

    Wide: a column `file`, perhaps a column `split`, and a column per class with 1, 0 or blank (unknown).
    Lists: columns `file`, perhaps `split`, and `labels` with the positive classes of the image, separated by `;` (by
    `,` where there is no `;`) or as a JSON list; the classes are all that are named, sorted.

    The column of files may also be called image, filename or path if it is the first one. A split is train,
    validation (or val, valid) or test; without that column, all rows are "train". CSV is UTF-8, separated by commas,
    or by semicolons or tabs if the header says so. In Parquet, null is blank, and `labels` may hold lists. Names of
    classes lose the spaces around them.

    Args:
        path: the file.
        unlisted: what a class that a list leaves out is: "unknown" or "negative". A blank list names nothing, so that
            with "negative" it is an image verified to show none of the classes. Wide tables say it cell by cell.
        images: the folder that file names are relative to, if not that of the table.
        report: called with every problem; the default stops at the first one.
    """
    if unlisted not in ("unknown", "negative"):
        raise ValueError(f"unlisted must be 'unknown' or 'negative', got {unlisted!r}")
    sheet = _read_parquet(path) if path.suffix.lower() == ".parquet" else _read_csv(path, report)
    file_column = _file_column(sheet.header)
    if file_column is None:
        raise DataError(f"{path}: no column named file among its columns {', '.join(sheet.header[:5])}")
    split_column, list_column = sheet.find("split"), sheet.find("labels")
    class_columns = [i for i in range(len(sheet.header)) if i not in (file_column, split_column, list_column)]
    _check_columns(sheet, class_columns, list_column)

    rows, splits = _usable_rows(sheet, file_column, split_column, report)
    if not rows:
        raise DataError(f"{path}: lists no image")
    if list_column is None:
        classes, labels = _read_wide(sheet, rows, _without_repeats(sheet, class_columns, report), report)
    else:
        classes, labels = _read_lists(sheet, rows, list_column, unlisted, report)
    return LabelTable(
        files=tuple(sheet.columns[file_column][row] for row in rows),
        classes=tuple(classes),
        labels=labels,
        split=np.array(splits),
        root=images or path.parent,
    )


def write_table(table: LabelTable, path: Path) -> None:
    """Write a wide table as .csv or .parquet; `read` gives the same table back.

    File names are written as they are, so a table that is not written into `table.root` needs `images=` to be read.
    The file appears complete or not at all.
    """
    _check_writable(table)
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise DataError(f"{path}: a table is written as .csv or .parquet; name it so")
    try:
        content = _render_csv(table) if path.suffix.lower() == ".csv" else _render_parquet(table, _pyarrow(path))
        write_atomically(path, content)
    except UnicodeEncodeError as error:
        near = error.object[max(error.start - 20, 0) : error.end + 20]
        raise DataError(f"{path}: {near!r} cannot be written as UTF-8; rename that file or class") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror or error})") from None


def _file_column(header: Sequence[str]) -> int | None:
    names = [name.strip().lower() for name in header]
    if "file" in names:
        return names.index("file")
    return 0 if names and names[0] in _OTHER_FILE_NAMES else None


# Reading


def _read_csv(path: Path, report: Report) -> _Sheet:
    text = read_text(path)
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(path, text), strict=True)
    try:
        header = next(rows)
        lines, cells = [], []
        line = rows.line_num + 1
        for row in rows:
            if len(row) == len(header):
                lines.append(f"line {line}")
                cells.append(row)
            elif row:
                what = f"has {len(row)} cells for {len(header)} columns"
                report(Problem("bad line", f"{path.name}, line {line}", what))
            line = rows.line_num + 1
    except csv.Error as error:
        raise DataError(f"{path}, line {rows.line_num}: is not CSV ({error})") from None
    return _Sheet(path, _stripped(header), list(zip(*cells, strict=True)) or [()] * len(header), lines)


def _delimiter(path: Path, text: str) -> str:
    """The comma if it shows a column of files in the header, else the one other separator that does."""
    fitting = [delimiter for delimiter in ",;\t" if _file_column(_header(text, delimiter)) is not None]
    if not fitting or (len(fitting) > 1 and "," not in fitting):
        raise DataError(f"{path}, line 1: no column named file; the first line names the columns, as file,cat,dog")
    return fitting[0]


def _header(text: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True), [])
    except csv.Error:
        return []


def _read_parquet(path: Path) -> _Sheet:
    content, pyarrow = read_bytes(path), _pyarrow(path)
    try:
        table = pyarrow.parquet.ParquetFile(io.BytesIO(content)).read()
        columns = [column.to_pylist() for column in table.columns]
    except Exception as error:  # a damaged file ends in errors of many kinds
        raise DataError(f"{path}: is not a Parquet file that can be read ({error})") from None
    return _Sheet(path, _stripped(table.column_names), columns, [f"row {row + 1}" for row in range(table.num_rows)])


def _pyarrow(path: Path) -> Any:
    """The library, imported only where a Parquet file asks for it."""
    try:
        import pyarrow.parquet
    except ImportError:
        raise DataError(f"{path}: Parquet needs pyarrow; install it, or use CSV") from None
    return pyarrow


def _stripped(names: Iterable[str]) -> list[str]:
    return [name.strip() for name in names]


def _check_columns(sheet: _Sheet, class_columns: list[int], list_column: int | None) -> None:
    names = {column + 1: sheet.header[column] for column in class_columns}
    for number, name in names.items():
        if not name:
            raise DataError(f"{sheet.source}: column {number} has no name; name its class or remove it")
        if name.lower() in _RESERVED:
            raise DataError(f"{sheet.source}: column {number} is a second column {name}; no class can have that name")
    if list_column is not None and names:
        other = next(iter(names.values()))
        raise DataError(f"{sheet.source}: has a column labels and a column {other}; keep the list or the classes")
    if list_column is None and not names:
        raise DataError(f"{sheet.source}: has no columns of classes and no column named labels")


def _without_repeats(sheet: _Sheet, class_columns: list[int], report: Report) -> list[int]:
    first: dict[str, int] = {}
    for column in class_columns:
        name = sheet.header[column]
        if first.setdefault(name, column) != column:
            what = f"names class {name} again, after column {first[name] + 1}"
            report(Problem("duplicate", f"{sheet.source.name}, column {column + 1}", what))
    return list(first.values())


def _usable_rows(
    sheet: _Sheet, file_column: int, split_column: int | None, report: Report
) -> tuple[list[int], list[str]]:
    """The rows that name a file, each file once per split, and their splits."""
    first: dict[tuple[str, str], int] = {}
    for row, file in enumerate(sheet.columns[file_column]):
        split = "train" if split_column is None else _split(sheet, row, split_column, report)
        if not isinstance(file, str) or not file:
            report(Problem("bad value", sheet.where(row, file_column), f"holds {file!r}, not the name of a file"))
        elif first.setdefault((file, split), row) != row:
            what = f"names {file} again, after {sheet.places[first[file, split]]}"
            report(Problem("duplicate", sheet.where(row, file_column), what))
    return list(first.values()), [split for _, split in first]


def _split(sheet: _Sheet, row: int, column: int, report: Report) -> str:
    cell = sheet.columns[column][row]
    split = _SPLIT_OF.get(str(cell).strip().lower())
    if split is None:
        report(Problem("bad value", sheet.where(row, column), f"holds {cell!r}; a split is {', '.join(SPLITS)}"))
    return split or "train"


def _read_wide(sheet: _Sheet, rows: list[int], class_columns: list[int], report: Report) -> tuple[list[str], Labels]:
    labels = np.stack([_label_column(sheet.columns[column])[rows] for column in class_columns], axis=1)
    for i, j in np.argwhere(labels == _BAD):
        row, column = rows[i], class_columns[j]
        what = f"holds {sheet.columns[column][row]!r}; a label is 1 or 0, and the cell stays blank where it is unknown"
        report(Problem("bad value", sheet.where(row, column), what))
    labels[labels == _BAD] = UNKNOWN
    return [sheet.header[column] for column in class_columns], labels


def _label_column(cells: Iterable[Any]) -> Labels:
    return np.array([_label(cell) for cell in cells], np.int8)


def _label(cell: Any) -> int:
    try:
        return _LABEL_OF.get(cell.strip() if isinstance(cell, str) else cell, _BAD)
    except TypeError:  # a list, a mapping
        return _BAD


def _read_lists(
    sheet: _Sheet, rows: list[int], column: int, unlisted: Unlisted, report: Report
) -> tuple[list[str], Labels]:
    lists = [_names(sheet.columns[column][row]) for row in rows]
    classes = sorted({name for names in lists if names for name in names})
    if not classes:
        raise DataError(f"{sheet.source}: its column labels names no class at all")
    position = {name: i for i, name in enumerate(classes)}
    labels = np.full((len(rows), len(classes)), NEGATIVE if unlisted == "negative" else UNKNOWN, np.int8)
    for i, names in enumerate(lists):
        if names is None:
            what = f"holds {sheet.columns[column][rows[i]]!r}; write names separated by ; or a JSON list of names"
            report(Problem("bad value", sheet.where(rows[i], column), what))
            labels[i] = UNKNOWN
        else:
            labels[i, [position[name] for name in names]] = POSITIVE
    return classes, labels


def _names(cell: Any) -> list[str] | None:
    """The classes that a cell lists, or None if it is no list of names."""
    if isinstance(cell, str) and not cell.lstrip().startswith("["):
        return [name for name in _stripped(cell.split(";" if ";" in cell else ",")) if name]
    try:
        names = json.loads(cell) if isinstance(cell, str) else [] if cell is None else cell
    except (ValueError, RecursionError):
        return None
    if not isinstance(names, list) or not all(isinstance(name, str) and name.strip() for name in names):
        return None
    return _stripped(names)


# Writing


def _check_writable(table: LabelTable) -> None:
    for name in table.classes:
        if name.lower() in _RESERVED or not name or name != name.strip():
            raise DataError(
                f"no class in a table can be named {name!r}: {', '.join(_RESERVED)} mean something else there, and "
                "names are not blank and have no spaces around them"
            )
    images = list(zip(table.files, table.split.tolist(), strict=True))
    if len(set(table.classes)) < len(table.classes) or len(set(images)) < len(images):
        raise DataError("a table names every class once, and every file once in a split; the one to write repeats some")
    if "" in table.files:
        raise DataError(f"row {table.files.index('')} has no file name, so the table cannot be written")


def _cells(table: LabelTable) -> Iterator[list[str]]:
    text = {POSITIVE: "1", NEGATIVE: "0", UNKNOWN: ""}
    for file, split, labels in zip(table.files, table.split.tolist(), table.labels.tolist(), strict=True):
        yield [file, split, *(text[label] for label in labels)]


def _render_csv(table: LabelTable) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text)  # ends lines in CR LF, which is also what makes it quote names that hold either
    writer.writerow(["file", "split", *table.classes])
    writer.writerows(_cells(table))
    return text.getvalue().encode("utf-8")


def _render_parquet(table: LabelTable, pyarrow: Any) -> bytes:
    columns = [pyarrow.array(table.files, pyarrow.string()), pyarrow.array(table.split.tolist(), pyarrow.string())]
    columns += [pyarrow.array(column, mask=column == UNKNOWN) for column in table.labels.T]
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.table(columns, names=["file", "split", *table.classes]), sink)
    return bytes(sink.getvalue())
