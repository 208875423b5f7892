"""What the columns of a table are about: files, splits, classes, lists of names, or something else."""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

import numpy as np

from onepair.data.label_table import RESERVED, Problem, Report
from onepair.data.tables.cell_values import BAD, Column, label_of, split_of
from onepair.data.tables.sheet import SAMPLE, Sheet, file_column, names_images, plain_title
from onepair.errors import DataError
from onepair.labels import POSITIVE, UNKNOWN
from onepair.words import listed

LIST_NAMES = (  # without spaces, - and _; all but the first only where they do not hold 1 and 0
    *("labels", "label", "tags", "classes", "tag", "class", "categories", "category", "keywords"),
    *("labelnames", "labelname", "classnames", "classname", "choice", "choices"),
    *("schlagwörter", "schlagworte", "stichwörter", "stichworte", "etiketten", "etiquetas", "palabrasclave"),
    *("motsclés", "étiquettes", "parolechiave", "etichette"),
)
_VALUE_NAMES = ("value", "present", "presence", "confidence")  # of what a row with one label says of it: 1 or 0
_GROUP_NAMES = ("group", "groupid", "session", "sessionid", "patient", "patientid", "seriesid", "burst", "burstid")
_LIKELY_GROUPS = {  # which may be something else as well
    *("subject", "subjectid", "case", "caseid", "study", "studyid", "visit", "visitid", "series", "sequence"),
    *("sequenceid", "scene", "sceneid", "video", "videoid", "clip", "clipid", "album", "event", "eventid", "shoot"),
    *("gruppe", "serie", "sitzung", "patientin", "szene", "grupo", "sesión", "paciente", "escena"),
}
_STATES = (
    *("public", "private", "published", "verified", "valid", "checked", "reviewed", "approved", "flagged", "deleted"),
    *("active", "duplicate", "difficult", "truncated", "occluded", "crowd", "groupof", "depiction", "inside"),
)
_NO_CLASSES = {  # what tables hold beside classes, as 1 and 0, too; without spaces, - and _
    *("annotator", "annotatorid", "annotationid", "user", "userid", "leadtime", "count"),
    *("id", "index", "width", "height", "rating", "score", "price", "views", "likes", "year", "timestamp"),
    *("difficult", "truncated", "occluded", "verified", "reviewed", "checked", "approved", "flagged", "deleted"),
    *(f"is{state}" for state in _STATES),
}
FEWEST_GROUPS = 4  # different words in a column that may say which rows belong together; fewer are kinds
FEW = 20  # rows that say little about what a column is for
_MOST_WORDS = 10  # that a column of splits has, those among them that are none
_TYPING_ERRORS = 0.05  # of the cells, at most
_NUMBER = re.compile(r"\d+(\.0)?")
_ADVICE = "a label is 1, 0 or blank, and --label-columns cat,dog would name the columns that hold them"


@dataclass(frozen=True)
class Columns:
    """The place of each column in a sheet; either `names` or `classes` is there."""

    file: int | None  # None where rows have no names but their numbers
    text: int | None
    group: int | None  # rows that belong together
    vector: int | None  # which of given vectors a row has
    split: int | None
    complete: int | None  # whether all classes that a row does not name are known to be negative
    asked: int | None  # names of classes that are known because a model suggested them
    value: int | None  # of a table with one label in a row: whether that is positive or negative
    names: int | None  # of the positive classes
    negatives: int | None  # beside those, names of the classes that are known not to be there
    classes: list[int]


def find_columns(
    sheet: Sheet, label_columns: Sequence[str] | None, report: Report, *, with_vectors: bool = False
) -> Columns:
    """Tell the columns of a sheet apart by their names and by what they hold.

    Args:
        sheet: a file as columns.
        label_columns: the names of the columns of classes, or of the one with lists of names. Without it, these are
            the column called labels (or label, tags, classes and the like), else all columns whose cells are mostly
            labels, else the only one with words.
        report: called with every problem, and with a remark on every column that is left out.
        with_vectors: whether rows have vectors beside them, so that any name will do for them.
    """
    text = sheet.find("text")
    text = None if text is not None and not sheet.columns[text].mostly_other else text  # a class may be called text
    file = _file(sheet, report, has_names=with_vectors or text is not None, needs_files=text is None)
    split, complete, asked = (sheet.find(name) for name in ("split", "complete", "asked"))
    split = _split_by_values(sheet, report) if split is None else split
    vector = _vector_column(sheet) if with_vectors else None
    group = _group_column(sheet, label_columns or (), report)
    taken = {file, text, vector, split, complete, asked, group}
    others = [i for i in range(len(sheet.header)) if i not in taken]
    if label_columns:
        names, classes = _as_named(sheet, label_columns)
    else:
        names, classes = _as_recognised(sheet, others, report)
    value, negatives = (None, None) if names is None else (_value(sheet, others), sheet.find("negatives"))
    if names is not None and not label_columns:
        _leave_out(sheet, [i for i in others if i not in (names, value, negatives)], file, report)
    classes = _without_repeats(sheet, classes, report)
    return Columns(file, text, group, vector, split, complete, asked, value, names, negatives, classes)


