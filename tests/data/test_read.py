from pathlib import Path

import numpy as np
import pytest

from onepair.data import READERS, DataError, LabelTable, read_dataset
from onepair.data.formats import digits
from tests.data import layouts


@pytest.mark.parametrize("layout", layouts.LAYOUTS)
def test_every_layout_is_recognised_and_read(tmp_path, layout):
    path = layouts.LAYOUTS[layout](tmp_path)
    name = layout.split(",")[0]
    assert [reader.name for reader in READERS.values() if reader.detect(path)] == [name]
    found, named = read_dataset(path), read_dataset(str(path), format=name)
    assert found.files == named.files
    assert found.labels.tolist() == named.labels.tolist()


def test_options_reach_the_readers_that_take_them(tmp_path):
    path = layouts.csv_lists(tmp_path)
    assert (read_dataset(path).labels == -1).any()
    read = read_dataset(path, unlisted="negative", images="photos")
    assert (read.labels != -1).all()
    assert read.root == Path("photos")
    assert read_dataset(layouts.coco_file(tmp_path), images="photos").root == Path("photos")


def test_reports_reach_the_caller(tmp_path):
    problems = []
    path = layouts.write(tmp_path / "labels.csv", "file,cat\na.jpg,2\nb.jpg,1\n")
    assert read_dataset(path, report=problems.append).labels.tolist() == [[-1], [1]]
    assert [problem.kind for problem in problems] == ["bad value"]


def test_a_folder_of_something_else_gets_the_list_of_layouts(tmp_path):
    (tmp_path / "notes.txt").write_text("nothing of ours")
    with pytest.raises(DataError, match="is not in a layout that can be recognised") as raised:
        read_dataset(tmp_path)
    for name, reader in READERS.items():
        assert f"{name}: {reader.layout}" in str(raised.value)


@pytest.mark.parametrize("name", ["missing", "missing.csv", "missing.json", "x" * 5000, "nul\0"])
def test_what_is_not_there_is_said_not_to_be(tmp_path, name):
    with pytest.raises(DataError, match="there is no such file or folder"):
        read_dataset(tmp_path / name)


@pytest.mark.parametrize("format", sorted(set(READERS) - {"digits", "scenes"}))
@pytest.mark.parametrize("name", ["missing", "x" * 5000, "nul\0", "."])
def test_every_reader_refuses_what_is_not_there(tmp_path, format, name):
    with pytest.raises(DataError):
        read_dataset(tmp_path / name, format=format)


def test_two_layouts_in_one_folder_are_ambiguous(tmp_path):
    layouts.voc(layouts.coco_2014(tmp_path))
    with pytest.raises(DataError, match="has the layout of coco and voc; name the format"):
        read_dataset(tmp_path)
    assert len(read_dataset(tmp_path, format="voc").classes) == 20


def test_a_misspelt_format_gets_the_nearest_name(tmp_path):
    with pytest.raises(DataError, match="no dataset format 'coc'; did you mean coco"):
        read_dataset(tmp_path, format="coc")
    with pytest.raises(DataError, match="there are auto, table, coco"):
        read_dataset(tmp_path, format="imagenet")


def test_digits_is_the_embedded_dataset_unless_a_path_has_that_name(tmp_path, monkeypatch):
    embedded = LabelTable(("0",), ("one",), np.ones((1, 1), np.int8), np.array(["train"]), Path())
    monkeypatch.setattr(digits, "read_digits", lambda: embedded)
    monkeypatch.chdir(tmp_path)
    assert read_dataset("digits") is embedded
    (tmp_path / "digits").mkdir()
    assert len(read_dataset(layouts.coco_2014(tmp_path / "digits").relative_to(tmp_path))) == 4


def test_a_folder_without_photos_is_said_to_be_one(tmp_path):
    with pytest.raises(DataError, match=f"^{tmp_path}: is empty"):
        read_dataset(tmp_path)
    for name in ("clip.mp4", "a.NEF", "b.cr2", "c.arw", "d.dng"):
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(
        DataError, match=r"holds no photos; left out: 1 video \(clip.mp4\) and 4 RAW photos \(a.NEF, b.cr2"
    ):
        read_dataset(tmp_path)


def test_the_lock_of_a_workbook_that_is_open_is_no_table(tmp_path):
    for name in ("labels.xlsx", "~$labels.xlsx", ".~lock.labels.xlsx#"):
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(DataError, match=r"is a folder with labels\.xlsx; give the label file"):
        read_dataset(tmp_path)
