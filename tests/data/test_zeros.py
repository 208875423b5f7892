"""Tables that write 0 for whatever is not tagged."""

import json

import numpy as np
import pytest

from onepair.data import DataError, read_dataset
from onepair.data.tables import read_table as table
from onepair.data.tables.read_table import MANY_CLASSES
from tests.data import layouts

CLASSES = "abcdef"


def one_hot(folder, *, classes=CLASSES, cell="0", header=(), row=()):
    """A table of one tag a row."""
    rows = [[f"{i}.jpg", *row, *(cell if i != j else "1" for j in range(len(classes)))] for i in range(len(classes))]
    lines = [["file", *header, *classes], *rows]
    return layouts.write(folder / "labels.csv", "\n".join(",".join(line) for line in lines))


def read(path, **options):
    """The labels of a table, and the kinds of what is said about it."""
    found = []
    result = table.read(path, report=found.append, **options)
    assert all(each.remark for each in found)
    return np.asarray(result.labels[:]), [each.kind for each in found]


def said(path, **options):
    return "every label is known" in read(path, **options)[1]


def test_unknown_zeros_are_blanks(tmp_path):
    labels, _ = read(one_hot(tmp_path), zeros="unknown")
    assert labels.tolist() == (2 * np.eye(6) - 1).tolist()
    assert labels.tolist() == read(one_hot(tmp_path, cell=""))[0].tolist()
    for word in ("false", "no", "0.0"):
        assert labels.tolist() == read(one_hot(tmp_path, cell=word), zeros="unknown")[0].tolist()
    assert (read(one_hot(tmp_path))[0] == np.eye(6)).all()


def test_what_is_complete_stays_so(tmp_path):
    complete = one_hot(tmp_path, header=["complete"], row=["true"])
    assert (read(complete, zeros="unknown")[0] == np.eye(6)).all()
    named = one_hot(tmp_path, header=["split"], row=["test"])
    assert (read_dataset(named, zeros="unknown", complete_splits=["test"]).labels[:] == np.eye(6)).all()


def test_of_one_label_in_a_row(tmp_path):
    path = layouts.write(tmp_path / "long.csv", "file,label,value\na.jpg,cat,1\na.jpg,dog,0\nb.jpg,dog,1")
    assert read(path)[0].tolist() == [[1, 0], [-1, 1]]
    assert read(path, zeros="unknown")[0].tolist() == [[1, -1], [-1, 1]]


def test_of_a_folder_with_metadata(tmp_path):
    lines = [{"file_name": f"{i}.jpg", "cat": i, "dog": 1 - i} for i in (0, 1)]
    layouts.write(tmp_path / "metadata.jsonl", "\n".join(map(json.dumps, lines)))
    assert read_dataset(tmp_path, zeros="unknown").labels[:].tolist() == [[-1, 1], [1, -1]]


def test_other_formats_have_no_zeros():
    with pytest.raises(DataError, match="is read as digits, which takes no zeros"):
        read_dataset("digits", zeros="unknown")


def test_a_table_without_a_hole_is_remarked_on(tmp_path):
    assert said(one_hot(tmp_path))
    assert not said(one_hot(tmp_path), zeros="unknown")
    assert not said(one_hot(tmp_path, cell=""))


def test_not_of_a_few_classes_that_somebody_may_have_looked_for(tmp_path):
    assert said(one_hot(tmp_path, classes=CLASSES[:MANY_CLASSES]))
    assert not said(one_hot(tmp_path, classes=CLASSES[: MANY_CLASSES - 1]))


def test_not_where_rows_show_many_classes(tmp_path):
    rows = ["file,a,b,c,d,e,f", "0.jpg,1,1,0,1,0,0", "1.jpg,0,1,1,0,0,1"]
    assert not said(layouts.write(tmp_path / "labels.csv", "\n".join(rows)))


def test_not_of_what_people_were_asked(tmp_path):
    assert not said(one_hot(tmp_path, header=["asked"], row=["a"]))
