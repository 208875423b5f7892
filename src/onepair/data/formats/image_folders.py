"""A folder of images per class, as for torchvision's ImageFolder and YOLO's classifiers."""

from pathlib import Path

import numpy as np

from onepair.data.formats import register_reader
from onepair.data.images.decode import SUFFIXES
from onepair.data.images.image_files import walk
from onepair.data.label_table import SPLITS, LabelTable, Report, raise_problem
from onepair.data.tables.cell_values import split_of
from onepair.data.tables.read_table import Unlisted
from onepair.data.tables.sheet import is_sheet
from onepair.data.text_files import entries, labels_by_name
from onepair.errors import DataError
from onepair.labels import POSITIVE


def detect(path: Path) -> bool:
    """Whether the folder `path` holds two or more folders of images, perhaps in train/ and the like, and no labels."""
    if any(is_sheet(each) or each.suffix.lower() == ".json" for each in entries(path)):
        return False
    names = {name for folder in _splits(path) for name in classes_in(folder)}
    return len(names) > 1 and not all(split_of(name.rstrip("0123456789")) for name in names)


@register_reader(
    "folders",
    detect=detect,
    description="one label per image: a folder of images per class",
    layout="a folder with two or more folders of images, or with those in train/, val/ and test/",
    last=True,
    at_url="folder",
)
def read(path: Path, *, unlisted: Unlisted = "unknown", report: Report = raise_problem) -> LabelTable:
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
