"""`onepair check`: what it says of a dataset, and the clean table that it writes."""

import json

import pytest
from PIL import Image

from tests.cli.command import onepair as in_own_process


@pytest.fixture
def onepair(in_process, monkeypatch, tmp_path):
    """The command in the folder of the test."""
    monkeypatch.chdir(tmp_path)
    return in_process


@pytest.fixture
def dataset(tmp_path):
    for i, name in enumerate(("a.png", "b.png")):
        Image.new("RGB", (4, 4), (i, i, i)).save(tmp_path / name)
    return tmp_path


def test_a_clean_table(dataset):
    (dataset / "labels.csv").write_text("file,cat,dog\na.png,1,\nb.png,0,1\n")
    result = in_own_process("check", "labels.csv", "--decode", cwd=dataset)
    assert result.returncode == 0, result.stderr
    assert "2 images (2 train), 2 classes" in result.stdout
    assert "no problems" in result.stdout
    assert "1.00 positives per image" in result.stdout


def test_problems_name_file_line_and_column_and_give_exit_code_1(dataset, onepair):
    (dataset / "labels.csv").write_text("file,cat,dog\na.png,1,maybe\nb.png,1,\nc.png,0,1\n")
    result = onepair("check", "labels.csv")
    assert result.returncode == 1
    assert "2 problems" in result.stdout
    assert "labels.csv, line 2, column dog: holds 'maybe'; a label is 1 or 0" in result.stdout
    assert "labels.csv, line 4: no such file c.png in ." in result.stdout


def test_json_has_everything(dataset, onepair):
    rows = "".join(f"gone{i}.png,1,0\n" for i in range(15))
    (dataset / "labels.csv").write_text("file,cat,dog\na.png,,\nb.png,0,0\n" + rows)
    result = onepair("check", "labels.csv", "--json")
    assert result.returncode == 1
    report = json.loads(result.stdout)
    assert report["images"] == {"train": 17}
    assert (report["verified_empty"], report["not_annotated"]) == (1, 1)
    assert report["classes"][0] == {"name": "cat", "positive": 15, "negative": 1, "unknown": 1}
    kinds = [problem["kind"] for problem in report["problems"]]
    assert kinds.count("missing file") == 15
    assert kinds.count("class without positives") == 1


def test_only_the_first_problems_of_a_kind_are_printed(dataset, onepair):
    (dataset / "labels.csv").write_text("file,cat\na.png,1\n" + "".join(f"gone{i}.png,1\n" for i in range(15)))
    result = onepair("check", "labels.csv")
    assert "gone9.png" in result.stdout
    assert "gone10.png" not in result.stdout
    assert "… and 5 more; --json lists all" in result.stdout


def test_of_very_many_classes_those_with_most_positives_are_printed(dataset, onepair):
    names = ";".join(f"c{i:03}" for i in range(150))
    (dataset / "labels.csv").write_text(f"file,labels\na.png,{names}\nb.png,c149\n")
    result = onepair("check", "labels.csv")
    assert "150 classes" in result.stdout
    assert "… 50 more" in result.stdout
    assert "c149" in result.stdout
    assert "c120 " not in result.stdout


def test_lists_of_labels_and_what_unlisted_means(dataset, onepair):
    (dataset / "tags.csv").write_text("file,labels\na.png,cat;dog\nb.png,cat\n")
    for unlisted, known in (("unknown", 0), ("negative", 1)):
        result = onepair("check", "tags.csv", "--unlisted", unlisted, "--json")
        assert json.loads(result.stdout)["classes"][1]["negative"] == known


def test_images_in_another_folder(dataset, onepair):
    (dataset / "elsewhere").mkdir()
    (dataset / "elsewhere" / "labels.csv").write_text("file,cat\na.png,1\n")
    assert onepair("check", "elsewhere/labels.csv").returncode == 1
    assert onepair("check", "elsewhere/labels.csv", "--folder", ".").returncode == 0


def test_the_embedded_dataset(onepair):
    result = onepair("check", "digits")
    assert result.returncode == 0, result.stderr
    assert "4,000 images (3,000 train, 1,000 test), 10 classes" in result.stdout


