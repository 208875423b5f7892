"""Folders of images: one per class, or with metadata files as those of Hugging Face's datasets."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from onepair.data.formats import register_reader
from onepair.data.images.decode import SUFFIXES
from onepair.data.images.image_files import walk
from onepair.data.label_table import SPLITS, LabelTable, Report, raise_problem
from onepair.data.tables.cell_values import Column, split_of
from onepair.data.tables.read_table import Unlisted, Zeros, interpret
from onepair.data.tables.sheet import Sheet, file_column, is_sheet, read_sheet, stack
from onepair.data.text_files import entries, labels_by_name
from onepair.errors import DataError
from onepair.labels import POSITIVE


def detect_folders(path: Path) -> bool:
    """Whether the folder `path` holds two or more folders of images, perhaps in train/ and the like, and no labels."""
    if any(is_sheet(each) or each.suffix.lower() == ".json" for each in entries(path)):
        return False
    names = {name for folder in _splits(path) for name in classes_in(folder)}
    return len(names) > 1 and not all(split_of(name.rstrip("0123456789")) for name in names)


@register_reader(
    "folders",
    detect=detect_folders,
    description="one label per image: a folder of images per class",
    layout="a folder with two or more folders of images, or with those in train/, val/ and test/",
    last=True,
    at_url="folder",
)
def read_folders(path: Path, *, unlisted: Unlisted = "unknown", report: Report = raise_problem) -> LabelTable:
    """Read a folder per class: an image is positive for the class whose folder it is in or below.

    The folders of the classes may be in others that are named after splits, as train/, val/ and test/; else all images
    are "train". Rows are in the order of splits, classes and files; classes are sorted.
    """
    found = [
        (split, name, file)
        for folder, split in sorted(_splits(path).items(), key=lambda item: (SPLITS.index(item[1]), item[0]))
        for name in classes_in(folder)
        for file in walk(folder / name)
    ]
    if not found:
        raise DataError(f"{path}: holds no folder with images; the layout is one folder per class, as dog/1.jpg")
    splits, names, files = zip(*found, strict=True)
    named = [(row, name, POSITIVE) for row, name in enumerate(names)]
    classes, labels = labels_by_name(len(found), named, complete=unlisted == "negative")
    return LabelTable(
        files=tuple(file.relative_to(path).as_posix() for file in files),
        classes=tuple(classes),
        labels=labels,
        split=np.array(splits),
        root=path,
    )


def _splits(path: Path) -> dict[Path, str]:
    """The folders that hold those of the classes, and the split of each."""
    named = {folder: split_of(folder.name) for folder in _folders(path)}
    if named and all(split and classes_in(folder) for folder, split in named.items()):
        return {folder: split for folder, split in named.items() if split}
    return {path: "train"}


def classes_in(path: Path) -> list[str]:
    """The folders in a folder that hold images, by their names."""
    return [
        folder.name for folder in _folders(path) if any(each.suffix.lower() in SUFFIXES for each in entries(folder))
    ]


def _folders(path: Path) -> list[Path]:
    return [each for each in entries(path) if each.is_dir()]


_METADATA = ("metadata.jsonl", "metadata.csv", "metadata.parquet", "_classes.csv")  # the last is Roboflow's
_SPLIT_FOLDERS = ("train", "training", "val", "valid", "validation", "dev", "test", "testing")


def detect_metadata(path: Path) -> bool:
    """Whether there is a metadata file in the folder `path`, or in train/, test/ and the like in it."""
    return bool(_sources(path))


@register_reader(
    "huggingface",
    detect=detect_metadata,
    description="an image folder of Hugging Face's datasets, with metadata",
    layout="a folder with metadata.jsonl, .csv or .parquet, or with train/, test/ and others that hold one",
    at_url="folder",
)
def read_metadata(
    path: Path,
    *,
    unlisted: Unlisted = "unknown",
    zeros: Zeros = "negative",
    label_columns: Sequence[str] | None = None,
    report: Report = raise_problem,
) -> LabelTable:
    """Read `metadata.jsonl`, `.csv` or `.parquet`: in the folder, or one in each folder that is named after a split.

    A metadata file is a table as any other, with a column `file_name` relative to itself; see
    `onepair.data.tables.read_table`.
    """
    sources = _sources(path)
    if not sources:
        raise DataError(f"{path}: no {', '.join(_METADATA)} in it, nor in train/, validation/ or test/ in it")

    sheets = [_placed(read_sheet(source, report), source.parent.relative_to(path)) for source in sources]
    sheet = stack(sheets, path)
    return interpret(sheet, [path], unlisted=unlisted, zeros=zeros, label_columns=label_columns, report=report)


def _sources(path: Path) -> list[Path]:
    folders = [path, *(path / split for split in _SPLIT_FOLDERS)]
    found = (next((folder / name for name in _METADATA if is_sheet(folder / name)), None) for folder in folders)
    return [source for source in found if source is not None]


def _placed(sheet: Sheet, folder: Path) -> Sheet:
    """A sheet with its files and places named from the folder above, and the split that its own folder names."""
    split, column = split_of(folder.name), file_column(sheet.header)
    if column is None:
        raise DataError(f"{sheet.source}: no column named file_name among its columns {', '.join(sheet.header[:5])}")
    files = [(folder / cell).as_posix() if isinstance(cell, str) and cell else cell for cell in sheet.columns[column]]
    header, columns = ["file", *sheet.header], [Column(files), *sheet.columns]
    del header[column + 1], columns[column + 1]
    if split is not None and sheet.find("split") is None:
        header, columns = [*header, "split"], [*columns, Column([split] * len(files))]
    return replace(sheet, header=header, columns=columns, places=[f"{folder / place}" for place in sheet.places])
