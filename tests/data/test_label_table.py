from pathlib import Path

import numpy as np
import pytest

from onepair.data.label_table import LabelTable, object_areas
from onepair.errors import DataError


def table(**changes):
    fields = {
        "files": ("a.jpg", "b.jpg", "c.jpg"),
        "classes": ("cat", "dog"),
        "labels": np.array([[1, 0], [-1, 1], [0, 0]], np.int8),
        "split": np.array(["train", "test", "train"]),
        "root": Path("photos"),
    }
    return LabelTable(**{**fields, **changes})


def test_rows_of_a_split_are_in_order():
    assert table().rows("train").tolist() == [0, 2]
    assert table().rows("validation").tolist() == []
    assert len(table()) == 3


def test_paths_are_below_the_root_unless_absolute(tmp_path):
    absolute = str(tmp_path / "b.jpg")
    files = table(files=("a.jpg", absolute, "c.jpg"))
    assert files.path(0) == Path("photos/a.jpg")
    assert files.path(1) == Path(absolute)


@pytest.mark.parametrize(
    "changes",
    [
        {"files": ("a.jpg",)},
        {"classes": ("cat",)},
        {"split": np.array(["train"])},
        {"labels": np.zeros((2, 2), np.int8)},
    ],
)
def test_refuses_parts_of_different_lengths(changes):
    with pytest.raises(DataError, match="one row of labels per image"):
        table(**changes)


def test_what_was_asked_for_has_the_shape_of_the_labels_and_changes_no_fingerprint():
    assert table(asked=np.ones((3, 2), bool)).fingerprint() == table().fingerprint()
    with pytest.raises(DataError, match=r"asked for has shape \(2, 2\)"):
        table(asked=np.ones((2, 2), bool))


def test_refuses_an_unheard_of_split():
    with pytest.raises(DataError, match="'holdout' is not one of train, validation, test"):
        table(split=np.array(["train", "holdout", "test"]))


def test_refuses_labels_outside_the_alphabet():
    with pytest.raises(ValueError, match="row 0, column 1 holds 2"):
        table(labels=np.array([[1, 2], [0, 0], [0, 0]], np.int8))


HEAD = "file,class,difficult,xmin,ymin,xmax,ymax\n"


@pytest.fixture
def boxed(tmp_path):
    return LabelTable(
        ("photos/a.jpg", "photos/b.jpg"), ("cat", "dog"), np.ones((2, 2), np.int8), np.array(["train"] * 2), tmp_path
    )


def written(tmp_path, text):
    path = tmp_path / "boxes.csv"
    path.write_text(text)
    return path


def test_the_largest_box_of_each_class_counts(tmp_path, boxed):
    lines = ["a.jpg,cat,0,0.1,0.1,0.3,0.6", "a.jpg,cat,1,0,0,1,0.5", "b.jpg,dog,0,10,10,30,20", "b.jpg,cow,0,0,0,9,9"]
    areas = object_areas(written(tmp_path, HEAD + "\n".join([*lines, "c.jpg,dog,0,0,0,1,1"])), boxed)
    np.testing.assert_allclose(areas, [[0.5, 0], [0, 200]])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (HEAD + "a.jpg,cat,0,0,0,1,wide\n", "boxes.csv, line 2: a box is four numbers"),
        (HEAD + "a.jpg,cat\n", "boxes.csv, line 2: a box is four numbers"),
        (HEAD + "c.jpg,cat,0,0,0,1,1\n", "no box of an image and a class of the dataset"),
        ("photo,label\n", "its columns must be file, class, xmin"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, boxed, text, sentence):
    with pytest.raises(DataError, match=sentence):
        object_areas(written(tmp_path, text), boxed)


def test_a_file_that_is_not_there(tmp_path, boxed):
    with pytest.raises(DataError, match="cannot be read"):
        object_areas(tmp_path / "none.csv", boxed)
