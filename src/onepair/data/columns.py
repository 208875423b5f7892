"""What the columns of a table are about: files, splits, classes, lists of names, or something else."""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np

from onepair.data.dialects import BAD, blanks_of, labels_of, split_of
from onepair.data.problems import DataError, Problem, Report
from onepair.data.sheets import Sheet, file_column
from onepair.labels import UNKNOWN

RESERVED = ("file", "split", "labels", "complete", "asked")  # column names with a meaning of their own
_LIST_NAMES = ("labels", "label", "tags", "classes")  # all but the first only where they do not hold 1 and 0
_ADVICE = "name those that hold labels in label_columns, as --label-columns cat,dog"


@dataclass(frozen=True)
class Columns:
    """The place of each column in a sheet; either `names` or `classes` is there."""

    file: int | None  # None where rows have no names but their numbers
    text: int | None
    vector: int | None  # which of given vectors a row has
    split: int | None
    complete: int | None  # whether all classes that a row does not name are known to be negative
    asked: int | None  # names of classes that are known because a model suggested them
    names: int | None  # of the positive classes
    classes: list[int]


def find_columns(
    sheet: Sheet, label_columns: Sequence[str] | None, report: Report, *, with_vectors: bool = False
) -> Columns:
    """Tell the columns of a sheet apart by their names and by what they hold.

    Args:
        sheet: a file as columns.
        label_columns: the names of the columns of classes, or of the one with lists of names. Without it, these are
            the column called labels (or label, tags, classes), else all columns whose cells are mostly labels.
        report: called with every problem, and with a remark on every column that is left out.
        with_vectors: whether rows have vectors beside them, so that any name will do for them.
    """
    text = sheet.find("text")
    text = None if text is not None and not _other_values(sheet, text) else text  # a class may be called text
    file = file_column(sheet.header)
    if file is None and (with_vectors or text is not None):
        file = sheet.find("id")
    if file is None and text is None:
        raise DataError(f"{sheet.source}: no column named file among its columns {', '.join(sheet.header[:5])}")
    split, complete, asked = (sheet.find(name) for name in ("split", "complete", "asked"))
    split = _split_by_values(sheet, report) if split is None else split
    vector = _vector_column(sheet) if with_vectors else None
    taken = {file, text, vector, split, complete, asked}
    others = [i for i in range(len(sheet.header)) if i not in taken]
    if label_columns:
        names, classes = _as_named(sheet, label_columns)
    else:
        names, classes = _as_recognised(sheet, others, report)
    return Columns(file, text, vector, split, complete, asked, names, _without_repeats(sheet, classes, report))


def _vector_column(sheet: Sheet) -> int | None:
    """The column vector, if it holds a number of its own for every row; a class of that name holds 1 and 0."""
    column = sheet.find("vector")
    if column is None:
        return None
    cells = [str(cell).strip() for cell in sheet.columns[column]]
    return column if all(map(str.isdecimal, cells)) and len(set(cells)) == len(cells) else None


def _split_by_values(sheet: Sheet, report: Report) -> int | None:
    """The only column that holds nothing but words for splits, and more than one of them, whatever its name."""
    fitting = [i for i, cells in enumerate(sheet.columns) if _holds_splits(cells)]
    if len(fitting) != 1:
        return None
    report(Problem("split", _title(sheet, fitting[0]), "holds splits; taken for the column split", remark=True))
    return fitting[0]


def _holds_splits(cells: Sequence[Any]) -> bool:
    if not cells or split_of(str(cells[0])) is None:  # as a rule that is enough to know
        return False
    splits = {split_of(cell) for cell in set(map(str, cells))}
    return None not in splits and len(splits) > 1


