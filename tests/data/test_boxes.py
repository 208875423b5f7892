import numpy as np
import pytest

from onepair.data.label_table import LabelTable, object_areas
from onepair.errors import DataError

HEAD = "file,class,difficult,xmin,ymin,xmax,ymax\n"


@pytest.fixture
def table(tmp_path):
    return LabelTable(
        ("photos/a.jpg", "photos/b.jpg"), ("cat", "dog"), np.ones((2, 2), np.int8), np.array(["train"] * 2), tmp_path
    )


def written(tmp_path, text):
    path = tmp_path / "boxes.csv"
    path.write_text(text)
    return path


def test_the_largest_box_of_each_class_counts(tmp_path, table):
    lines = ["a.jpg,cat,0,0.1,0.1,0.3,0.6", "a.jpg,cat,1,0,0,1,0.5", "b.jpg,dog,0,10,10,30,20", "b.jpg,cow,0,0,0,9,9"]
    areas = object_areas(written(tmp_path, HEAD + "\n".join([*lines, "c.jpg,dog,0,0,0,1,1"])), table)
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
def test_what_is_wrong_is_named(tmp_path, table, text, sentence):
    with pytest.raises(DataError, match=sentence):
        object_areas(written(tmp_path, text), table)


def test_a_file_that_is_not_there(tmp_path, table):
    with pytest.raises(DataError, match="cannot be read"):
        object_areas(tmp_path / "none.csv", table)
