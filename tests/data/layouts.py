"""Small datasets in the layouts of the official releases. Each function writes one and returns the path to read."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet

from onepair.data.formats.research import VOC_CLASSES


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


def lines(*texts: object) -> str:
    return "".join(f"{text}\n" for text in texts)


def voc(folder: Path, *, year: int = 2012) -> Path:
    """Train: two images, out of order; val: one. 2008_000002 has a person, and a dog that is only difficult."""
    marks = {
        "train": {"2009_000001": {"dog": 1, "cat": 1}, "2008_000002": {"person": 1, "dog": 0}},
        "val": {"2008_000001": {"aeroplane": 1}},
    }
    for split, images in marks.items():
        for name in VOC_CLASSES:
            rows = [f"{image} {values.get(name, -1):2d}" for image, values in images.items()]
            write(folder / "VOCdevkit" / f"VOC{year}" / "ImageSets" / "Main" / f"{name}_{split}.txt", lines(*rows))
    return folder


CATEGORIES = [{"id": 18, "name": "dog"}, {"id": 1, "name": "cat"}]


def instances(split: str, annotations: list[tuple[int, int]], images: list[int]) -> str:
    """The json of a COCO split; annotations are pairs of an image and a category."""
    document = {
        "images": [{"id": image, "file_name": f"COCO_{split}_{image:012d}.jpg"} for image in images],
        "annotations": [{"id": 7, "image_id": image, "category_id": category} for image, category in annotations],
        "categories": CATEGORIES,
    }
    return json.dumps(document)


def coco_2014(folder: Path) -> Path:
    """Train: images 9, 10, 25 and 30, the last without annotations; val: image 5."""
    train = instances("train2014", [(9, 18), (25, 1), (10, 1), (10, 18), (10, 18)], [9, 10, 25, 30])
    write(folder / "annotations" / "instances_train2014.json", train)
    write(folder / "annotations" / "instances_val2014.json", instances("val2014", [(5, 18)], [5]))
    return folder


def coco_file(folder: Path) -> Path:
    """Images 10, 9 and 30, in that order, the last without annotations."""
    return write(folder / "birds.json", instances("any", [(9, 18), (10, 1)], [10, 9, 30]))


def nuswide_published(folder: Path) -> Path:
    """Three train images and one of val, three concepts, without their names."""
    arrays = {
        "train_images": np.array(["b/2.jpg", "a\\1.jpg", "c/3.jpg"]),
        "train_labels": np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0], [0.0, 0.0, 0.0]]),
        "val_images": np.array(["d/4.jpg"]),
        "val_labels": np.array([[0.0, 0.0, 1.0]]),
    }
    for name, array in arrays.items():
        np.save(folder / f"formatted_{name}.npy", array)
    return folder


def nuswide_official(folder: Path) -> Path:
    """Two train images and one of test, two concepts, lines ended as on Windows."""
    columns = {"Train": {"sky": (1, 0), "airport": (1, 1)}, "Test": {"sky": (0,), "airport": (1,)}}
    write(folder / "ConceptsList" / "Concepts81.txt", "sky\r\nairport\r\n")
    write(folder / "ImageList" / "TrainImagelist.txt", "zoo\\0002_2.jpg\r\nactor\\0001_1.jpg\r\n")
    write(folder / "ImageList" / "TestImagelist.txt", "sea\\0003_3.jpg\r\n")
    for split, concepts in columns.items():
        for concept, values in concepts.items():
            path = folder / "Groundtruth" / "TrainTestLabels" / f"Labels_{concept}_{split}.txt"
            write(path, "".join(f"{value}\r\n" for value in values))
    return folder


def cub(folder: Path) -> Path:
    """Three images, two attributes; one line has a stray field, and attributes.txt lies beside the folder."""
    root = folder / "CUB_200_2011"
    write(folder / "attributes.txt", lines("1 has_bill_shape::dagger", "2 has_size::small"))
    write(root / "images.txt", lines("1 001.Albatross/b.jpg", "2 001.Albatross/a.jpg", "3 002.Tern/c.jpg"))
    write(root / "train_test_split.txt", lines("1 0", "2 1", "3 1"))
    labels = ("1 1 0 3 27.7", "1 2 1 3 27.7", "2 1 1 1 0 1.5", "2 2 0 4 3.9", "3 1 0 1 0", "3 2 0 1 0")
    write(root / "attributes" / "image_attribute_labels.txt", lines(*labels))
    return folder


def csv_wide(folder: Path) -> Path:
    return write(folder / "labels.csv", lines("file,split,cat,dog", "a.jpg,train,1,0", '"b,1.jpg",test,,1'))


def csv_lists(folder: Path) -> Path:
    return write(folder / "labels.csv", lines("file,labels", "a.jpg,dog;cat", 'b.jpg,"[""cat""]"', "c.jpg,"))


def parquet(folder: Path) -> Path:
    columns: Mapping[str, list[object]] = {"file": ["a.jpg", "b.jpg"], "cat": [1, None], "dog": [False, True]}
    pyarrow.parquet.write_table(pyarrow.table(columns), folder / "labels.parquet")
    return folder / "labels.parquet"


def coco_subset(folder: Path) -> Path:
    """As CVAT exports it."""
    write(folder / "annotations" / "instances_default.json", instances("any", [(9, 18), (10, 1)], [10, 9, 30]))
    return folder


def task(image: str, *choices: str, **data: object) -> dict[str, object]:
    """A task of Label Studio with one annotation."""
    result = {"from_name": "tag", "to_name": "img", "type": "choices", "value": {"choices": list(choices)}}
    return {"data": {"image": image, **data}, "annotations": [{"result": [result] if choices else []}]}


def label_studio(folder: Path) -> Path:
    """Two tasks with choices, an empty one, and one that nobody did."""
    tasks = [task("a.jpg", "dog", "cat"), task("b.jpg", "cat"), task("c.jpg"), {"data": {"image": "d.jpg"}}]
    return write(folder / "tasks.json", json.dumps(tasks))


def huggingface(folder: Path) -> Path:
    objects = [{"file_name": "a.jpg", "tags": ["dog", "cat"]}, {"file_name": "b.jpg", "tags": ["cat"]}]
    write(folder / "metadata.jsonl", lines(*map(json.dumps, objects)))
    return folder


def json_lines(folder: Path) -> Path:
    return write(folder / "labels.jsonl", lines('{"file": "a.jpg", "cat": true}', '{"file": "b.jpg", "cat": 0}'))


def csv_long(folder: Path) -> Path:
    return write(folder / "labels.csv", lines("file,label", "a.jpg,dog", "b.jpg,cat", "a.jpg,cat"))


LAYOUTS: dict[str, Callable[[Path], Path]] = {
    "voc": voc,
    "coco, 2014": coco_2014,
    "coco, file": coco_file,
    "nuswide, published": nuswide_published,
    "nuswide, official": nuswide_official,
    "cub": cub,
    "table, wide": csv_wide,
    "table, lists": csv_lists,
    "table, parquet": parquet,
    "table, long": csv_long,
    "table, json lines": json_lines,
    "coco, subset": coco_subset,
    "label-studio": label_studio,
    "huggingface": huggingface,
}