def _as_named(sheet: Sheet, label_columns: Sequence[str]) -> tuple[int | None, list[int]]:
    classes = []
    for name in label_columns:
        if name not in sheet.header:
            near = get_close_matches(name, sheet.header, n=1)
            advice = f"did you mean {near[0]}?" if near else f"there are {', '.join(sheet.header[:8])}"
            raise DataError(f"{sheet.source}: has no column {name}; {advice}")
        classes += [i for i, title in enumerate(sheet.header) if title == name]
    lists = len(classes) == 1 and (sheet.header[classes[0]].lower() == "labels" or _other_values(sheet, classes[0]))
    return (classes[0], []) if lists else (None, classes)


def _as_recognised(sheet: Sheet, others: list[int], report: Report) -> tuple[int | None, list[int]]:
    for i in others:
        if sheet.header[i].lower() in RESERVED and i != sheet.find("labels"):
            raise DataError(
                f"{sheet.source}: column {i + 1} is a second column {sheet.header[i]}; no class can have that name"
            )
    names = _list_column(sheet, others)
    if names is not None:
        _leave_out(sheet, [i for i in others if i != names], report)
        return names, []
    classes = [i for i in others if sheet.header[i] and not _other_values(sheet, i)]
    left_out = [i for i in others if i not in classes]
    if not classes:
        found = f"; column {sheet.header[left_out[0]]} {_why_not(sheet, left_out[0])}, so {_ADVICE}" if left_out else ""
        raise DataError(f"{sheet.source}: has no columns of classes and no column named labels{found}")
    for i in left_out:
        report(Problem("column left out", _title(sheet, i), f"{_why_not(sheet, i)}; left out", remark=True))
    return None, classes


def _list_column(sheet: Sheet, others: list[int]) -> int | None:
    by_name = {sheet.header[i].lower(): i for i in reversed(others)}
    fitting = [
        by_name[name]
        for name in _LIST_NAMES
        if name in by_name and (name == "labels" or _other_values(sheet, by_name[name]))
    ]
    if len(fitting) > 1:
        both = " and ".join(sheet.header[i] for i in fitting)
        raise DataError(f"{sheet.source}: has columns {both}; name the one with the labels in label_columns")
    return fitting[0] if fitting else None


def _leave_out(sheet: Sheet, others: list[int], report: Report) -> None:
    """Of a table with lists of names, all other columns; one with labels in it may be what the list is about."""
    for i in others:
        labels = labels_of(sheet.columns[i])
        if not sheet.header[i]:
            report(Problem("column left out", _title(sheet, i), "has no name; left out", remark=True))
        elif (labels != BAD).all() and (labels != UNKNOWN).any():
            raise DataError(
                f"{sheet.source}: has a list of labels and a column {sheet.header[i]} of labels; keep the list or the "
                "classes, or name in label_columns what holds the labels"
            )
        else:
            report(Problem("column left out", _title(sheet, i), "is not the list of labels; left out", remark=True))


def _other_values(sheet: Sheet, column: int) -> bool:
    """Whether most of the cells that hold anything hold no labels."""
    cells = sheet.columns[column]
    bad = labels_of(cells) == BAD
    return bool(bad.any()) and int(bad.sum()) > int((~bad & ~blanks_of(cells)).sum())


def _why_not(sheet: Sheet, column: int) -> str:
    if not sheet.header[column]:
        return "has no name"
    row = int(np.argmax(labels_of(sheet.columns[column]) == BAD))
    place = sheet.places[row].rpartition(", ")[2]
    return f"holds values that are no labels, as {sheet.columns[column][row]!r} in {place}"


def _title(sheet: Sheet, column: int) -> str:
    return f"{sheet.source.name}, column {sheet.header[column] or column + 1}"


def _without_repeats(sheet: Sheet, classes: list[int], report: Report) -> list[int]:
    first: dict[str, int] = {}
    for column in classes:
        name = sheet.header[column]
        if first.setdefault(name, column) != column:
            what = f"names class {name} again, after column {first[name] + 1}"
            report(Problem("duplicate", f"{sheet.source.name}, column {column + 1}", what))
    return list(first.values())
