"""Label tables from files: a row per image, with a column per class or a list of labels; or a row per label."""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import islice, takewhile
from pathlib import Path, PurePosixPath
from typing import Literal, NamedTuple
from unicodedata import normalize
from urllib.parse import parse_qs, unquote, urlsplit

import numpy as np
from numpy.typing import NDArray

from onepair.data.class_rules import merge_spellings
from onepair.data.formats import register_reader
from onepair.data.images.decode import SUFFIXES
from onepair.data.images.tar import joined
from onepair.data.label_table import SPLITS, LabelTable, Numbered, Problem, Report, raise_problem
from onepair.data.tables.cell_values import BAD, Column, is_vector, may_be_one_name, names_in, split_of
from onepair.data.tables.column_roles import Columns, find_columns, with_split
from onepair.data.tables.sheet import Sheet, is_sheet, read_sheet
from onepair.data.text_files import exists, fold, is_file
from onepair.errors import DataError
from onepair.label_matrix import LabelMatrix
from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, Indices, Labels
from onepair.remote import all_at_once, is_remote
from onepair.words import counted, listed

Unlisted = Literal["unknown", "negative"]
Zeros = Literal["negative", "unknown"]
Spellings = Literal["merge", "keep"]

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
    spellings: Spellings = "merge",
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
        unlisted: what a class that a list leaves out is, or of a wide table a blank cell: "unknown" or "negative". A
            blank list names nothing, so that with "negative" it is an image verified to show none of the classes.
        zeros: what a 0 is, also as false or no: "negative", or "unknown" where it means no more than "not tagged".
        images: the folder that file names are relative to, if not that of the table.
        label_columns: the columns of classes, or the one with lists, if they are not to be recognised.
        spellings: "merge" names of classes that differ in case, spaces, Unicode or an English plural, under the most
            frequent one, or "keep" them apart.
        with_vectors: whether vectors are given for the rows, which then need no files.
        report: called with every problem; the default stops at the first one.
    """
    table = interpret(
        read_sheet(path, report),
        image_folders(path, images),
        unlisted=unlisted,
        zeros=zeros,
        label_columns=label_columns,
        with_vectors=with_vectors,
        report=report,
    )
    return with_one_spelling(table, path, report) if spellings == "merge" else table


def with_one_spelling(table: LabelTable, path: Path, report: Report) -> LabelTable:
    """The table with the spellings of one class under one name, which is reported; `path` is named in that."""
    merged = merge_spellings(table)
    if others := [f"{other} as {name}" for other, name in merged.aliases.items()]:
        what = (
            f"{counted(len(others), 'spelling')} read as another: {listed(others)}; --spellings keep keeps them apart"
        )
        report(Problem("spellings", path.name, what, remark=True))
    return merged


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
    """Return the table that a sheet holds, with the files of the first folder that has them; see `read`."""
    rows = row_roles(sheet, folders, label_columns=label_columns, with_vectors=with_vectors, report=report)
    sheet, columns, images, lists, is_long = rows.sheet, rows.columns, rows.images, rows.lists, rows.is_long
    _report_repeats(sheet, images, is_long, report)
    if not is_long:
        images = images.first_rows_alone()
    complete = _complete(sheet, columns.complete, images, report)
    if lists is None:
        classes, labels = _read_wide(sheet, images, columns, zeros, unlisted, complete, report)
    else:
        complete |= unlisted == "negative"
        says = None if columns.value is None else _said(sheet.columns[columns.value], zeros)
        if columns.value is not None and not is_long:
            what = "says nothing of rows with several labels; left out"
            report(sheet.remark("column left out", columns.value, what))
            says = None
        classes, labels = _read_lists(sheet, images, columns, lists, says, complete, report)
    first = images.first.tolist()
    if columns.vector is not None:
        numbered = Numbered(np.array([int(sheet.columns[columns.vector][row]) for row in first]), None)
    else:
        numbered = Numbered(np.where(images.row_counts == 1, np.array(sheet.numbers)[first], -1), sheet.total)
    texts = None if columns.text is None else sheet.columns[columns.text].texts
    return LabelTable(
        files=tuple(file for file, _ in images.names),
        classes=tuple(classes),
        labels=labels,
        split=np.array([split for _, split in images.names]),
        root=rows.root or folders[0],
        asked=None if columns.asked is None else _asked(sheet, columns.asked, images, classes, report),
        places=tuple(sheet.places[row] for row in first),
        texts=None if texts is None else tuple(texts[row] for row in first),
        numbered=numbered,
        group=None if columns.group is None else tuple(sheet.columns[columns.group].texts[row] for row in first),
        ids=rows.ids,
    )


def image_folders(path: Path, images: Path | None) -> list[Path]:
    """Where the images of a table may be, the likeliest first."""
    above = path.absolute().parent.parent
    return [images] if images else [path.parent, *(above / name for name in _IMAGE_FOLDERS)]


class Rows(NamedTuple):
    """What the columns of a sheet are for, and which image each of its rows is about."""

    sheet: Sheet
    columns: Columns
    ids: bool  # whether rows have any names
    root: Path | None
    images: "Images"
    lists: list[list[str] | None] | None  # the names in each row, where labels are lists
    is_long: bool  # whether no row has more than one label


def row_roles(
    sheet: Sheet,
    folders: Sequence[Path],
    *,
    label_columns: Sequence[str] | None = None,
    with_vectors: bool = False,
    report: Report = raise_problem,
) -> Rows:
    """Tell what the columns of a sheet are for, and which image each row is about; see `read`."""
    sheet = with_split(sheet, report)
    columns = find_columns(sheet, label_columns, report, with_vectors=with_vectors)
    ids = with_vectors or has_ids(sheet, columns, folders, report)
    splits = _splits(sheet, columns.split, report)
    root, files = row_names(sheet, columns.file, None if ids else folders, report)
    images = Images.of_rows(files, splits)
    if not images.names:
        what = f"; none of its {counted(len(sheet.places), 'row')} has a file and a split" if sheet.places else ""
        raise DataError(f"{sheet.source}: lists no image{what}")
    lists = None if columns.names is None else _lists(sheet.columns[columns.names], images.repeated)
    is_long = lists is not None and all(names is None or len(names) < 2 for names in lists)
    return Rows(sheet, columns, ids, root, images, lists, is_long)


class Images(NamedTuple):
    """Which image each row is about: a file in a split."""

    names: list[tuple[str, str]]  # (N,) file and split, in the order of the table
    of_row: Indices  # (R,) the image of each row, -1 if it is left out
    first: Indices  # (N,) the first row of each image

    @classmethod
    def of_rows(cls, files: Sequence[str | None], splits: Sequence[str | None]) -> "Images":
        place: dict[tuple[str, str], int] = {}
        of_row = np.array(
            [
                -1 if file is None or split is None else place.setdefault((file, split), len(place))
                for file, split in zip(files, splits, strict=True)
            ],
            np.intp,
        )
        found, first = np.unique(of_row, return_index=True)
        return cls(list(place), of_row, first[found >= 0])

    @property
    def rows(self) -> Indices:
        """The rows that are not left out."""
        return np.flatnonzero(self.of_row >= 0)

    @property
    def row_counts(self) -> Indices:
        """How many rows are about each image, (N,)."""
        return np.bincount(self.of_row[self.rows], minlength=len(self.names))

    @property
    def repeated(self) -> int:
        """How many rows are about an image that others are about, too."""
        counts = self.row_counts
        return int(counts[counts > 1].sum())

    def first_rows_alone(self) -> "Images":
        """Leave out all rows but the first of each image."""
        of_row = np.full(len(self.of_row), -1)
        of_row[self.first] = np.arange(len(self.names))
        return self._replace(of_row=of_row)


def _splits(sheet: Sheet, column: int | None, report: Report) -> list[str | None]:
    """The split of each row, train if it says none; None if it says something else."""
    if column is None:
        return ["train"] * len(sheet.places)
    cells = sheet.columns[column]
    blank = cells.is_blank.tolist()
    splits = ["train" if nothing else split_of(str(cell)) for cell, nothing in zip(cells, blank, strict=True)]
    for row, split in enumerate(splits):
        if split is None:
            report(sheet.bad("bad split", row, column, f"; a split is {', '.join(SPLITS)}"))
    if any(blank):
        where = sheet.where(blank.index(True), column)
        what = f"{counted(sum(blank), 'row')} from here on say nothing, and are for training"
        report(Problem("blank split", where, what, remark=True))
    return splits


def _lists(cells: Column, repeated: int) -> list[list[str] | None]:
    """The names in each cell, by how many rows are about an image that others are about, too.

    Where more rows are than have a comma, and nothing else separates names, each holds one name with its comma.
    """
    if not repeated:
        return cells.lists
    with_comma = [isinstance(cell, str) and "," in cell for cell in cells]
    if sum(with_comma) >= repeated or not all(map(may_be_one_name, cells)):
        return cells.lists
    return [[cell.strip()] if comma else names_in(cell) for cell, comma in zip(cells, with_comma, strict=True)]


def _report_repeats(sheet: Sheet, images: Images, is_long: bool, report: Report) -> None:
    counts = images.row_counts
    repeated = np.flatnonzero(counts > 1)
    if is_long and len(repeated):
        what = f"has several rows for {counted(len(repeated), 'image')}; each has all the labels of its rows"
        report(Problem("rows merged", sheet.source.name, what, remark=True))
        return
    by_image = images.rows[np.argsort(images.of_row[images.rows], kind="stable")]
    ends = np.cumsum(counts)
    for image in repeated.tolist():
        rows = by_image[ends[image] - counts[image] : ends[image]].tolist()
        source, _, first = sheet.places[rows[0]].rpartition(", ")
        numbers = [sheet.places[row].split()[-1] for row in rows]
        times = "twice" if len(rows) == 2 else f"{len(rows)} times"
        lines = f"{first.split()[0]}s {', '.join(numbers[:-1])} and {numbers[-1]}"
        report(Problem("duplicate", source, f"lists {images.names[image][0]} {times} ({lines})"))


def _complete(sheet: Sheet, column: int | None, images: Images, report: Report) -> NDArray[np.bool_]:
    """For each image, whether a row says that it names all positive classes."""
    complete = np.zeros(len(images.names), bool)
    if column is not None:
        labels = sheet.columns[column].labels
        for row in np.flatnonzero(labels == BAD).tolist():
            report(sheet.bad("bad value", row, column, "; a row is complete, true, or not, false"))
        rows = images.rows
        complete[images.of_row[rows[labels[rows] == POSITIVE]]] = True
    return complete


def _read_wide(
    sheet: Sheet,
    images: Images,
    columns: Columns,
    zeros: Zeros,
    unlisted: Unlisted,
    complete: NDArray[np.bool_],
    report: Report,
) -> tuple[list[str], LabelMatrix]:
    cells = [sheet.columns[column] for column in columns.classes]
    labels = np.stack([_said(column, zeros)[images.first] for column in cells], axis=1)
    bad = labels == BAD
    for i, j in np.argwhere(bad):
        what = "; a label is 1 or 0, and the cell stays blank where it is unknown"
        report(sheet.bad("bad value", int(images.first[i]), columns.classes[j], what))
    labels[bad] = UNKNOWN
    _remark_on_minus_one(sheet, columns.classes, report)
    labels[(labels == UNKNOWN) & ~bad & complete[:, None]] = NEGATIVE
    if unlisted == "negative":
        labels[np.stack([column.is_blank[images.first] for column in cells], axis=1)] = NEGATIVE
    elif columns.asked is None:
        _remark_on_zeros(sheet, labels, report)
    return [sheet.header[column] for column in columns.classes], LabelMatrix.of(labels)


def _said(column: Column, zeros: Zeros) -> Labels:
    """The label that each cell says, with 0 as what it means."""
    labels = column.labels
    return np.where(labels == NEGATIVE, UNKNOWN, labels).astype(np.int8) if zeros == "unknown" else labels


def _remark_on_zeros(sheet: Sheet, labels: Labels, report: Report) -> None:
    """A program that knows tags alone writes 0 for whatever is not tagged, and then nothing looks missing."""
    few = (labels == POSITIVE).mean() <= FEW_POSITIVES
    if labels.shape[1] >= MANY_CLASSES and few and not (labels == UNKNOWN).any():
        what = (
            "has no blank, so every 0 is taken for 'somebody looked, and it is not there'; "
            "if it means no more than 'not tagged', add --zeros unknown"
        )
        report(Problem("every label is known", sheet.source.name, what, remark=True))


def _remark_on_minus_one(sheet: Sheet, columns: list[int], report: Report) -> None:
    """-1 is unknown here, and negative elsewhere."""
    for column in columns:
        cells = sheet.columns[column]
        found = np.flatnonzero((cells.labels == UNKNOWN) & ~cells.is_blank)
        if len(found):
            what = ", as other cells may: that is unknown, and negative is 0"
            report(replace(sheet.bad("-1 is unknown", int(found[0]), column, what), remark=True))
            return


def _read_lists(
    sheet: Sheet,
    images: Images,
    columns: Columns,
    lists: list[list[str] | None],
    says: Labels | None,
    complete: NDArray[np.bool_],
    report: Report,
) -> tuple[list[str], LabelMatrix]:
    column = columns.names or 0
    if any(lists) and all(not names or is_vector(names) for names in lists):
        raise DataError(
            f"{sheet.source}: column {sheet.header[column]} holds zeros and ones without the names of what they are "
            "about; write a column per class, or lists of names"
        )
    rows, named = _names_by_row(sheet, column, lists, images, report)
    complete[[images.of_row[row] for row in images.rows.tolist() if lists[row] is None]] = False
    denied_rows, denied = rows[:0], list[str]()
    if columns.negatives is not None:
        negatives = sheet.columns[columns.negatives].lists
        denied_rows, denied = _names_by_row(sheet, columns.negatives, negatives, images, report)
    classes = sorted({*named, *denied})
    if not classes:
        raise DataError(f"{sheet.source}: its column {sheet.header[column]} names no class at all")
    position = {name: i for i, name in enumerate(classes)}
    said = np.concatenate(
        [
            np.full(len(denied), NEGATIVE, np.int8),
            np.full(len(named), POSITIVE, np.int8) if says is None else says[rows],
        ]
    )
    images_named = images.of_row[np.concatenate([denied_rows, rows])]
    cells = images_named * len(classes) + np.array([position[name] for name in (*denied, *named)], np.intp)
    negative = said == NEGATIVE
    both = np.intersect1d(cells[said == POSITIVE], cells[negative]) if negative.any() else cells[:0]
    for image, name in zip(*np.divmod(both, len(classes)), strict=True):
        what = f"says both that {classes[name]} is there and that it is not"
        report(Problem("contradiction", sheet.places[images.first[image]], what))
    order = np.argsort(said, kind="stable")  # of several labels of a cell the last counts
    values = np.append(said[order], np.full(len(both), UNKNOWN, np.int8))
    entries = np.divmod(np.append(cells[order], both), len(classes))
    shape = len(images.names), len(classes)
    return classes, LabelMatrix.from_entries(shape, *entries, values, complete=complete)


def _names_by_row(
    sheet: Sheet, column: int, lists: list[list[str] | None], images: Images, report: Report
) -> tuple[Indices, list[str]]:
    """The names that the rows list, one after another, and the row of each."""
    rows = images.rows.tolist()
    for row in rows:
        if lists[row] is None:
            report(sheet.bad("bad value", row, column, "; write names separated by ; or a JSON list of names"))
    counts = [len(lists[row] or ()) for row in rows]
    return np.repeat(images.rows, counts), [name for row in rows for name in lists[row] or ()]


def _asked(sheet: Sheet, column: int, images: Images, classes: Sequence[str], report: Report) -> LabelMatrix | None:
    position = {name: i for i, name in enumerate(classes)}
    cells = []
    for row, image in zip(images.rows.tolist(), images.of_row[images.rows].tolist(), strict=True):
        names = sheet.columns[column].lists[row]
        if names is None or not position.keys() >= set(names):
            report(sheet.bad("bad value", row, column, "; it lists names of classes"))
        cells += [(image, position[name]) for name in names or () if name in position]
    if not cells:
        return None
    of_image, of_class = zip(*cells, strict=True)
    return LabelMatrix.from_entries((len(images.names), len(classes)), of_image, of_class, POSITIVE, complete=True)


_LOOKED_FOR = 100  # files, to tell whether any is there
SAMPLE = 200  # names by which a folder is chosen
MOST = 200_000  # files and folders that are looked through for images
_UPLOADED = re.compile(r"[0-9a-f]{8}-(?=.)")  # what Label Studio puts before the name of a file


def locate(names: Sequence[str], folders: Sequence[Path]) -> tuple[Path, list[str]]:
    """The folder that images lie in, and their names there.

    Names that are found as they are stay as they are. Else each is looked for by its last parts: a name may begin with
    the folders of another machine, be a URL, or have got a prefix when it was uploaded; and by these among all images
    below the folder, whatever their suffix and its case. What is not found at all, or only where another image is,
    keeps its name. At a URL, files are where their names say: to look for them would be to ask for each.

    Args:
        names: of the images, as written; one may be there many times.
        folders: where they may be, the likeliest first; at least one.
    """
    if is_remote(folders[0]):
        return folders[0], list(names)
    different = list(dict.fromkeys(names))
    some = different[:: -(-len(different) // SAMPLE) or 1]
    by_name = max(folders, key=lambda folder: sum(exists(joined(folder, name)) for name in some))
    if all(exists(joined(by_name, name)) for name in some):
        return by_name, list(names)
    places = [_Place(folder, deep=folder == folders[0] or folder not in folders[0].parents) for folder in folders]
    place = max(places, key=lambda place: sum(place.here(name) is not None for name in some))
    if not any(map(place.here, some)):
        place = max(places, key=lambda place: sum(place.find(name) is not None for name in some))
        if not any(map(place.find, some)):
            return folders[0], list(names)
    found = {name: place.find(name) or name for name in different}
    times = Counter(found.values())
    return place.folder, [found[name] if times[found[name]] == 1 else name for name in names]


class _Place:
    """A folder with images; a deep one with those below it."""

    def __init__(self, folder: Path, *, deep: bool) -> None:
        self.folder = folder
        self.deep = deep

    def here(self, name: str) -> str | None:
        """What an image is called that is found by its name or the end of it."""
        return next((form for form in _spellings(name) if exists(joined(self.folder, form))), None)

    def find(self, name: str) -> str | None:
        """What an image is called here or below."""
        return self.here(name) or (self._below(_path_in(name)) if self.deep else None)

    @cached_property
    def _by_stem(self) -> dict[str, list[tuple[str, ...]]]:
        """The parts of the names of all images below, by the last one without its suffix; of too many, none."""
        found: dict[str, list[tuple[str, ...]]] = defaultdict(list)
        seen = 0
        for parent, folders, files in os.walk(self.folder):
            folders[:] = [each for each in folders if not each.startswith(".")]
            above = Path(parent).relative_to(self.folder).parts
            seen += len(files) + len(folders)
            if seen > MOST:
                return {}
            for file in files:
                stem, suffix = os.path.splitext(file)  # noqa: PTH122 (many times quicker)
                if suffix.lower() in SUFFIXES:
                    found[fold(stem)].append((*above, file))
        return found

    def _below(self, name: str) -> str | None:
        """The one image below whose name ends as this one does, in most of its parts."""
        parts = name.replace("\\", "/").split("/")
        stem, suffix = os.path.splitext(parts[-1])  # noqa: PTH122
        if suffix.lower() not in SUFFIXES:
            stem = parts[-1]
        fitting = self._by_stem.get(fold(stem), [])

        def likeness(file: tuple[str, ...]) -> tuple[int, bool]:
            pairs = zip(reversed(file[:-1]), reversed(parts[:-1]), strict=False)
            shared = sum(1 for _ in takewhile(lambda pair: fold(pair[0]) == fold(pair[1]), pairs))
            return shared, fold(file[-1]) == fold(parts[-1])

        best = max(map(likeness, fitting), default=None)
        nearest = [file for file in fitting if likeness(file) == best]
        return "/".join(nearest[0]) if len(nearest) == 1 else None


def _spellings(name: str) -> Iterator[str]:
    """A name, its `_forms`, and of each both ways to write an é: as one character, or as two, as macOS does."""
    for form in (name, *_forms(name)):
        yield form
        if not form.isascii():
            yield from (normalize(way, form) for way in ("NFC", "NFD"))


def _forms(name: str) -> Iterator[str]:
    """The names that an image may have here.

    >>> list(_forms("/data/upload/1/0a1b2c3d-my%20cat.jpg"))[-2:]
    ['0a1b2c3d-my cat.jpg', 'my cat.jpg']
    >>> next(_forms("/data/local-files/?d=photos/cat.jpg"))
    'photos/cat.jpg'
    """
    path = _path_in(name)
    parts = [part for part in path.replace("\\", "/").split("/") if part not in ("", ".", "..")]
    for first in range(len(parts)):
        yield "/".join(parts[first:])
    if parts and _UPLOADED.match(parts[-1]):
        yield _UPLOADED.sub("", parts[-1], count=1)


def _path_in(name: str) -> str:
    """A name without what makes it a URL."""
    if "://" not in name and not name.startswith("/data/"):
        return name
    try:
        url = urlsplit(name)
    except ValueError:
        return name
    local = parse_qs(url.query).get("d")
    return local[0] if local else unquote(url.path)


# The rows of a table


def has_ids(sheet: Sheet, columns: Columns, folders: Sequence[Path], report: Report) -> bool:
    """Whether rows are texts and nothing else: they name no files, or none that is there."""
    if columns.text is None or columns.file is None:
        return columns.text is not None
    cells = (cell for cell in sheet.columns[columns.file] if isinstance(cell, str) and cell.strip())
    root, names = locate([_as_found(folders[0], cell) for cell in islice(cells, _LOOKED_FOR)], folders)
    if any(exists(joined(root, name)) for name in names):
        return False
    what = f"none of its files is in {folders[0]}; taken for texts with names"
    report(Problem("texts", sheet.source.name, what, remark=True))
    return True


def row_names(
    sheet: Sheet, column: int | None, folders: Sequence[Path] | None, report: Report
) -> tuple[Path | None, list[str | None]]:
    """The folder of the files, and the file of each row as it is found there: it may have another name or place.

    Without folders, rows have the names that they say; without a column, their numbers.
    """
    if column is None:
        return None, [str(number) for number in sheet.numbers]
    cells = [str(cell) if type(cell) is int else cell for cell in sheet.columns[column]]
    written = {row: cell for row, cell in enumerate(cells) if isinstance(cell, str) and cell.strip()}
    for row in range(len(cells)):
        if row not in written:
            report(sheet.bad("no file name", row, column, ", not the name of a file"))
    if folders is None:
        return None, [written.get(row) for row in range(len(cells))]
    odd = list({cell for cell in written.values() if "\\" in cell or cell != cell.strip() or _has_detours(cell)})
    found = dict(zip(odd, all_at_once(partial(_as_found, folders[0]), odd, remote=is_remote(folders[0])), strict=True))
    names = [found.get(cell, cell) for cell in written.values()]
    root, located = locate(names, folders)
    if root != folders[0]:
        report(Problem("found elsewhere", sheet.source.name, f"the images are in {root}", remark=True))
    moved = {old: new for old, new in zip(names, located, strict=True) if old != new}
    if moved:
        old, new = next(iter(moved.items()))
        what = f"{counted(len(moved), 'file')} found by the end of the name, as {old}, which is {new}"
        report(Problem("found elsewhere", sheet.source.name, what, remark=True))
    file_of = dict(zip(written, located, strict=True))
    return root, [file_of.get(row) for row in range(len(cells))]


def _has_detours(file: str) -> bool:
    return "://" not in file and ("//" in file or "./" in file)


def _as_found(root: Path, file: str) -> str:
    """The name of a file as it was written, unless only one without spaces around it or backslashes is there.

    Without detours, so that one file has one name.

    >>> _as_found(Path("photos"), "./cats//tom.jpg")
    'cats/tom.jpg'
    """
    if _has_detours(file):
        file = str(PurePosixPath(file))
    if "\\" not in file and file == file.strip():
        return file
    forms = (file, file.strip(), file.replace("\\", "/"), file.strip().replace("\\", "/"))
    return next((form for form in dict.fromkeys(forms) if is_file(joined(root, form))), file)
