"""Datasets as users name them."""

import pytest

from onepair.data.formats.read import read_dataset
from onepair.errors import DataError
from onepair.experiments.records import Dataset, parse_dataset
from tests.data import layouts


def test_by_name_and_path(tmp_path):
    assert parse_dataset(f"voc2012={tmp_path}") == Dataset("voc2012", str(tmp_path), "voc")
    assert parse_dataset(f"coco={tmp_path}") == Dataset(tmp_path.stem, str(tmp_path), "coco")
    assert parse_dataset("digits") == Dataset("digits", "digits", "digits")


def test_digits_are_the_embedded_ones_also_beside_a_folder_of_that_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").mkdir()
    dataset = parse_dataset("digits")
    assert dataset == Dataset("digits", "digits", "digits")
    assert read_dataset(dataset.source, format=dataset.format).pixels is not None
    assert parse_dataset("./digits") == Dataset("my-digits", "./digits")


def test_a_known_layout_is_known_without_a_name(tmp_path):
    assert parse_dataset(str(layouts.voc(tmp_path / "a"))).name == "voc2012"
    assert parse_dataset(str(layouts.coco_2014(tmp_path / "b"))) == Dataset("coco2014", str(tmp_path / "b"), "coco")
    one_file = layouts.coco_file(tmp_path)
    assert parse_dataset(str(one_file)) == Dataset("birds", str(one_file)), "this is not COCO 2014 itself"


def test_a_path_of_ones_own(tmp_path):
    folder = tmp_path / "odd=name"
    folder.mkdir()
    table = folder / "mine.csv"
    table.write_text("file,a\nx.png,1\n")
    assert parse_dataset(str(table)) == Dataset("mine", str(table))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("voc2021=x", r"no dataset 'voc2021'; did you mean voc2012"),
        ("voc2021", r"no dataset or path 'voc2021'; did you mean voc2012"),
        ("zzz=x", r"no dataset 'zzz'; name one of voc2012, .*, digits as NAME=PATH, or a path"),
        ("cub", r"where is cub\? Give its path, as cub=PATH; it is a folder CUB_200_2011 .*CUB_200_2011.tgz from"),
        ("voc2012=gone", r"gone: there is no such file or folder; it is .*VOCdevkit/VOC2012.*VOCtrainval_11-May-2012"),
        ("gone.csv", r"no dataset or path 'gone.csv'"),
    ],
)
def test_mistakes(text, sentence, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=sentence):
        parse_dataset(text)


def test_a_well_known_dataset_is_the_same_wherever_it_is_kept(tmp_path):
    assert Dataset("cub", "/a").identity == Dataset("cub", "/b").identity
    assert Dataset("mine", "/a/mine.csv").identity != Dataset("mine", "/b/mine.csv").identity


def test_a_command_does_not_tell_where_data_are_kept():
    arguments = [Dataset("cub", "/home/me/cub").argument, Dataset("digits", "digits").argument]
    assert [*arguments, Dataset("mine", "/home/me/mine.csv").argument] == ["cub=PATH", "digits", "PATH"]
