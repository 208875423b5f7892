"""Label tables from files: a row per image, with a column per class or a list of labels; or a row per label."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from onepair.data.formats.readers import register_reader
from onepair.data.label_table import SPLITS, LabelTable
from onepair.data.problems import Problem, Report, raise_problem
from onepair.data.tables.cell_values import (
    BAD,
    blanks_of,
    has_spaced,
    is_vector,
    labels_of,
    lists_of,
    may_be_one_name,
    names_in,
    split_of,
)
from onepair.data.tables.column_roles import Columns, find_columns, with_split
from onepair.data.tables.plain_lists import is_large, read_plain_lists
from onepair.data.tables.row_names import has_ids, numbered, row_names, texts_of
from onepair.data.tables.sheet import Sheet, is_sheet, read_sheet
from onepair.data.text_files import is_file
from onepair.errors import DataError
from onepair.label_matrix import LabelMatrix
from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, Indices, Labels
from onepair.words import counted

Unlisted = Literal["unknown", "negative"]
Zeros = Literal["negative", "unknown"]

# A table without a hole that may be one of tags alone: with so many classes, and so small a share of positives.
MANY_CLASSES, FEW_POSITIVES = 5, 0.25

_IMAGE_FOLDERS = ("images", "image", "img", "imgs", "photos", "pictures")  # beside the folder of a table


def detect(path: Path) -> bool:
    """Whether `path` is a file named .csv, .tsv, .parquet, .jsonl or .txt."""
    return is_sheet(path) or (path.suffix.lower() == ".txt" and is_file(path))


@register_reader(
    "table",
    detect=detect,
    description="your own images, with labels in a CSV or Parquet file",
    layout="a .csv, .tsv, .txt, .parquet or .jsonl file with a column file, and one per class or one labels",
    at_url="file",
)
def read(
    path: Path,
    *,
    unlisted: Unlisted = "unknown",
    zeros: Zeros = "negative",
    images: Path | None = None,
    label_columns: Sequence[str] | None = None,
    with_vectors: bool = False,
    report: Report = raise_problem,
) -> LabelTable:
    """Read a table in one of three shapes, images in the order of the file.

    Wide: a column `file`, perhaps a column `split`, and a column per class with 1, 0 or blank (unknown). Also read are
    true and false, yes and no, x, and NaN, NA, null or -1 for unknown. Columns that mostly hold other values are left
    out, with a remark.
    Lists: columns `file`, perhaps `split`, and `labels` (or label, tags, classes and the like) with the positive
    classes of the image, separated by `;`, `|` or `,`, or as a list in JSON or Python; the classes are all that are
    named, sorted. A column `negatives` lists those that are known not to be there.
    Long: as lists, with one label in a row and as many rows for an image as it has labels; a column `value` of 1 and 0
    says whether the label is there.

    The column of files may also be called image, filename, path and the like; files that are not where it says are
    looked for by the end of their names, with and without suffix, below that folder. A split is train, validation (or
    val, valid) or test, in the column split or the one other that holds nothing else; rows that say none are "train".
    Where a column `complete` holds true, the classes that the row leaves out are negative. A column `asked` lists the
    classes that are known because a model suggested them.

    A column `text` holds the text of each row. Where it does and none of the files is there, or where vectors are
    given, rows may have any names, in the column of files or one called id; texts without either go by their numbers. A
    column `vector` may say which of the given vectors each row has, counted from 0.

    CSV is UTF-8, UTF-16 or cp1252, separated by commas, semicolons, tabs or bars. In Parquet, null is blank, and
    `labels` may hold lists. Names of classes lose the spaces around them.

    Args:
        path: the file.
        unlisted: what a class that a list leaves out is: "unknown" or "negative". A blank list names nothing, so that
            with "negative" it is an image verified to show none of the classes. Wide tables say it cell by cell.
        zeros: what a 0 is, also as false or no: "negative", or "unknown" where it means no more than "not tagged".
        images: the folder that file names are relative to, if not that of the table.
        label_columns: the columns of classes, or the one with lists, if they are not to be recognised.
        with_vectors: whether vectors are given for the rows, which then need no files.
        report: called with every problem; the default stops at the first one.
    """
    check_unlisted(unlisted)
    above = path.absolute().parent.parent
    folders = [images] if images else [path.parent, *(above / name for name in _IMAGE_FOLDERS)]
    if label_columns is None and is_large(path):
        plain = read_plain_lists(path, folders, unlisted=unlisted, with_vectors=with_vectors)
        if plain is not None:
            return plain
    sheet = read_sheet(path, report)
    return interpret(
        sheet,
        folders,
        unlisted=unlisted,
        zeros=zeros,
        label_columns=label_columns,
        with_vectors=with_vectors,
        report=report,
    )


def interpret(
    sheet: Sheet,
    folders: Sequence[Path],
    *,
    unlisted: Unlisted = "unknown",
    zeros: Zeros = "negative",
    label_columns: Sequence[str] | None = None,
    with_vectors: bool = False,
    report: Report = raise_problem,
) -> LabelTable:
    """The table that a sheet holds, with the files of the first folder that has them; see `read`."""
    check_unlisted(unlisted)
    sheet = with_split(sheet, report)
    columns = find_columns(sheet, label_columns, report, with_vectors=with_vectors)
    ids = with_vectors or has_ids(sheet, columns, folders, report)
    root, named = _named_images(sheet, columns, None if ids else folders, report)
    if not named:
        what = f"; none of its {counted(len(sheet.places), 'row')} has a file and a split" if sheet.places else ""
        raise DataError(f"{sheet.source}: lists no image{what}")
    repeated = [row for found in named.values() if len(found) > 1 for row in found]
    lists = None if columns.names is None else _lists(sheet.columns[columns.names], len(repeated))
    if lists is not None and has_spaced(sheet.columns[columns.names or 0]):
        where = f"{sheet.source.name}, column {sheet.header[columns.names or 0]}"
        report(Problem("spaces", where, "taken for names with spaces between them; a ; would keep them", remark=True))
    is_long = lists is not None and all(names is None or len(names) < 2 for names in lists)
    _report_repeats(sheet, named, is_long, report)
    rows = [found if is_long else found[:1] for found in named.values()]
    complete = _complete(sheet, columns.complete, rows, report)
    if lists is None:
        classes, labels = _read_wide(sheet, np.array(rows)[:, 0], columns.classes, zeros, complete, report)
        if columns.asked is None:
            _remark_on_zeros(sheet, labels, report)
    else:
        complete |= unlisted == "negative"
        says = None if columns.value is None else _said(sheet.columns[columns.value], zeros)
        if says is not None and not is_long:
            where = f"{sheet.source.name}, column {sheet.header[columns.value or 0]}"
            what = "says nothing of rows with several labels; left out"
            report(Problem("column left out", where, what, remark=True))
            says = None
        classes, labels = _read_lists(sheet, rows, columns, lists, says, complete, report)
    files, splits = zip(*named, strict=True)
    texts = None if columns.text is None else texts_of(sheet.columns[columns.text])
    return LabelTable(
        files=files,
        classes=tuple(classes),
        labels=labels,
        split=np.array(splits),
        root=root or folders[0],
        asked=None if columns.asked is None else _asked(sheet, columns.asked, rows, classes, report),
        places=tuple(sheet.places[found[0]] for found in rows),
        texts=None if texts is None else tuple(texts[found[0]] for found in rows),
        numbered=numbered(sheet, columns.vector, rows),
        ids=ids,
    )


def check_unlisted(unlisted: str) -> None:
    if unlisted not in ("unknown", "negative"):
        raise ValueError(f"unlisted must be 'unknown' or 'negative', got {unlisted!r}")


def _named_images(
    sheet: Sheet, columns: Columns, folders: Sequence[Path] | None, report: Report
) -> tuple[Path | None, dict[tuple[str, str], list[int]]]:
    """The folder of the images; and these, each a file in a split, and the rows that are about it.

    Without folders, each goes by any name.
    """
    rows: dict[tuple[str, str], list[int]] = defaultdict(list)
    splits = _splits(sheet, columns.split, report)
    root, files = row_names(sheet, columns.file, folders, report)
    for row, (file, split) in enumerate(zip(files, splits, strict=True)):
        if file is not None and split is not None:
            rows[file, split].append(row)
    return root, rows


def _splits(sheet: Sheet, column: int | None, report: Report) -> list[str | None]:
    """The split of each row, train if it says none; None if it says something else."""
    if column is None:
        return ["train"] * len(sheet.places)
    cells = sheet.columns[column]
    blank = blanks_of(cells).tolist()
    splits = ["train" if nothing else split_of(str(cell)) for cell, nothing in zip(cells, blank, strict=True)]
    for row, split in enumerate(splits):
        if split is None:
            what = f"holds {cells[row]!r}; a split is {', '.join(SPLITS)}"
            report(Problem("bad split", sheet.where(row, column), what))
    if any(blank):
        where = sheet.where(blank.index(True), column)
        what = f"{counted(sum(blank), 'row')} from here on say nothing, and are for training"
        report(Problem("blank split", where, what, remark=True))
    return splits


def _lists(cells: Sequence[Any], repeated: int) -> list[list[str] | None]:
    """The names in each cell, by how many rows are about an image that others are about, too.

    Where more rows are than have a comma, and nothing else separates names, each holds one name with its comma.
    """
    with_comma = [isinstance(cell, str) and "," in cell for cell in cells]
    if sum(with_comma) >= repeated or not all(map(may_be_one_name, cells)):
        return lists_of(cells)
    return [[cell.strip()] if comma else names_in(cell) for cell, comma in zip(cells, with_comma, strict=True)]


def _report_repeats(sheet: Sheet, named: dict[tuple[str, str], list[int]], is_long: bool, report: Report) -> None:
    repeated = {file: rows for (file, _), rows in named.items() if len(rows) > 1}
    if is_long and repeated:
        what = f"has several rows for {counted(len(repeated), 'image')}; each has all the labels of its rows"
        report(Problem("rows merged", sheet.source.name, what, remark=True))
        return
    for file, rows in repeated.items():
        source, _, first = sheet.places[rows[0]].rpartition(", ")
        unit = first.split()[0]
        numbers = [sheet.places[row].split()[-1] for row in rows]
        times = "twice" if len(rows) == 2 else f"{len(rows)} times"
        what = f"lists {file} {times} ({unit}s {', '.join(numbers[:-1])} and {numbers[-1]})"
        report(Problem("duplicate", source, what))


def _complete(sheet: Sheet, column: int | None, rows: list[list[int]], report: Report) -> NDArray[np.bool_]:
    """For each image, whether a row says that it names all positive classes."""
    if column is None:
        return np.zeros(len(rows), bool)
    labels = labels_of(sheet.columns[column])
    for row in np.flatnonzero(labels == BAD).tolist():
        what = f"holds {sheet.columns[column][row]!r}; a row is complete, true, or not, false"
        report(Problem("bad value", sheet.where(row, column), what))
    return np.array([(labels[found] == POSITIVE).any() for found in rows])


def _read_wide(
    sheet: Sheet, rows: Indices, columns: list[int], zeros: Zeros, complete: NDArray[np.bool_], report: Report
) -> tuple[list[str], LabelMatrix]:
    labels = np.stack([_said(sheet.columns[column], zeros)[rows] for column in columns], axis=1)
    bad = labels == BAD
    for i, j in np.argwhere(bad):
        row, column = int(rows[i]), columns[j]
        what = f"holds {sheet.columns[column][row]!r}; a label is 1 or 0, and the cell stays blank where it is unknown"
        report(Problem("bad value", sheet.where(row, column), what))
    labels[bad] = UNKNOWN
    _remark_on_minus_one(sheet, columns, labels, report)
    labels[(labels == UNKNOWN) & ~bad & complete[:, None]] = NEGATIVE
    return [sheet.header[column] for column in columns], LabelMatrix.of(labels)


def _said(cells: Sequence[Any], zeros: Zeros) -> Labels:
    """The label that each cell says, with 0 as what it means."""
    labels = labels_of(cells)
    return np.where(labels == NEGATIVE, UNKNOWN, labels).astype(np.int8) if zeros == "unknown" else labels


def _remark_on_zeros(sheet: Sheet, labels: LabelMatrix, report: Report) -> None:
    """A program that knows tags alone writes 0 for whatever is not tagged, and then nothing looks missing."""
    rows, classes = labels.shape
    few = labels.count(POSITIVE).sum() <= FEW_POSITIVES * rows * classes
    if classes >= MANY_CLASSES and few and not labels.has(UNKNOWN):
        what = (
            "has no blank, so every 0 is taken for 'somebody looked, and it is not there'; "
            "if it means no more than 'not tagged', add --zeros unknown"
        )
        report(Problem("every label is known", sheet.source.name, what, remark=True))


def _remark_on_minus_one(sheet: Sheet, columns: list[int], labels: Labels, report: Report) -> None:
    """-1 is unknown here, and negative elsewhere."""
    for column in columns:
        cells = sheet.columns[column]
        found = np.flatnonzero((labels_of(cells) == UNKNOWN) & ~blanks_of(cells))
        if len(found):
            what = f"holds {cells[found[0]]!r}, as other cells may: that is unknown, and negative is 0"
            report(Problem("-1 is unknown", sheet.where(int(found[0]), column), what, remark=True))
            return


def _read_lists(
    sheet: Sheet,
    rows: list[list[int]],
    columns: Columns,
    lists: list[list[str] | None],
    says: Labels | None,
    complete: NDArray[np.bool_],
    report: Report,
) -> tuple[list[str], LabelMatrix]:
    column, used = columns.names or 0, [[lists[row] for row in found] for found in rows]
    if any(lists) and all(not names or is_vector(names) for names in lists):
        raise DataError(
            f"{sheet.source}: column {sheet.header[column]} holds zeros and ones without the names of what they are "
            "about; write a column per class, or lists of names"
        )
    denied = _denied(sheet, columns.negatives, rows, report)
    classes = sorted({name for found in used for names in found for name in names or ()} | {name for _, name in denied})
    if not classes:
        raise DataError(f"{sheet.source}: its column {sheet.header[column]} names no class at all")
    position = {name: i for i, name in enumerate(classes)}
    for image, found in enumerate(used):
        if None in found:
            row = rows[image][found.index(None)]
            what = f"holds {sheet.columns[column][row]!r}; write names separated by ; or a JSON list of names"
            report(Problem("bad value", sheet.where(row, column), what))
            complete[image] = False
    counts = [sum(len(names or ()) for names in found) for found in used]
    positives = [position[name] for found in used for names in found for name in names or ()]
    images = np.repeat(np.arange(len(rows)), counts)
    said = np.full(len(images), POSITIVE, np.int8)
    if says is not None:
        said = says[[row for found in rows for row in found for _ in lists[row] or ()]]
    images = np.concatenate([np.array([image for image, _ in denied], np.intp), images])
    named = np.array([*(position[name] for _, name in denied), *positives], np.intp)
    said = np.concatenate([np.full(len(denied), NEGATIVE, np.int8), said])
    places = images * len(classes) + named
    both = np.intersect1d(places[said == POSITIVE], places[said == NEGATIVE])
    for image, name in zip(*np.divmod(both, len(classes)), strict=True):
        what = f"says both that {classes[name]} is there and that it is not"
        report(Problem("contradiction", sheet.places[rows[image][0]], what))
    order = np.argsort(said, kind="stable")  # of several labels of a cell the last counts
    values = np.append(said[order], np.full(len(both), UNKNOWN, np.int8))
    cells = np.divmod(np.append(places[order], both), len(classes))
    return classes, LabelMatrix.from_entries((len(rows), len(classes)), *cells, values, complete=complete)


def _denied(sheet: Sheet, column: int | None, rows: list[list[int]], report: Report) -> list[tuple[int, str]]:
    """The image and the name of each class that a column lists as not there."""
    lists = [] if column is None else lists_of(sheet.columns[column])
    denied = []
    for image, row in ((image, row) for image, found in enumerate(rows) for row in found if lists):
        names = lists[row]
        if names is None:
            what = f"holds {sheet.columns[column or 0][row]!r}; write names separated by ; or a JSON list of names"
            report(Problem("bad value", sheet.where(row, column or 0), what))
        denied += [(image, name) for name in names or ()]
    return denied


def _asked(
    sheet: Sheet, column: int, rows: list[list[int]], classes: Sequence[str], report: Report
) -> LabelMatrix | None:
    position = {name: i for i, name in enumerate(classes)}
    lists = lists_of(sheet.columns[column])
    cells = []
    for image, row in ((image, row) for image, found in enumerate(rows) for row in found):
        names = lists[row]
        if names is None or not position.keys() >= set(names):
            what = f"holds {sheet.columns[column][row]!r}; it lists names of classes"
            report(Problem("bad value", sheet.where(row, column), what))
        cells += [(image, position[name]) for name in names or () if name in position]
    if not cells:
        return None
    images, columns = zip(*cells, strict=True)
    return LabelMatrix.from_entries((len(rows), len(classes)), images, columns, POSITIVE, complete=True)
