"""Labels as files for onepair and for other programs."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from onepair.data.formats.coco import write_coco
from onepair.data.formats.label_studio import write_label_studio
from onepair.data.label_table import LabelTable
from onepair.data.tables.write_table import MOST_NAMED, write_table
from onepair.data.text_files import is_file, real
from onepair.errors import DataError
from onepair.files import write_atomically, writing
from onepair.labels import POSITIVE, UNKNOWN
from onepair.remote import is_remote


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
