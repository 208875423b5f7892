"""Labels as files for onepair and for other programs."""

import csv
import io
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from onepair.data.formats.coco import write_coco
from onepair.data.formats.label_studio import write_label_studio
from onepair.data.label_table import LabelTable
from onepair.data.tables.cell_values import guard, write_names
from onepair.data.tables.column_roles import is_no_class
from onepair.data.tables.sheet import PLACES, pyarrow_for
from onepair.data.text_files import is_file, real
from onepair.errors import DataError
from onepair.files import write_atomically, writing
from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, Indices
from onepair.remote import is_remote

MOST_NAMED = 2**28  # labels that a file names one by one


def write_fiftyone(table: LabelTable) -> bytes:
    """A table as the `labels.json` of a FiftyOneImageClassificationDataset: the positive classes of every image.

    Classes are named by their places in the list of all; images by their whole paths, so that FiftyOne finds them
    wherever the file is. An image of which nothing is known has null for a list. Otherwise the format cannot tell a
    negative label from an unknown one, and it has no splits: keep a table for those.
    """
    labels = {
        str(real(table.path(row))): None if (given == UNKNOWN).all() else np.flatnonzero(given == POSITIVE).tolist()
        for row, given in enumerate(table.labels)
    }
    return json.dumps({"classes": list(table.classes), "labels": labels}, ensure_ascii=False, indent=1).encode()


_JSON: dict[str, Callable[[LabelTable], bytes]] = {
    "coco": write_coco,
    "label-studio": write_label_studio,
    "fiftyone": write_fiftyone,
}
WRITTEN = ("csv", "parquet", *_JSON)
SAME = "same"  # the form of the table that labels were read from


def written_format(path: Path, format: str = "auto") -> str:
    """The format to write a file in: the one that is named, else by the suffix where that is clear.

    >>> written_format(Path("labels.csv")), written_format(Path("labels.json"), "coco")
    ('csv', 'coco')
    """
    suffix = path.suffix.lower().removeprefix(".")
    if format == "auto" and suffix in ("csv", "parquet"):
        return suffix
    if format == "auto" and suffix == "json":
        raise DataError(f"{path}: may be of several formats; name one, {' or '.join(_JSON)}")
    if format == "auto" or format not in WRITTEN:
        what = f"{path}" if format == "auto" else f"there is no format {format!r}"
        raise DataError(f"{what}: labels are written as .csv or .parquet, or in a named format: {', '.join(_JSON)}")
    expected = format if format in ("csv", "parquet") else "json"
    if suffix != expected:
        raise DataError(f"{path}: {format} is written to a file that ends in .{expected}; name it so")
    return format


def write_labels(table: LabelTable, path: Path, *, format: str = "auto") -> None:
    """Write a table as a file in any of the formats `WRITTEN`; it appears complete or not at all.

    csv and parquet keep everything; coco and label-studio keep labels and splits; fiftyone keeps the positive labels.
    """
    format = written_format(path, format)
    if format in _JSON:
        known = table.labels.size - int(table.labels.count(UNKNOWN).sum())
        if known > MOST_NAMED and format != "fiftyone":
            raise DataError(
                f"{path}: {format} names every known label, and there are {known:,}; write a .parquet file, where "
                "a row of which all is known names its positives alone"
            )
        with writing(path):
            write_atomically(path, _JSON[format](table))
    else:
        write_table(table, path)


def named_from(table: LabelTable, folder: Path) -> LabelTable:
    """The table with its files named from another folder, which becomes its root; whole paths and ids stay as they are.

    Files at URLs or in tars get their whole paths: `joined` finds them, those at a URL if its server is the root.

    Of vectors that go by their order, the files may still be there to be shown, and are named as others are.
    """
    folder = Path(os.path.realpath(folder))
    if is_remote(table.root):
        return table if table.ids else replace(table, files=tuple(map(str, map(table.path, range(len(table))))))
    root = Path(os.path.realpath(table.root))
    in_order = table.vectors is not None and table.vectors.ids is None
    if root == folder or (table.ids and not (in_order and is_file(table.path(0)))):
        return replace(table, root=folder)
    files = (file if Path(file).is_absolute() else os.path.relpath(root / file, folder) for file in table.files)
    return replace(table, files=tuple(files), root=folder)


def write_table(table: LabelTable, path: Path, *, keep_places: bool = False) -> None:
    """Write a table as .csv or .parquet; `onepair.data.tables.read_table.read` gives the same table back.

    Where images and classes are too many for a cell each, the columns labels and negatives list what is known, and rows
    that are known in full are marked as complete; classes of which nothing is known are then left out.

    File names are written as they are, so a table that is not written into `table.root` needs `images=` to be read.
    In CSV, what a spreadsheet would take for a formula gets an apostrophe, which `read` takes away. The file appears
    complete or not at all. With `keep_places`, a .parquet file also says in which line of another table each row was.

    Examples:
        >>> write_table(read_dataset("coco/"), Path("labels.csv"))  # doctest: +SKIP
    """
    _check_writable(table, path)
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise DataError(f"{path}: a table is written as .csv or .parquet; name it so")
    if path.suffix.lower() == ".csv":
        content = _render_csv(table)
    else:
        content = _render_parquet(table, pyarrow_for(path), places=table.places if keep_places else None)
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


def _render_parquet(table: LabelTable, pyarrow: Any, *, places: Sequence[str] | None) -> bytes:
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
    metadata = None if places is None else {PLACES: "\n".join(places).encode(errors="replace")}
    pyarrow.parquet.write_table(pyarrow.table(arrays, names=names, metadata=metadata), sink)
    return bytes(sink.getvalue())
