"""Objects in images, as boxes in a CSV file."""

import csv
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from onepair.data.labeltable import LabelTable
from onepair.data.problems import DataError

_COLUMNS = ("file", "class", "xmin", "ymin", "xmax", "ymax")


def object_areas(path: Path, table: LabelTable) -> NDArray[np.float64]:
    """The area (N, L) of the largest box of each class in each image, 0 where there is none.

    The file has the columns file, class, xmin, ymin, xmax and ymax, in one unit within an image. Its files are found in
    the table by their own names, without folders.
    """
    row_of = {PurePosixPath(file).name: row for row, file in enumerate(table.files)}
    column_of = {name: column for column, name in enumerate(table.classes)}
    areas = np.zeros((len(table), len(table.classes)))
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            for number, line in enumerate(csv.DictReader(lines), start=2):
                row = row_of.get(PurePosixPath(line.get("file") or "").name)
                column = column_of.get(line.get("class") or "")
                if row is not None and column is not None:
                    areas[row, column] = max(areas[row, column], _area(line, where=f"{path}, line {number}"))
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read ({error})") from None
    if not areas.any():
        columns = ", ".join(_COLUMNS)
        raise DataError(f"{path}: has no box of an image and a class of the dataset; its columns must be {columns}")
    return areas


def _area(line: dict[str, str], *, where: str) -> float:
    try:
        left, top, right, bottom = (float(line[side]) for side in _COLUMNS[2:])
    except (KeyError, TypeError, ValueError):
        raise DataError(f"{where}: a box is four numbers, {', '.join(_COLUMNS[2:])}") from None
    return max(right - left, 0.0) * max(bottom - top, 0.0)
