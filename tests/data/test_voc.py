import os
from pathlib import Path

import numpy as np
import pytest

from onepair.data import DataError
from onepair.data.formats import research
from tests.data import layouts

MAIN = "VOCdevkit/VOC2012/ImageSets/Main"


def replace(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_rows_are_train_then_val_each_sorted_by_file_name(tmp_path):
    table = research.read_voc(layouts.voc(tmp_path))
    assert table.files == tuple(f"JPEGImages/{name}.jpg" for name in ("2008_000002", "2009_000001", "2008_000001"))
    assert table.split.tolist() == ["train", "train", "test"]
    assert table.root == tmp_path / "VOCdevkit" / "VOC2012"


def test_classes_are_the_twenty_in_alphabetical_order(tmp_path):
    table = research.read_voc(layouts.voc(tmp_path))
    assert len(table.classes) == 20
    assert list(table.classes) == sorted(table.classes)


def test_positive_is_what_the_files_mark_1(tmp_path):
    table = research.read_voc(layouts.voc(tmp_path))
    positives = [{table.classes[column] for column in np.flatnonzero(row == 1)} for row in table.labels]
    assert positives == [{"person"}, {"dog", "cat"}, {"aeroplane"}]
    assert set(table.labels.dense().ravel().tolist()) == {0, 1}  # the dog that is only difficult is negative


@pytest.mark.parametrize("below", ["", "VOCdevkit", "VOCdevkit/VOC2012"])
def test_the_path_may_be_any_of_three_folders(tmp_path, below):
    layouts.voc(tmp_path)
    assert research.detect_voc(tmp_path / below)
    assert len(research.read_voc(tmp_path / below)) == 3


def test_another_year_is_read_but_two_years_are_ambiguous(tmp_path):
    layouts.voc(tmp_path, year=2007)
    assert research.read_voc(tmp_path).root.name == "VOC2007"
    layouts.voc(tmp_path)
    with pytest.raises(DataError, match="VOC2007 and VOC2012; give the path of one"):
        research.read_voc(tmp_path)


def test_a_folder_of_something_else_is_not_voc(tmp_path):
    assert not research.detect_voc(tmp_path)
    with pytest.raises(DataError, match="no ImageSets/Main"):
        research.read_voc(tmp_path)


def test_a_missing_class_file_is_named(tmp_path):
    layouts.voc(tmp_path)
    (tmp_path / MAIN / "sofa_val.txt").unlink()
    with pytest.raises(DataError, match=r"sofa_val\.txt: there is no such file"):
        research.read_voc(tmp_path)


def test_a_split_without_images_is_refused(tmp_path):
    layouts.voc(tmp_path)
    for path in (tmp_path / MAIN).glob("*_val.txt"):
        path.write_text("")
    with pytest.raises(DataError, match="the test split lists no image"):
        research.read_voc(tmp_path)


def test_problems_name_file_and_line_and_become_unknown(tmp_path):
    main = layouts.voc(tmp_path) / MAIN
    replace(main / "dog_train.txt", "2008_000002  0", "2008_000002  2")
    replace(main / "cat_train.txt", "2009_000001  1", "2009_000001")
    (main / "cow_val.txt").write_text("2008_000001 -1\n\n2008_000001 1\n")
    problems = []
    table = research.read_voc(tmp_path, report=problems.append)
    assert [str(problem) for problem in problems] == [
        "cat_train.txt, line 1: holds '2009_000001'; a line is the name of an image and 1, 0 or -1",
        "dog_train.txt, line 2: holds '2'; a VOC label is 1, 0 or -1",
        "cat_train.txt: has no line for 1 image that other classes list, the first being JPEGImages/2009_000001.jpg",
        "cow_val.txt, line 2: holds ''; a line is the name of an image and 1, 0 or -1",
        "cow_val.txt, line 3: lists 2008_000001 again",
    ]
    assert table.labels[0, table.classes.index("dog")] == -1
    assert table.labels[1, table.classes.index("cat")] == -1
    assert table.labels[2, table.classes.index("cow")] == 0
    assert (table.labels == -1).sum() == 2
    with pytest.raises(DataError, match=r"cat_train\.txt, line 1"):
        research.read_voc(tmp_path)


def test_the_real_dataset():
    path = os.environ.get("ONEPAIR_VOC2012")
    if not path:
        pytest.skip("ONEPAIR_VOC2012 does not give the path of PASCAL VOC 2012")
    table = research.read_voc(Path(path))
    assert (len(table.rows("train")), len(table.rows("test")), len(table.classes)) == (5717, 5823, 20)
    positives = (table.labels == 1).sum(axis=1)
    assert positives.min() == 1
    assert 1.4 < positives.mean() < 1.5
    assert table.files[0] == "JPEGImages/2008_000008.jpg"
