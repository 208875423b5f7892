import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

from onepair.data import DataError, LabelTable, read_dataset, write_labels
from onepair.data.formats import coco
from onepair.data.formats import label_studio as labelstudio
from onepair.data.formats import write as writing
from onepair.data.formats.write import WRITTEN, named_from
from onepair.label_matrix import LabelMatrix
from tests.data.test_cell_values import known, labelled, odd_names, thorough


def example(root=Path()):
    labels = np.array([[1, 0, 1], [-1, 1, -1], [0, 0, 0], [-1, -1, -1]], np.int8)
    files = ("a.jpg", "b c.jpg", "sub/c.jpg", "d.jpg")
    return LabelTable(files, ("dog", "cat", "=x"), labels, np.array(["train", "test", "validation", "train"]), root)


@pytest.mark.parametrize("format", ["csv", "parquet", "coco", "label-studio"])
@thorough
@given(written=labelled(odd_names).filter(lambda table: (table.labels != -1).any()))
def test_labels_come_back_from_every_format_that_can_say_them(tmp_path, format, written):
    path = tmp_path / f"labels.{format if format in ('csv', 'parquet') else 'json'}"
    write_labels(written, path, format=format)
    images = [tmp_path / file for file in written.files]
    for image in images:
        image.touch()
    found = read_dataset(path)
    assert known(found) == known(written)
    assert found.files == written.files
    assert found.split.tolist() == written.split.tolist()


def test_fiftyone_gets_the_positive_classes_of_whole_paths(tmp_path):
    write_labels(example(tmp_path), tmp_path / "labels.json", format="fiftyone")
    document = json.loads((tmp_path / "labels.json").read_text())
    assert document["classes"] == ["dog", "cat", "=x"]
    root = tmp_path.resolve()
    assert document["labels"] == {
        str(root / "a.jpg"): [0, 2],
        str(root / "b c.jpg"): [1],
        str(root / "sub/c.jpg"): [],
        str(root / "d.jpg"): None,
    }


def test_label_studio_gets_tasks_that_nobody_did_where_nothing_is_known(tmp_path):
    write_labels(example(), tmp_path / "tasks.json", format="label-studio")
    tasks = json.loads((tmp_path / "tasks.json").read_text())
    assert [len(task["annotations"]) for task in tasks] == [1, 1, 1, 0]
    assert tasks[1]["data"]["image"] == "/data/local-files/?d=b%20c.jpg"


def test_no_cell_of_csv_is_a_formula(tmp_path):
    table = LabelTable(("=1+1", "-a.jpg", "@b"), ("+c",), np.ones((3, 1), np.int8), np.array(["train"] * 3), Path())
    write_labels(table, tmp_path / "labels.csv")
    cells = [cell for line in (tmp_path / "labels.csv").read_text().splitlines() for cell in line.split(",")]
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@"))]
    assert read_dataset(tmp_path / "labels.csv").files == table.files


@pytest.mark.parametrize(
    ("name", "format", "message"),
    [
        ("labels.json", "auto", "may be of several formats; name one, coco or label-studio or fiftyone"),
        ("labels.txt", "auto", r"labels are written as \.csv or \.parquet"),
        ("labels.json", "yolo", "there is no format 'yolo'"),
        ("labels.csv", "coco", r"coco is written to a file that ends in \.json"),
        ("labels.json", "csv", r"csv is written to a file that ends in \.csv"),
    ],
)
def test_names_that_do_not_fit_are_refused(tmp_path, name, format, message):
    with pytest.raises(DataError, match=message):
        write_labels(example(), tmp_path / name, format=format)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("format", WRITTEN)
def test_a_folder_that_is_not_there_is_a_sentence(tmp_path, format):
    suffix = format if format in ("csv", "parquet") else "json"
    with pytest.raises(Exception, match="cannot be written"):
        write_labels(example(), tmp_path / "missing" / f"labels.{suffix}", format=format)


def test_files_named_from_another_folder(tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "tables").mkdir()
    moved = named_from(example(tmp_path / "images"), tmp_path / "tables")
    assert moved.files[2] == "../images/sub/c.jpg"
    assert moved.path(2).resolve() == (tmp_path / "images" / "sub" / "c.jpg").resolve()


def test_more_known_labels_than_can_be_named_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(writing, "MOST_NAMED", 6)
    for format in ("coco", "label-studio"):
        with pytest.raises(DataError, match=f"{format} names every known label, and there are 7"):
            write_labels(example(), tmp_path / "labels.json", format=format)
    assert not list(tmp_path.iterdir())
    write_labels(example(), tmp_path / "labels.json", format="fiftyone")


@pytest.mark.parametrize("format", ["coco", "label-studio"])
def test_reading_takes_no_room_for_what_is_unknown(tmp_path, format):
    rows, classes = 3_000, 7_000
    labels = LabelMatrix.from_entries((rows, classes), np.arange(rows), np.arange(rows) * 2, 1)
    names = tuple(f"class {column}" for column in range(classes))
    files = tuple(f"{row}.jpg" for row in range(rows))
    table = LabelTable(files, names, labels, np.full(rows, "train"), tmp_path)
    write_labels(table, tmp_path / "labels.json", format=format)
    tracemalloc.start()
    found = {"coco": coco, "label-studio": labelstudio}[format].read(tmp_path / "labels.json")
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.labels.count(1).sum() == rows
    assert most < rows * classes
