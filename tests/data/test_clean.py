from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from onepair import label_matrix
from onepair.data import DataError, LabelTable, read_dataset, write_table
from onepair.data.label_table import Problem, outcome
from onepair.data.quality import clean, find_problems


def save(folder, **images):
    """Images of one grey each, as name=grey."""
    for name, grey in images.items():
        Image.new("RGB", (4, 4), (grey,) * 3).save(folder / f"{name}.png")


def make_table(root, files, labels, classes=("cat",), splits=None, asked=None):
    splits = np.array(splits or ["train"] * len(files))
    return LabelTable(tuple(files), tuple(classes), np.array(labels, np.int8), splits, root, asked=asked)


def said(cleaned):
    return [(change.kind, change.where) for change in cleaned.changes]


def test_a_clean_table_stays_as_it_is(tmp_path):
    save(tmp_path, a=1, b=2)
    table = make_table(tmp_path, ["a.png", "b.png"], [[1, -1], [0, 1]], ("cat", "dog"))
    cleaned = clean(table)
    assert (cleaned.changes, cleaned.doubts) == ([], [])
    assert cleaned.table.labels.tolist() == table.labels.tolist()


def test_missing_and_broken_images_are_left_out(tmp_path):
    save(tmp_path, a=1)
    (tmp_path / "broken.png").write_text("no picture")
    cleaned = clean(make_table(tmp_path, ["gone.png", "broken.png", "a.png"], [[1]] * 3))
    assert cleaned.table.files == ("a.png",)
    assert said(cleaned) == [("missing file", "gone.png"), ("unreadable image", "broken.png")]
    assert all(change.what.endswith("; left out") for change in cleaned.changes)


def test_copies_in_a_split_share_their_labels_unless_they_contradict(tmp_path):
    save(tmp_path, a=1, b=1)
    labels = [[1, -1, 1, -1], [-1, 0, 0, -1]]
    cleaned = clean(make_table(tmp_path, ["a.png", "b.png"], labels, "wxyz"))
    assert cleaned.table.files == ("a.png",)
    assert cleaned.table.classes == ("w",)  # the one that is still positive anywhere
    assert said(cleaned)[0] == ("duplicate", "b.png")
    assert [change.where for change in cleaned.changes[1:]] == ["class x", "class y", "class z"]


def test_copies_in_several_splits_stay_where_they_are_tested_with_the_labels_of_that_split(tmp_path):
    save(tmp_path, a=1, b=1, c=1, d=2)
    files, splits = ["a.png", "b.png", "c.png", "d.png"], ["train", "test", "validation", "train"]
    cleaned = clean(make_table(tmp_path, files, [[1], [-1], [1], [1]], splits=splits))
    assert cleaned.table.files == ("b.png", "d.png")
    assert cleaned.table.labels.tolist() == [[-1], [1]]
    assert said(cleaned) == [("leak between splits", "a.png"), ("leak between splits", "c.png")]


def test_spellings_become_the_most_frequent_one(tmp_path):
    save(tmp_path, a=1, b=2, c=3, d=4)
    classes = ("Café", "dog", "cafe\u0301", "CAFÉ ")
    labels = [[1, 1, 0, -1], [-1, 0, 1, -1], [-1, 0, 1, 1], [0, 1, -1, -1]]
    asked = np.zeros((4, 4), bool)
    asked[0, 0] = True
    cleaned = clean(make_table(tmp_path, ["a.png", "b.png", "c.png", "d.png"], labels, classes, asked=asked))
    assert cleaned.table.classes == ("dog", "cafe\u0301")
    assert cleaned.table.labels.tolist() == [[1, 1], [0, 1], [0, 1], [1, 0]]
    assert cleaned.table.asked[:, 1].tolist() == [True, False, False, False]
    assert said(cleaned) == [("class merged", "class Café"), ("class merged", "class CAFÉ ")]