def with_split(sheet: Sheet, report: Report) -> Sheet:
    """A sheet with a column split where it has one is_valid, as fastai's, which is true of validation images."""
    column = sheet.find("is_valid")
    labels = None if column is None else sheet.columns[column].labels
    if column is None or labels is None or sheet.find("split") is not None or set(labels.tolist()) != {0, 1}:
        return sheet
    report(sheet.remark("split", column, "taken for the column split: true is validation, false train"))
    header, columns = list(sheet.header), list(sheet.columns)
    header[column], columns[column] = "split", Column(np.where(labels == POSITIVE, "validation", "train").tolist())
    return replace(sheet, header=header, columns=columns)


def _file(sheet: Sheet, report: Report, *, has_names: bool, needs_files: bool) -> int | None:
    """The column that names the files, or rows that have any names; None where these need none.

    By its own name, else the only one that holds nothing but names of images, else the one called id or name.
    """
    file = file_column(sheet.header)
    if file is not None:
        return file
    fitting = [i for i, cells in enumerate(sheet.columns) if names_images(cells)]
    if not fitting and has_names and (identity := sheet.find("id")) is not None:
        return identity
    fitting = fitting or [i for i, name in enumerate(sheet.header) if name.lower() in ("id", "name")]
    if len(fitting) == 1:
        report(sheet.remark("file", fitting[0], "taken for the column file"))
        return fitting[0]
    if needs_files:
        there = f" among its columns {', '.join(sheet.header[:5])}" if any(sheet.header) else ""
        raise DataError(
            f"{sheet.source}: no column named file{there}; the first line names the columns, as file,cat,dog"
        )
    return None


def _group_column(sheet: Sheet, label_columns: Sequence[str], report: Report) -> int | None:
    """The column that says which rows belong together, as those of a session: words that come again."""
    titles = list(map(plain_title, sheet.header))
    for name in _GROUP_NAMES:
        column = titles.index(name) if name in titles else -1
        if column < 0 or sheet.header[column] in label_columns or not sheet.columns[column].mostly_other:
            continue
        held = [text for text in sheet.columns[column].texts if text]
        if len(set(held)) < len(held):
            if name != "group":
                report(sheet.remark("group", column, "taken for groups: images of one are in one split and fold"))
            return column
    for column, name in enumerate(titles):
        if name in _LIKELY_GROUPS and sheet.header[column] not in label_columns and sheet.columns[column].mostly_other:
            held = [text for text in sheet.columns[column].texts if text]
            if FEWEST_GROUPS <= len(set(held)) <= len(held) / 2:
                what = "comes again and again; call it group if images of one belong in one split and fold"
                report(sheet.remark("likely groups", column, what))
    return None


def _vector_column(sheet: Sheet) -> int | None:
    """The column vector, if it holds a number of its own for every row; a class of that name holds 1 and 0."""
    column = sheet.find("vector")
    if column is None:
        return None
    cells = [str(cell).strip() for cell in sheet.columns[column]]
    return column if all(map(str.isdecimal, cells)) and len(set(cells)) == len(cells) else None


def _split_by_values(sheet: Sheet, report: Report) -> int | None:
    """The only column that holds mostly words for splits, and more than one of them, whatever its name."""
    fitting = [i for i, cells in enumerate(sheet.columns) if _holds_splits(cells)]
    if len(fitting) != 1:
        return None
    report(sheet.remark("split", fitting[0], "holds splits; taken for the column split"))
    return fitting[0]


