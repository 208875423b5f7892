import json

import pytest

from onepair.data import DataError, read_dataset
from onepair.data.formats import image_folders
from tests.data import layouts


def test_metadata_as_json_lines(tmp_path):
    table = image_folders.read_metadata(layouts.huggingface(tmp_path))
    assert table.files == ("a.jpg", "b.jpg")
    assert table.classes == ("cat", "dog")
    assert table.labels.tolist() == [[1, 1], [1, -1]]
    assert table.root == tmp_path


def test_metadata_in_the_folders_of_splits(tmp_path):
    layouts.write(tmp_path / "train" / "metadata.csv", "file_name,label\na.jpg,dog\nb.jpg,cat\n")
    layouts.write(tmp_path / "test" / "metadata.jsonl", json.dumps({"label": "bird", "file_name": "sub/a.jpg"}))
    table = read_dataset(tmp_path, complete_splits=["test"])
    assert table.files == ("train/a.jpg", "train/b.jpg", "test/sub/a.jpg")
    assert table.split.tolist() == ["train", "train", "test"]
    assert table.classes == ("bird", "cat", "dog")
    assert table.labels.tolist() == [[-1, -1, 1], [-1, 1, -1], [1, 0, 0]]
    assert table.places[2] == "test/metadata.jsonl, line 1"


def test_classes_by_column_and_captions_kept_beside_the_photos(tmp_path):
    layouts.write(tmp_path / "metadata.csv", "file_name,text,dog,cat\na.jpg,a dog,1,0\nb.jpg,a cat,0,1\n")
    layouts.write(tmp_path / "a.jpg", "")
    problems = []
    table = image_folders.read_metadata(tmp_path, report=problems.append)
    assert table.classes == ("dog", "cat")
    assert problems == []
    assert (table.texts, table.ids) == (("a dog", "a cat"), False)
    assert image_folders.read_metadata(tmp_path, label_columns=["cat"]).labels.tolist() == [[0], [1]]


def test_refuses_what_has_no_metadata_or_no_files(tmp_path):
    assert not image_folders.detect_metadata(tmp_path)
    with pytest.raises(DataError, match=r"no metadata\.jsonl"):
        image_folders.read_metadata(tmp_path)
    layouts.write(tmp_path / "metadata.jsonl", '{"label": "cat"}\n')
    assert image_folders.detect_metadata(tmp_path)
    with pytest.raises(DataError, match="no column named file_name among its columns label"):
        image_folders.read_metadata(tmp_path)


def test_bad_lines_are_named(tmp_path):
    layouts.write(tmp_path / "metadata.jsonl", '{"file_name": "a", "labels": ["cat"]}\n[1]\n{"file_name": "b"\n')
    problems = []
    assert len(image_folders.read_metadata(tmp_path, report=problems.append)) == 1
    assert [str(problem) for problem in problems] == [
        "metadata.jsonl, line 2: is no JSON object, as {...}",
        "metadata.jsonl, line 3: is no JSON object, as {...}",
    ]
