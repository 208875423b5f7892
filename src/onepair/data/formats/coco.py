"""COCO instance annotations: the 2014 release, or any files in the same form, as those of Label Studio and CVAT."""

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from onepair.data.formats import register_reader
from onepair.data.label_table import SPLITS, LabelTable, Problem, Report, raise_problem
from onepair.data.tables.cell_values import split_of
from onepair.data.tables.read_table import Unlisted, locate
from onepair.data.text_files import exists, join_splits, read_json, starts_with
from onepair.errors import DataError
from onepair.label_matrix import LabelMatrix
from onepair.labels import NEGATIVE, POSITIVE
from onepair.remote import NonLocalPath

Id = int | str

_OFFICIAL_SPLITS = {"train2014": "train", "val2014": "test"}
_ROBOFLOW = "_annotations.coco.json"  # in the folder of each subset, with its images
_LISTS = ("categories", "images", "annotations")


class _Instances(NamedTuple):
    classes: list[str]
    files: dict[Id, str]  # by image, in the order of the file
    positives: dict[Id, set[int]]  # columns by image; images without any annotation are not in it
    negatives: dict[Id, set[int]]  # as the file says them
    splits: dict[Id, str]


def detect(path: Path) -> bool:
    """Whether `path` is a .json file with an object in it, or a folder with such files in `annotations/`."""
    if path.suffix.lower() == ".json":
        return exists(path) and not starts_with(path, "[")
    return bool(_subsets(path))


@register_reader(
    "coco",
    detect=detect,
    description="COCO 2014, or instance annotations in the same form, for example of Label Studio and CVAT",
    layout="a folder with annotations/instances_{train,val}2014.json, train2014/ and val2014/; a .json file; "
    "or a folder with annotations/instances_{default,train,val,test}.json",
    origin="annotations_trainval2014.zip, train2014.zip and val2014.zip from cocodataset.org",
    at_url="file",
)
def read(
    path: Path, *, unlisted: Unlisted = "unknown", images: Path | None = None, report: Report = raise_problem
) -> LabelTable:
    """Read COCO instance annotations; an image is positive for the categories of its instances.

    COCO 2014 is a folder, read by the protocol of the published results: train2014 as "train", then val2014 as "test",
    image ids sorted as strings, images without any annotation left out, classes in the order of the json, and every
    category that an image has no instance of is negative.

    Any other json file is read as it stands: all images as "train", in its order, those without annotations too. What
    it does not list is unknown, unless `unlisted` says otherwise; categories in an image's `neg_category_ids` are
    negative, and its `split` counts. A folder may hold one such file per subset, as CVAT writes them,
    `annotations/instances_{default,train,val,test}.json`, or Roboflow, `train/_annotations.coco.json`.

    Args:
        path: the folder around `annotations/`, or a json file.
        unlisted: what a category is that an image has no instance of: "unknown" or "negative".
        images: the folder that file names are relative to; without it, the images of COCO 2014 are looked for in
            `train2014/` or `images/train2014/`, those of other files beside the json, in `images/` and
            `images/default/` there and one folder up; where only the last parts of a name are found, by these.
        report: called with every problem; the default stops at the first one.
    """
    if path.suffix.lower() == ".json":
        return _read_file(path, "train", unlisted, [images] if images else _folders_of(path), report)
    subsets = _subsets(path)
    if not subsets or subsets.keys() & _OFFICIAL_SPLITS:
        return _read_2014(path, images, report)
    return _read_subsets(path, subsets, unlisted, images, report)


def write_coco(table: LabelTable) -> bytes:
    """A table as COCO's json: an annotation without a box per positive label, known negatives as `neg_category_ids`.

    That field is LVIS's; with `split`, another one that other programs pass over, it is what `read` needs to give the
    same labels back.
    """
    rows = zip(table.files, table.split.tolist(), table.labels, strict=True)
    document = {
        "categories": [{"id": column + 1, "name": name} for column, name in enumerate(table.classes)],
        "images": [
            {
                "id": image + 1,
                "file_name": file,
                "split": split,
                "neg_category_ids": (np.flatnonzero(row == NEGATIVE) + 1).tolist(),
            }
            for image, (file, split, row) in enumerate(rows)
        ],
        "annotations": [
            {"id": number, "image_id": image + 1, "category_id": column + 1}
            for number, (image, column) in enumerate(np.stack(table.labels.positives(), axis=1).tolist(), start=1)
        ],
    }
    return json.dumps(document, ensure_ascii=False, indent=1).encode()


def _read_2014(path: Path, images: Path | None, report: Report) -> LabelTable:
    root = images or path
    parts: dict[str, tuple[list[str], LabelMatrix]] = {}
    classes: list[str] = []
    for official, split in _OFFICIAL_SPLITS.items():
        source = _annotations(path, official)
        instances = _read_instances(source, report)
        classes = classes or instances.classes
        _check_same(source, classes, instances.classes)
        annotated = sorted(instances.positives, key=str)
        folder = f"images/{official}" if exists(root / "images" / official) else official
        files = [f"{folder}/{instances.files[image]}" for image in annotated]
        if not annotated:
            raise DataError(f"{source}: annotates no image")
        parts[split] = files, _label_matrix(instances, annotated, complete=True)
    return join_splits(parts, classes=classes, root=root)