def test_remarks_are_listed_and_are_no_problems(dataset, onepair):
    (dataset / "labels.csv").write_text("file,cat,camera\na.png,1,Nikon\nb.png,1,Leica\n")
    result = onepair("check", "labels.csv")
    assert result.returncode == 0, result.stderr
    assert "3 remarks" in result.stdout
    assert "labels.csv, column camera: holds values that are no labels, as 'Nikon' in line 2; left out" in result.stdout
    assert "no problems" in result.stdout
    report = json.loads(onepair("check", "labels.csv", "--json").stdout)
    kinds = [remark["kind"] for remark in report["remarks"]]
    assert (report["problems"], kinds) == ([], ["column left out", "in every image", "rare"])


def test_columns_by_name_and_complete_splits(dataset, onepair):
    (dataset / "tags.csv").write_text('file,split,"a, b",c\na.png,train,1,\nb.png,test,1,1\n')
    arguments = ("tags.csv", "--label-columns", '"a, b",c', "--complete-split", "train", "--json")
    classes = json.loads(onepair("check", *arguments).stdout)["classes"]
    assert [(each["name"], each["negative"]) for each in classes] == [("a, b", 0), ("c", 1)]


def test_fix_writes_a_table_that_is_clean(dataset, onepair):
    Image.new("RGB", (4, 4), (1, 1, 1)).save(dataset / "copy of b.png")
    (dataset / "broken.png").write_text("no picture")
    (dataset / "tables").mkdir()
    (dataset / "labels.csv").write_text(
        "file,split,labels\na.png,train,cat;Dog\nb.png,val,dog\ncopy of b.png,train,dog\n"
        "broken.png,train,dog\ngone.png,test,bird\na.png,train,cats\n"
    )
    result = onepair("check", "labels.csv", "--fix", "tables/clean.csv")
    assert result.returncode == 0, result.stderr
    for sentence in (
        "5 changes",
        "labels.csv: 1 spelling read as another: Dog as dog; --spellings keep",
        "labels.csv: lists a.png twice (lines 2 and 7); the first one stays",
        "labels.csv, line 6: no such file gone.png in .; left out",
        "broken.png: ",
        "copy of b.png: is the same image as b.png, which is in validation; left out of train",
        "class bird: left out",
    ):
        assert sentence in result.stdout
    again = onepair("check", "tables/clean.csv", "--decode")
    assert again.returncode == 0, again.stdout
    text = (dataset / "tables" / "clean.csv").read_text()
    assert text.splitlines() == ["file,split,cat,dog", "../a.png,train,1,1", "../b.png,validation,,1"]


def test_names_much_alike_are_listed_where_nobody_can_be_asked(dataset, onepair):
    (dataset / "labels.csv").write_text("file,motorbike,motor-bike\na.png,1,\nb.png,,1\n")
    result = onepair("check", "labels.csv", "--fix", "clean.csv")
    assert "class motor-bike: may be class motorbike by another name" in result.stdout
    assert (dataset / "clean.csv").read_text().startswith("file,split,motorbike,motor-bike")


@pytest.mark.parametrize(
    ("out", "sentence"),
    [
        ("labels.csv", "labels.csv: is what this is made from ("),
        ("clean.xlsx", "a table is written as .csv or .parquet"),
        ("no/clean.csv", "no/clean.csv: there is no folder no"),
    ],
)
def test_where_nothing_clean_can_be_written(dataset, onepair, out, sentence):
    (dataset / "labels.csv").write_text("file,dog\na.png,1\n")
    result = onepair("check", "labels.csv", "--fix", out)
    assert (result.returncode, sentence in result.stderr) == (2, True)
    assert "Traceback" not in result.stderr
    assert (dataset / "labels.csv").read_text() == "file,dog\na.png,1\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere"], "nowhere: there is no such file or folder"),
        (["."], ".: is empty; put photos there"),
        (["digits", "--format", "dgits"], "did you mean digits?"),
    ],
)
def test_mistakes_end_in_a_sentence(onepair, arguments, sentence):
    result = onepair("check", *arguments)
    assert result.returncode == 2
    assert sentence in result.stderr
    assert result.stderr.startswith("onepair: ")
    assert "Traceback" not in result.stderr