def test_names_that_are_much_alike_are_merged_only_by_a_person(tmp_path):
    save(tmp_path, a=1, b=2)
    table = make_table(tmp_path, ["a.png", "b.png"], [[1, -1], [-1, 1]], ("dog", "dogs"))
    cleaned = clean(table)
    assert cleaned.table.classes == ("dog", "dogs")
    assert [str(doubt) for doubt in cleaned.doubts] == ["class dogs: may be class dog by another name"]
    asked = []
    cleaned = clean(table, is_same=lambda *names: asked.append(names) or True)
    assert asked == [("dog", "dogs")]
    assert (cleaned.table.classes, cleaned.doubts) == (("dog",), [])


def test_nothing_left_is_refused(tmp_path):
    with pytest.raises(DataError, match="not one image"):
        clean(make_table(tmp_path, ["gone.png"], [[1]]))
    save(tmp_path, a=1)
    with pytest.raises(DataError, match="not one class has a positive"):
        clean(make_table(tmp_path, ["a.png"], [[0]]))


def test_what_a_reader_did_is_said():
    assert str(outcome(Problem("bad value", "line 2", "holds 2"))) == "line 2: holds 2; now unknown"
    remark = Problem("encoding", "a.csv", "is odd", remark=True)
    assert outcome(remark) is remark


def random_mess(folder: Path, seed: int) -> Path:
    """A table with everything wrong that can be."""
    random = np.random.default_rng(seed)
    save(folder, **{f"i{i}": int(random.integers(6)) for i in range(12)})
    (folder / "i3.png").write_text("broken")
    classes = ["dog", "Dog", "cat", "never", "dogs"]
    lines = [",".join(["file", "split", *classes, "comment"])]
    for i in random.integers(14, size=16):
        cells = random.choice(["1", "0", "", "vielleicht"], p=[0.4, 0.2, 0.3, 0.1], size=len(classes))
        cells[3] = "0"
        split = random.choice(["train", "test", "val", "else"], p=[0.6, 0.2, 0.1, 0.1])
        lines.append(",".join([f"i{i}.png", split, *cells, "hello"]))
    (folder / "mess.csv").write_text("\n".join(lines))
    return folder / "mess.csv"


@pytest.mark.parametrize("seed", range(20))
def test_whatever_was_wrong_the_cleaned_table_has_no_problems_and_invents_nothing(tmp_path, seed):
    found = []
    table = read_dataset(random_mess(tmp_path, seed), report=found.append)
    cleaned = clean(table).table
    write_table(cleaned, tmp_path / "clean.csv")
    problems = []
    again = read_dataset(tmp_path / "clean.csv", report=problems.append)
    problems += find_problems(again, images=True)
    assert [problem for problem in problems if not problem.remark] == []
    contents = [table.path(row).read_bytes() if table.path(row).exists() else b"" for row in range(len(table))]
    for row, column in np.argwhere(again.labels != -1):  # stands so in the mess, for a copy in the same split
        copies = [contents[i] == again.path(row).read_bytes() for i in range(len(table))]
        spellings = [name.lower() == again.classes[column].lower() for name in table.classes]
        same = table.labels[copies & (table.split == again.split[row])][:, spellings]
        assert again.labels[row, column] in same


def test_labels_are_never_wanted_as_a_whole(tmp_path, monkeypatch):
    save(tmp_path, a=1, b=2, c=3)
    labels = [[1, -1, 0, -1], [0, 0, -1, 1], [-1, 1, 0, 0]]
    classes = ("cat", "Cat", "dog", "owl")
    table = make_table(tmp_path, ["a.png", "b.png", "c.png"], labels, classes, asked=np.ones((3, 4)))
    expected = clean(table)
    monkeypatch.setattr(label_matrix, "_MOST_DENSE", 0)
    cleaned = clean(table)
    assert cleaned.table.classes == expected.table.classes == ("cat", "owl")
    monkeypatch.undo()
    assert cleaned.table.labels.tolist() == expected.table.labels.tolist() == [[1, -1], [0, 1], [1, 0]]
    assert cleaned.table.asked.tolist() == [[1, 1]] * 3