def _read_file(source: Path, split: str, unlisted: Unlisted, folders: Sequence[Path], report: Report) -> LabelTable:
    instances = _read_instances(source, report)
    if not instances.files:
        raise DataError(f"{source}: lists no image")
    images = list(instances.files)
    root, files = locate(list(instances.files.values()), folders)
    return LabelTable(
        files=tuple(files),
        classes=tuple(instances.classes),
        labels=_label_matrix(instances, images, complete=unlisted == "negative"),
        split=np.array([instances.splits.get(image, split) for image in images]),
        root=root,
    )


def _read_subsets(
    path: Path, subsets: dict[str, Path], unlisted: Unlisted, images: Path | None, report: Report
) -> LabelTable:
    """The files of a folder, one under the other, each with the split that it is named after."""
    parts = []
    for subset, source in subsets.items():
        folders = [images] if images else [path / "images" / subset, path / "images", path / subset, path]
        parts.append(_read_file(source, _split(subset) or "train", unlisted, folders, report))
        _check_same(source, parts[0].classes, parts[-1].classes)
    return LabelTable(
        files=tuple(os.path.relpath(part.path(row), path) for part in parts for row in range(len(part))),
        classes=parts[0].classes,
        labels=LabelMatrix.stacked([part.labels for part in parts]),
        split=np.concatenate([part.split for part in parts]),
        root=path,
    )


def _folders_of(source: Path) -> list[Path]:
    """Where the images of an annotation file may be: beside it or one folder up, there perhaps in `images/`."""
    around, subset = (source.parent, source.parent.parent), source.stem.removeprefix("instances_")
    names = ("", "images", "images/default", subset, f"images/{subset}")
    return [folder / name for folder in around for name in names]


def _annotations(path: Path, official_split: str) -> Path:
    return path / "annotations" / f"instances_{official_split}.json"


def _subsets(path: Path) -> dict[str, Path]:
    """The annotation files of a folder by their subsets, as CVAT, COCO 2017 and Roboflow name them, training first."""
    if isinstance(path, NonLocalPath):
        return {}
    try:
        found = {source.stem.removeprefix("instances_"): source for source in path.glob("annotations/instances_*.json")}
        found = found or {source.parent.name: source for source in path.glob(f"*/{_ROBOFLOW}")}
    except (OSError, ValueError):  # a name that no file system takes
        found = {}
    known = [name for name in sorted(found) if name == "default" or _split(name)]
    return {name: found[name] for name in sorted(known, key=lambda name: SPLITS.index(_split(name) or "train"))}


def _split(subset: str) -> str | None:
    """The split that a subset is, as of `val2017`."""
    return split_of(subset.rstrip("0123456789"))


def _check_same(source: Path, first: Sequence[str], classes: Sequence[str]) -> None:
    if classes != first:
        raise DataError(f"{source}: its categories are not those of the file before it; take all from one release")


def _label_matrix(instances: _Instances, images: Sequence[Id], *, complete: bool) -> LabelMatrix:
    said = ((NEGATIVE, instances.negatives), (POSITIVE, instances.positives))  # of which the last counts
    cells = [
        (row, column, value)
        for row, image in enumerate(images)
        for value, named in said
        for column in named.get(image, ())
    ]
    entries = np.array(cells, np.int64).reshape(-1, 3).T
    return LabelMatrix.from_entries((len(images), len(instances.classes)), *entries, complete=complete)


def _read_instances(source: Path, report: Report) -> _Instances:
    document = _load(source)
    columns: dict[Id, int] = {}
    names: dict[str, int] = {}
    for where, category, name in _entries(document, "categories", ("id", "name"), source, report):
        if category in columns or str(name).strip() in names:
            report(Problem("duplicate", where, f"names category {name!r}, id {category!r}, again"))
        columns.setdefault(category, names.setdefault(str(name).strip(), len(names)))
    if not names:
        raise DataError(f"{source}: lists no categories")

    files: dict[Id, str] = {}
    for where, image, file in _entries(document, "images", ("id", "file_name"), source, report):
        if image in files:
            report(Problem("duplicate", where, f"gives image {image!r} again"))
        files.setdefault(image, str(file))
    negatives, splits = _said_of_images(document["images"], columns)

    positives: dict[Id, set[int]] = {}
    for where, image, category in _entries(document, "annotations", ("image_id", "category_id"), source, report):
        if image in files and category in columns:
            positives.setdefault(image, set()).add(columns[category])
        else:
            kind, name = ("image", image) if image not in files else ("category", category)
            report(Problem("bad entry", where, f"is about {kind} {name!r}, which the file does not list"))
    return _Instances(list(names), files, positives, negatives, splits)


def _said_of_images(images: list[Any], columns: dict[Id, int]) -> tuple[dict[Id, set[int]], dict[Id, str]]:
    """What some files say of their images: the categories known to be absent, and the split."""
    negatives: dict[Id, set[int]] = {}
    splits: dict[Id, str] = {}
    for entry in images:
        if not isinstance(entry, dict) or not isinstance(entry.get("id"), Id):
            continue
        absent, split = entry.get("neg_category_ids"), entry.get("split")
        if isinstance(absent, list):
            negatives[entry["id"]] = {columns[each] for each in absent if isinstance(each, Id) and each in columns}
        if isinstance(split, str) and split_of(split):
            splits[entry["id"]] = split_of(split) or split
    return negatives, splits


def _load(source: Path) -> dict[str, list[Any]]:
    document = read_json(source)
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