def _holds_splits(cells: Sequence[Any]) -> bool:
    if all(split_of(str(cell)) is None for cell in cells[:SAMPLE]):  # as a rule that is enough to know
        return False
    times = Counter(map(str, cells))
    splits = {split for cell in times if (split := split_of(cell)) is not None}
    known = sum(number for cell, number in times.items() if split_of(cell) is not None)
    return "train" in splits and len(splits) > 1 and len(times) <= _MOST_WORDS and 2 * known > len(cells)


def _as_named(sheet: Sheet, label_columns: Sequence[str]) -> tuple[int | None, list[int]]:
    classes, places = [], defaultdict[str, list[int]](list)
    for i, title in enumerate(sheet.header):
        places[title].append(i)
    for name in label_columns:
        if name not in places:
            near = get_close_matches(name, sheet.header, n=1)
            advice = f"did you mean {near[0]}?" if near else f"there are {', '.join(sheet.header[:8])}"
            raise DataError(f"{sheet.source}: has no column {name}; {advice}")
        classes += places[name]
    lists = len(classes) == 1 and (
        sheet.header[classes[0]].lower() == "labels" or sheet.columns[classes[0]].mostly_other
    )
    return (classes[0], []) if lists else (None, classes)


def _as_recognised(sheet: Sheet, others: list[int], report: Report) -> tuple[int | None, list[int]]:
    for i in others:
        if sheet.header[i].lower() in RESERVED and i != sheet.find("labels"):
            raise DataError(
                f"{sheet.source}: column {i + 1} is a second column {sheet.header[i]}; no class can have that name"
            )
    names = _list_column(sheet, others)
    if names is not None:
        return names, []
    ours = sheet.find("asked") is not None  # such a table holds classes alone, whatever their names
    beside = set() if ours else {i for i in others if is_no_class(sheet.header[i])}
    classes = [i for i in others if sheet.header[i] and i not in beside and not sheet.columns[i].mostly_other]
    if not classes:
        return _only_words(sheet, others, report), []
    for i in sorted(set(others) - set(classes)):
        why = (
            "is no class by its name, unless --label-columns takes it"
            if i in beside and not sheet.columns[i].mostly_other
            else _why_not(sheet, i)
        )
        report(sheet.remark("column left out", i, f"{why}; left out"))
    _doubt(sheet, classes, report)
    return None, classes


def _only_words(sheet: Sheet, others: list[int], report: Report) -> int:
    """The only column with words in it, where none is called labels and none has classes."""
    fitting = [i for i in others if sheet.header[i] and _has_words(sheet.columns[i]) and _repeats(sheet.columns[i])]
    varied = [i for i in fitting if len({name for names in sheet.columns[i].lists for name in names or ()}) > 1]
    fitting = varied if len(varied) == 1 else fitting  # beside a photographer's name, the same in every row
    if len(fitting) == 1:
        report(sheet.remark("labels", fitting[0], "holds words; taken for the column labels"))
        return fitting[0]
    if varied:
        names = [sheet.header[i] for i in varied]
        raise DataError(
            f"{sheet.source}: has no column named labels, and {listed(names)} hold words; say which one lists the "
            f"labels, as --label-columns {names[0]}"
        )
    found = f"; column {sheet.header[others[0]]} {_why_not(sheet, others[0])}; {_ADVICE}" if others else ""
    raise DataError(f"{sheet.source}: has no columns of classes and no column named labels{found}")


def _has_words(cells: Sequence[Any]) -> bool:
    """Whether most of the cells that hold anything begin with a letter, or are lists."""
    held = [cell for cell in cells[:SAMPLE] if label_of(cell) != UNKNOWN]
    words = [cell for cell in held if isinstance(cell, list) or str(cell).strip(" [{('\"#")[:1].isalpha()]
    return 2 * len(words) > len(held)


def _repeats(cells: Column) -> bool:
    """Whether the names that are listed come again: those of classes do, descriptions do not."""
    names = [name for listed in cells.lists for name in listed or ()]
    return len(names) > len(set(names))


