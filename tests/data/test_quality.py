from dataclasses import replace
from difflib import SequenceMatcher
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from onepair.data.label_table import LabelTable
from onepair.data.quality import NEAR, find_problems, near_names, take_census
from onepair.label_matrix import LabelMatrix


def save_image(path, *, grey):
    path.parent.mkdir(exist_ok=True)
    Image.new("RGB", (8, 6), (grey, grey, grey)).save(path)


def make_table(root: Path, files, labels=None, split=None):
    labels = np.ones((len(files), 1), np.int8) if labels is None else np.array(labels, np.int8)
    classes = tuple(f"class {i}" for i in range(labels.shape[1]))
    return LabelTable(tuple(files), classes, labels, np.array(split or ["train"] * len(files)), root)


def found(table, **options):
    return [(problem.kind, problem.where) for problem in find_problems(table, **options) if not problem.remark]


def test_census_tells_verified_empty_from_not_annotated():
    labels = [[1, 0, -1], [0, 0, 0], [-1, -1, -1], [1, 1, -1], [0, -1, -1]]
    census = take_census(make_table(Path(), "abcde", labels, ["train", "train", "train", "test", "validation"]))
    assert census.images == {"train": 3, "validation": 1, "test": 1}
    assert census.positive.tolist() == [2, 1, 0]
    assert census.negative.tolist() == [2, 2, 1]
    assert census.unknown.tolist() == [1, 2, 4]
    assert (census.verified_empty, census.not_annotated) == (1, 1)
    assert census.cardinality == pytest.approx(3 / 5)


def test_a_clean_dataset_has_no_problems(tmp_path):
    for i, name in enumerate(("a.png", "b.jpg")):
        save_image(tmp_path / name, grey=i)
    table = make_table(tmp_path, ["a.png", "b.jpg"])
    assert found(table) == []
    assert found(table, images=True) == []


def test_classes_without_positives():
    table = make_table(Path(), ["a"], [[1, 0, -1]])
    assert [where for kind, where in found(table) if kind == "class without positives"] == [
        "class class 1",
        "class class 2",
    ]


@pytest.mark.parametrize("images", [False, True])
def test_missing_files(tmp_path, images):
    save_image(tmp_path / "here.png", grey=0)
    (tmp_path / "folder.png").mkdir()
    table = make_table(tmp_path, ["here.png", "gone.png"])
    assert found(table, images=images) == [("missing file", "gone.png")]


def test_where_no_file_is_there_it_says_so_once(tmp_path):
    (problem,) = (each for each in find_problems(make_table(tmp_path, ["1.png", "2.png"])) if not each.remark)
    assert str(problem) == f"{tmp_path}: none of the 2 images is there, as 1.png; say with --folder where they are"


def test_damaged_images_are_found_by_decoding_only(tmp_path):
    save_image(tmp_path / "good.jpg", grey=0)
    content = (tmp_path / "good.jpg").read_bytes()
    (tmp_path / "short.jpg").write_bytes(content[: len(content) // 2])
    (tmp_path / "empty.jpg").touch()
    (tmp_path / "text.jpg").write_text("not a picture")
    table = make_table(tmp_path, ["good.jpg", "short.jpg", "empty.jpg", "text.jpg"])
    assert found(table) == []
    assert found(table, images=True) == [("unreadable image", f"{name}.jpg") for name in ("short", "empty", "text")]


def test_repeated_and_leaking_files_by_name(tmp_path):
    for i, name in enumerate(("a.png", "b.png")):
        save_image(tmp_path / name, grey=i)
    files, split = ["a.png", "b.png", "a.png", "b.png"], ["train", "train", "train", "test"]
    expected = [("duplicate", "a.png"), ("leak between splits", "b.png")]
    assert found(make_table(tmp_path, files, split=split)) == expected
    assert found(make_table(tmp_path, files, split=split), images=True) == expected


def test_copies_under_another_name_are_found_by_content(tmp_path):
    for name, grey in (("a.png", 1), ("copy of a.png", 1), ("b.png", 2), ("leaked b.png", 2)):
        save_image(tmp_path / name, grey=grey)
    files = ["a.png", "copy of a.png", "b.png", "leaked b.png"]
    table = make_table(tmp_path, files, split=["train", "train", "train", "test"])
    assert found(table, images=True) == [("duplicate", "copy of a.png"), ("leak between splits", "leaked b.png")]
    (leak,) = [problem for problem in find_problems(table, images=True) if problem.kind == "leak between splits"]
    assert str(leak) == "leaked b.png: is the same image as b.png, the one in test, the other in train"


def test_copies_that_contradict_each_other_are_told(tmp_path):
    for name in ("a.png", "b.png", "c.png"):
        save_image(tmp_path / name, grey=1)
    table = make_table(tmp_path, ["a.png", "b.png", "c.png"])
    labels = np.tile(np.array([1, 0, -1], np.int8), (3, 1))
    labels[1] = [0, -1, 1]
    table = replace(table, classes=("cat", "dog", "cow"), labels=LabelMatrix.of(labels))
    told = [str(each) for each in find_problems(table, images=True) if each.kind == "duplicate"]
    assert told == [
        "b.png: is the same image as a.png, with another label for cat",
        "c.png: is the same image as a.png",
    ]


def test_progress_sees_every_row(tmp_path):
    seen = []
    table = make_table(tmp_path, ["x", "y", "z"])

    def progress(rows):
        for row in rows:
            seen.append(row)
            yield row

    list(find_problems(table, progress=progress))
    assert seen == [0, 1, 2]


def test_rare_classes_are_remarked_on_all_at_once(tmp_path):
    labels = np.zeros((60, 9), np.int8)
    labels[:, 0] = 1
    labels[:24, 1:8] = 1
    table = LabelTable(
        files=tuple(f"{row}.png" for row in range(60)),
        classes=tuple("abcdefghi"),
        labels=labels,
        split=np.full(60, "train"),
        root=tmp_path,
        pixels=np.zeros((60, 2, 2, 3), np.uint8),
    )
    nothing, everywhere, rare = find_problems(table)
    assert (nothing.where, nothing.remark) == ("class i", False)
    assert (everywhere.where, everywhere.remark) == ("class a", True)
    assert (rare.where, rare.remark) == ("7 of 9 classes (b, c, d, e, f and 2 more)", True)


def test_near_names_are_those_of_difflib_and_plurals():
    random = np.random.default_rng(0)
    stems = ["motorbike", "person", "dining table", "box", "has_bill::long"]
    names = set(stems)
    for _ in range(150):
        name = list(stems[random.integers(len(stems))])
        name[random.integers(len(name))] = random.choice(list("abs_ "))
        names.add(" ".join("".join(name).split()))
    names = sorted(names)
    slow = [
        (a, b)
        for i, a in enumerate(names)
        for b in names[i + 1 :]
        if SequenceMatcher(None, a, b, autojunk=False).ratio() >= NEAR or a + "s" == b or a + "es" == b
    ]
    assert near_names(names) == slow
    assert len(slow) > 20


def test_names_with_other_numbers_are_others():
    assert near_names(["concept number 10", "concept number 11"]) == []


def test_few_or_blank_names():
    assert near_names([]) == near_names([""]) == near_names(["", "a"]) == []
