"""Label tables to files: a row per image, and a column per class or, where there are too many of both, lists."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from onepair.data.label_table import LabelTable
from onepair.data.tables.cell_values import guard, write_names
from onepair.data.tables.column_roles import is_no_class
from onepair.data.tables.sheet import pyarrow_for
from onepair.errors import DataError
from onepair.files import write_atomically
from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, Indices

MOST_NAMED = 2**28  # labels that a file names one by one


def write_table(table: LabelTable, path: Path) -> None:
    """Write a table as .csv or .parquet; `onepair.data.tables.read_table.read` gives the same table back.

    Where images and classes are too many for a cell each, the columns labels and negatives list what is known, and rows
    that are known in full are marked as complete; classes of which nothing is known are then left out.

    File names are written as they are, so a table that is not written into `table.root` needs `images=` to be read.
    In CSV, what a spreadsheet would take for a formula gets an apostrophe, which `read` takes away. The file appears
    complete or not at all.
    """
    _check_writable(table, path)
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise DataError(f"{path}: a table is written as .csv or .parquet; name it so")
    content = _render_csv(table) if path.suffix.lower() == ".csv" else _render_parquet(table, pyarrow_for(path))
    write_atomically(path, content)


def _check_writable(table: LabelTable, path: Path) -> None:
    table.check_names(path)
    images = list(zip(table.files, table.split.tolist(), strict=True))
    if len(set(table.classes)) < len(table.classes) or len(set(images)) < len(images):
        raise DataError("a table names every class once, and every file once in a split; the one to write repeats some")
    if not all(file.strip() for file in table.files):
        row = next(row for row, file in enumerate(table.files) if not file.strip())
        raise DataError(f"row {row} has no file name, so the table cannot be written")


def _has_asked(table: LabelTable) -> bool:
    """Whether a column asked is written: also an empty one, where it tells that a class called rating is a class."""
    return table.asked is not None or any(map(is_no_class, table.classes))


def _names(table: LabelTable, rows: Indices, columns: Indices) -> list[list[str]]:
    """The names of some classes of each row."""
    names: list[list[str]] = [[] for _ in table.files]
    for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
        names[row].append(table.classes[column])
    return names


def _lists(table: LabelTable) -> dict[str, list[list[str]]]:
    """What is written as lists of names, by the names of the columns."""
    lists, labels = {}, table.labels
    if labels.is_large:
        full, negatives = labels.row_count(UNKNOWN) == 0, labels.row_count(NEGATIVE)
        if (named := negatives[~full].sum()) > MOST_NAMED:
            raise DataError(
                f"{named:,} negatives are too many to be named one by one, as rows need that are not known in full; "
                "label the rest of these rows, or take fewer of them"
            )
        # Of complete rows one names the classes that no row has, or they would be lost; the others need not.
        denying = np.flatnonzero((negatives > 0) & (~full | (np.cumsum(full) == 1)))
        never = labels.count(POSITIVE) == 0
        denied = [np.flatnonzero((labels[row] == NEGATIVE) & (never | ~full[row])) for row in denying.tolist()]
        rows = np.repeat(denying, [len(each) for each in denied])
        lists["labels"] = _names(table, *labels.positives())
        lists["negatives"] = _names(table, rows, np.concatenate([rows[:0], *denied]))
    if _has_asked(table):
        rows, columns = np.zeros((2, 0), np.intp) if table.asked is None else table.asked.positives()
        known = (labels[rows, columns] != UNKNOWN) | (not labels.is_large)  # lists know no others
        lists["asked"] = _names(table, rows[known], columns[known])
    return lists


def _columns(table: LabelTable) -> dict[str, Sequence[Any]]:
    """All columns before those of classes."""
    columns: dict[str, Sequence[Any]] = {"file": table.files, "split": table.split.tolist(), **table.more_columns()}
    if table.labels.is_large:
        columns["complete"] = (table.labels.row_count(UNKNOWN) == 0).astype(int).tolist()
    return columns | _lists(table)


def _render_csv(table: LabelTable) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text)  # ends lines in CR LF, which is also what makes it quote names that hold either
    columns, written = _columns(table), {POSITIVE: "1", NEGATIVE: "0", UNKNOWN: ""}
    cells = (map(_written, each) for each in columns.values())
    if table.labels.is_large:
        writer.writerow(columns)
        writer.writerows(zip(*cells, strict=True))
    else:
        writer.writerow([*columns, *map(guard, table.classes)])
        for labels, *before in zip(table.labels, *cells, strict=True):
            writer.writerow([*before, *(written[label] for label in labels.tolist())])
    return text.getvalue().encode("utf-8")


def _written(cell: Any) -> str:
    return guard(write_names(cell) if isinstance(cell, list) else str(cell))


def _render_parquet(table: LabelTable, pyarrow: Any) -> bytes:
    lists = pyarrow.list_(pyarrow.string())
    columns = {
        name: pyarrow.array(cells, lists) if name in ("labels", "negatives", "asked") else pyarrow.array(cells)
        for name, cells in _columns(table).items()
    }
    names, arrays = list(columns), list(columns.values())
    if not table.labels.is_large:
        names += table.classes
        arrays += [pyarrow.array(column, mask=column == UNKNOWN) for column in table.labels.dense().T]
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.table(arrays, names=names), sink)
    return bytes(sink.getvalue())