def _doubt(sheet: Sheet, classes: list[int], report: Report) -> None:
    """Remark on columns that may hold something else: always 1, or filled in every row while most others are not."""
    if len(sheet.places) < FEW:
        return
    values = {i: set(sheet.columns[i].labels.tolist()) for i in classes}
    full = {i for i in classes if UNKNOWN not in values[i]}
    odd = {i for i in classes if values[i] == {POSITIVE} or (i in full and 3 * len(full) <= len(classes))}
    rest = ",".join(sheet.header[i] for i in classes if i not in odd) if len(classes) - len(odd) < FEW else "…"
    for i in sorted(odd) if len(odd) < len(classes) else ():
        what = "1" if values[i] == {POSITIVE} else "1 or 0"
        what = f"holds {what} in every row; taken for a class; if it is none: --label-columns {rest}"
        report(sheet.remark("is it a class", i, what))


def is_no_class(name: str) -> bool:
    """Whether a column of this name is taken for no class, unless there is a column asked: that table is ours.

    >>> is_no_class("is public"), is_no_class("dog")
    (True, False)
    """
    return plain_title(name) in _NO_CLASSES


def _list_column(sheet: Sheet, others: list[int]) -> int | None:
    by_name = {plain_title(sheet.header[i]): i for i in reversed(others)}
    fitting = [
        by_name[name]
        for name in LIST_NAMES
        if name in by_name and (name == "labels" or _names_classes(sheet, by_name[name]))
    ]
    fitting = [i for i in fitting if _has_words(sheet.columns[i])] or fitting  # numbers of classes may be beside names
    if len(fitting) > 1:
        both = " and ".join(sheet.header[i] for i in fitting)
        named = f"as --label-columns {sheet.header[fitting[0]]}"
        raise DataError(f"{sheet.source}: has columns {both}; name the one with the labels in label_columns, {named}")
    return fitting[0] if fitting else None


def _names_classes(sheet: Sheet, column: int) -> bool:
    """Whether a column that is called like a list of labels holds one: words, or numbers of classes beyond 1 and 0."""
    if sheet.columns[column].mostly_other:
        return True
    cells = sheet.columns[column]
    held = [str(cell).strip() for cell, blank in zip(cells, cells.is_blank.tolist(), strict=True) if not blank]
    more = [cell for cell in held if label_of(cell) == BAD]
    return len(more) > _TYPING_ERRORS * len(held) and all(map(_NUMBER.fullmatch, held))


def _value(sheet: Sheet, others: list[int]) -> int | None:
    """The column that says of the label in each row whether it is there: 1 or 0."""
    named = [i for i in others if plain_title(sheet.header[i]) in _VALUE_NAMES]
    fitting = [i for i in named if sheet.columns[i].holds_labels]
    return fitting[0] if len(fitting) == 1 else None


def _leave_out(sheet: Sheet, others: list[int], file: int | None, report: Report) -> None:
    """Of a table with lists of names, all other columns; one that says 1 and 0 of one image may be about its labels."""
    for i in others:
        if not sheet.header[i]:
            report(sheet.remark("column left out", i, "has no name; left out"))
        elif is_no_class(sheet.header[i]) or not sheet.columns[i].holds_labels:
            report(sheet.remark("column left out", i, "is not the list of labels; left out"))
        elif file is not None and _varies(sheet.columns[file], sheet.columns[i]):
            raise DataError(
                f"{sheet.source}: has a list of labels and a column {sheet.header[i]} of labels; call it value if it "
                "says whether the label of its row is there, or name in label_columns what holds the labels"
            )
        else:
            what = "holds labels beside the list of them; left out; --label-columns names those to take instead"
            report(sheet.remark("column left out", i, what))


def _varies(files: Sequence[Any], cells: Sequence[Any]) -> bool:
    """Whether a column says different things of one file."""
    return len(set(zip(files, cells, strict=True))) > len(set(files))


def _why_not(sheet: Sheet, column: int) -> str:
    if not sheet.header[column]:
        return "has no name"
    row = int(np.argmax(sheet.columns[column].labels == BAD))
    place = sheet.places[row].rpartition(", ")[2]
    return f"holds values that are no labels, as {sheet.columns[column][row]!r} in {place}"


def _without_repeats(sheet: Sheet, classes: list[int], report: Report) -> list[int]:
    first: dict[str, int] = {}
    for column in classes:
        name = sheet.header[column]
        if first.setdefault(name, column) != column:
            what = f"names class {name} again, after column {first[name] + 1}"
            report(Problem("duplicate", f"{sheet.source.name}, column {column + 1}", what))
    return list(first.values())
