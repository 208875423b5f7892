"""What the rows of a table are called, and where they stood: files as they are found, or any names."""

from collections.abc import Sequence
from functools import partial
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from onepair.data.images.tar import joined
from onepair.data.problems import Problem, Report
from onepair.data.tables.cell_values import blanks_of
from onepair.data.tables.column_roles import Columns
from onepair.data.tables.find_images import locate
from onepair.data.tables.sheet import Sheet
from onepair.data.text_files import exists
from onepair.data.vectors.align import Numbered
from onepair.remote import all_at_once, is_remote
from onepair.words import counted

_LOOKED_FOR = 100  # files, to tell whether any is there


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


def texts_of(cells: Sequence[Any]) -> list[str]:
    return ["" if blank else str(cell) for cell, blank in zip(cells, blanks_of(cells).tolist(), strict=True)]


def numbered(sheet: Sheet, vector: int | None, rows: list[list[int]]) -> Numbered:
    """Where the row of each image stood, or which vector it says is its own."""
    if vector is not None:
        return Numbered(np.array([int(sheet.columns[vector][found[0]]) for found in rows]), None)
    numbers = [sheet.numbers[found[0]] if len(found) == 1 else -1 for found in rows]
    return Numbered(np.array(numbers), sheet.total)


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
    for row, cell in enumerate(cells):
        if row not in written:
            report(Problem("no file name", sheet.where(row, column), f"holds {cell!r}, not the name of a file"))
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
    return next((form for form in dict.fromkeys(forms) if exists(joined(root, form))), file)
