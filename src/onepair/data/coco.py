"""COCO instance annotations: the 2014 release, or any one file in the same form."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from onepair.data.labeltable import LabelTable
from onepair.data.problems import DataError, Problem, Report, refuse
from onepair.data.sources import exists, join_splits, read_text
from onepair.labels import POSITIVE, Labels

Id = int | str

_OFFICIAL_SPLITS = {"train2014": "train", "val2014": "test"}
_LISTS = ("categories", "images", "annotations")


class _Instances(NamedTuple):
    classes: list[str]
    files: dict[Id, str]  # by image, in the order of the file
    positives: dict[Id, set[int]]  # columns by image; images without any annotation are not in it


def detect(path: Path) -> bool:
    """Whether `path` is a .json file, or a folder with the annotations of COCO 2014."""
    return exists(path) and (path.suffix.lower() == ".json" or exists(_annotations(path, "train2014")))


def read(path: Path, *, images: Path | None = None, report: Report = refuse) -> LabelTable:
    """Read COCO instance annotations; an image is positive for the categories of its instances, negative for others.

    A folder is read by the protocol of the published results: train2014 as "train", then val2014 as "test", image ids
    sorted as strings, images without any annotation left out, classes in the order of the json.

    A json file is read as it stands: all images as "train", in its order; images without annotations are kept, as
    verified to show none of the classes.

    Args:
        path: the folder around `annotations/`, or a json file.
        images: the folder that file names are relative to; without it, the images of COCO 2014 are looked for in
            `train2014/` or `images/train2014/`, those of a json file beside it or in `images/` beside it.
        report: called with every problem; the default stops at the first one.
    """
    return _read_file(path, images, report) if path.suffix.lower() == ".json" else _read_2014(path, images, report)


def _read_2014(path: Path, images: Path | None, report: Report) -> LabelTable:
    root = images or path
    parts: dict[str, tuple[list[str], Labels]] = {}
    classes: list[str] = []
    for official, split in _OFFICIAL_SPLITS.items():
        source = _annotations(path, official)
        instances = _read_instances(source, report)
        classes = classes or instances.classes
        if instances.classes != classes:
            raise DataError(f"{source}: its categories are not those of train2014; take both files from one release")
        annotated = sorted(instances.positives, key=str)
        folder = f"images/{official}" if exists(root / "images" / official) else official
        files = [f"{folder}/{instances.files[image]}" for image in annotated]
        parts[split] = files, _label_matrix(instances, annotated)
    return join_splits(parts, classes=classes, root=root)


def _read_file(path: Path, images: Path | None, report: Report) -> LabelTable:
    instances = _read_instances(path, report)
    files = list(instances.files.values())
    root = images or _folder_of_images(path.parent, files)
    return join_splits(
        {"train": (files, _label_matrix(instances, list(instances.files)))}, classes=instances.classes, root=root
    )


def _annotations(path: Path, official_split: str) -> Path:
    return path / "annotations" / f"instances_{official_split}.json"


def _folder_of_images(folder: Path, files: list[str]) -> Path:
    """Where the first image lies: beside the json unless it is found in `images/`."""
    beside = not files or exists(folder / files[0])
    return folder / "images" if not beside and exists(folder / "images" / files[0]) else folder


def _label_matrix(instances: _Instances, images: Sequence[Id]) -> Labels:
    labels = np.zeros((len(images), len(instances.classes)), np.int8)
    for row, image in zip(labels, images, strict=True):
        row[list(instances.positives.get(image, ()))] = POSITIVE
    return labels


def _read_instances(source: Path, report: Report) -> _Instances:
    document = _load(source)
    columns: dict[Id, int] = {}
    names: dict[str, int] = {}
    for where, category, name in _entries(document, "categories", ("id", "name"), source, report):
        if category in columns or str(name) in names:
            report(Problem("duplicate", where, f"names category {name!r}, id {category!r}, again"))
        columns.setdefault(category, names.setdefault(str(name), len(names)))
    if not names:
        raise DataError(f"{source}: lists no categories")

    files: dict[Id, str] = {}
    for where, image, file in _entries(document, "images", ("id", "file_name"), source, report):
        if image in files:
            report(Problem("duplicate", where, f"gives image {image!r} again"))
        files.setdefault(image, str(file))

    positives: dict[Id, set[int]] = {}
    for where, image, category in _entries(document, "annotations", ("image_id", "category_id"), source, report):
        if image in files and category in columns:
            positives.setdefault(image, set()).add(columns[category])
        else:
            kind, name = ("image", image) if image not in files else ("category", category)
            report(Problem("bad entry", where, f"is about {kind} {name!r}, which the file does not list"))
    return _Instances(list(names), files, positives)


def _load(source: Path) -> dict[str, list[Any]]:
    text = read_text(source)
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise DataError(f"{source}, line {error.lineno}: is not JSON ({error.msg}); is the file complete?") from None
    except (RecursionError, ValueError) as error:  # nested too deeply, a number too long
        raise DataError(f"{source}: is not JSON that can be read ({error})") from None
    for key in _LISTS:
        if not isinstance(document, dict) or not isinstance(document.get(key), list):
            raise DataError(f"{source}: has no list {key!r}; COCO's instance files hold {', '.join(_LISTS)}")
    return {key: document[key] for key in _LISTS}


def _entries(
    document: dict[str, list[Any]], key: str, fields: tuple[str, str], source: Path, report: Report
) -> Iterator[tuple[str, Id, Id]]:
    """Where an entry stands and the two of its fields that matter, for every entry that has them."""
    for index, entry in enumerate(document[key]):
        where = f"{source.name}, {key}[{index}]"
        first, second = (entry.get(field) if isinstance(entry, dict) else None for field in fields)
        if isinstance(first, Id) and isinstance(second, Id) and second != "":
            yield where, first, second
        else:
            report(Problem("bad entry", where, f"needs {fields[0]} and {fields[1]}, each a number or a text"))
