"""Label Studio's own JSON: tasks with their annotations."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np

from onepair.data.formats import register_reader
from onepair.data.images.decode import SUFFIXES
from onepair.data.label_table import LabelTable, Problem, Report, raise_problem
from onepair.data.tables.cell_values import split_of
from onepair.data.tables.read_table import Unlisted, locate
from onepair.data.text_files import exists, labels_by_name, read_json, starts_with
from onepair.errors import DataError
from onepair.labels import NEGATIVE, POSITIVE

LOCAL = "/data/local-files/?d="  # before the names of files that Label Studio serves from a folder


class _Task(NamedTuple):
    place: str
    image: str
    split: str
    positives: set[str]
    negatives: set[str]
    looked_at: bool  # whether somebody submitted an annotation, be it an empty one


def detect(path: Path) -> bool:
    """Whether `path` is a .json file with a list in it."""
    return path.suffix.lower() == ".json" and exists(path) and starts_with(path, "[")


@register_reader(
    "label-studio",
    detect=detect,
    description="Label Studio's own JSON: choices and labelled regions",
    layout="a .json file with a list of tasks, and the images beside it or in images/",
    origin="Export, JSON, in a project of Label Studio; and the images",
    at_url="file",
)
def read(
    path: Path, *, unlisted: Unlisted = "unknown", images: Path | None = None, report: Report = raise_problem
) -> LabelTable:
    """Read an export of Label Studio; an image is positive for every choice and every labelled region in it.

    Of several annotations of a task, all count; those that were skipped do not. A class that nobody chose is unknown.
    With unlisted="negative" it is negative where somebody submitted an annotation, and still unknown where nobody
    looked. Images are looked for in `images`, or else beside the file and in `images/`, also by the last parts of their
    names. Two fields of a task's data count, too: `negative`, a list of classes, and `split`. Classes are all that
    are named, sorted; images are in the order of the file.
    """
    tasks = list(_tasks(path, report))
    named = [
        (row, name, value)
        for row, task in enumerate(tasks)
        for value, names in ((NEGATIVE, task.negatives), (POSITIVE, task.positives))  # of which the last counts
        for name in names
    ]
    if not named:
        raise DataError(f"{path}: none of its {len(tasks)} tasks names a class")
    complete = [task.looked_at and unlisted == "negative" for task in tasks]
    classes, labels = labels_by_name(len(tasks), named, complete=complete)
    images_named = [task.image for task in tasks]
    root, files = locate(
        images_named, [images] if images else [path.parent, path.parent / "images", path.parent.parent]
    )
    return LabelTable(
        files=tuple(files),
        classes=tuple(classes),
        labels=labels,
        split=np.array([task.split for task in tasks]),
        root=root,
        places=tuple(task.place for task in tasks),
    )


def write_label_studio(table: LabelTable) -> bytes:
    """A table as tasks to import: positives as choices, known negatives and the split as data of the task.

    Images are named as files that Label Studio serves from the table's folder. The labelling interface needs
    `<Choices name="labels" toName="image" choice="multiple">`. Classes without any known label are not named.
    """
    tasks = []
    for file, split, labels in zip(table.files, table.split.tolist(), table.labels, strict=True):
        positive, negative = (
            [table.classes[column] for column in np.flatnonzero(labels == label)] for label in (POSITIVE, NEGATIVE)
        )
        chosen = {"from_name": "labels", "to_name": "image", "type": "choices", "value": {"choices": positive}}
        annotations = [{"result": [chosen] if positive else []}] if positive or negative else []
        data = {"image": LOCAL + quote(file), "split": split, "negative": negative}
        tasks.append({"data": data, "annotations": annotations})
    return json.dumps(tasks, ensure_ascii=False, indent=1).encode()


def _tasks(path: Path, report: Report) -> Iterator[_Task]:
    document = read_json(path)
    if not isinstance(document, list) or not document:
        raise DataError(f"{path}: holds no list of tasks; export the project as JSON")
    seen: dict[tuple[str, str], str] = {}
    for index, task in enumerate(document):
        place = f"{path.name}, task {index + 1}"
        if isinstance(task, dict) and "data" not in task and "image" in task:
            raise DataError(
                f"{path}: is JSON-MIN, which cannot say whether somebody looked; export the project as JSON"
            )
        image = _image(task)
        if image is None:
            report(Problem("bad entry", place, "names no image in its data"))
            continue
        split = split_of(str(task["data"].get("split"))) or "train"
        if seen.setdefault((image, split), place) != place:
            report(Problem("duplicate", place, f"is about {image} again, after {seen[image, split]}"))
            continue
        submitted = list(_submitted(task))
        positives = {name for annotation in submitted for name in _names(annotation, place, report)}
        negatives = task["data"].get("negative")
        said = {name.strip() for name in negatives if _is_name(name)} if isinstance(negatives, list) else set()
        yield _Task(place, image, split, positives, said - positives, bool(submitted))


def _image(task: Any) -> str | None:
    """What a task shows: its `image`, else the first of its data that is named like one."""
    data = task.get("data") if isinstance(task, dict) else None
    if not isinstance(data, dict):
        return None
    texts = [value for key, value in sorted(data.items(), key=lambda item: item[0] != "image") if _is_name(value)]
    if not texts:
        return None
    image = data.get("image")
    return image if _is_name(image) else next((text for text in texts if Path(text).suffix.lower() in SUFFIXES), None)


def _submitted(task: dict[str, Any]) -> Iterator[dict[str, Any]]:
    annotations = task.get("annotations", task.get("completions"))
    for annotation in annotations if isinstance(annotations, list) else []:
        if isinstance(annotation, dict) and not annotation.get("was_cancelled"):
            yield annotation


def _names(annotation: dict[str, Any], place: str, report: Report) -> Iterator[str]:
    """The choices of an annotation, and the labels of its regions."""
    results = annotation.get("result")
    for result in results if isinstance(results, list) else []:
        kind = result.get("type") if isinstance(result, dict) else None
        if kind != "choices" and not (isinstance(kind, str) and kind.endswith("labels")):
            continue
        value = result.get("value")
        names = value.get(kind) if isinstance(value, dict) else None
        if isinstance(names, list) and all(_is_name(name) for name in names):
            yield from (name.strip() for name in names)
        else:
            report(Problem("bad entry", place, f"has {kind} without a list of names"))


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())
