import json
import os
import subprocess
import sys
from pathlib import Path

import hypothesis
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from onepair import label_matrix
from onepair.data import DataError, LabelTable, read_dataset, write_table
from onepair.data.formats import write as table_writing
from onepair.data.label_table import RESERVED
from onepair.data.quality import find_problems
from onepair.data.tables import read_table as table
from onepair.data.tables.read_table import MANY_CLASSES
from onepair.errors import WriteError
from tests.data import layouts


def read_csv(folder, *rows, **options):
    return table.read(layouts.write(folder / "labels.csv", "\n".join(rows)), **options)


def read_parquet(folder, columns, **options):
    pyarrow.parquet.write_table(pyarrow.table(columns), folder / "labels.parquet")
    return table.read(folder / "labels.parquet", **options)


def problems_of(read, *args, **options):
    problems = []
    result = read(*args, report=problems.append, **options)
    with pytest.raises(DataError, match=r"labels\.(csv|parquet), "):
        read(*args, **options)
    return result, [str(problem) for problem in problems]


# Wide tables


def test_a_wide_table(tmp_path):
    read = table.read(layouts.csv_wide(tmp_path))
    assert read.files == ("a.jpg", "b,1.jpg")
    assert read.split.tolist() == ["train", "test"]
    assert read.classes == ("cat", "dog")
    assert read.labels.tolist() == [[1, 0], [-1, 1]]
    assert read.root == tmp_path


def test_columns_keep_their_order_wherever_file_and_split_stand(tmp_path):
    read = read_csv(tmp_path, "image,zebra,split,file,ant", "1,1,val,a.jpg,0")
    assert read.classes == ("image", "zebra", "ant")
    assert read.files == ("a.jpg",)
    assert read.split.tolist() == ["validation"]


@pytest.mark.parametrize("name", ["file", "File", "image", "filename", "path"])
def test_names_of_the_first_column(tmp_path, name):
    read = read_csv(tmp_path, f"{name},cat", "a.jpg,1")
    assert (read.files, read.classes, read.split.tolist()) == (("a.jpg",), ("cat",), ["train"])


@pytest.mark.parametrize("cell", ["1", " 1", "1 ", "1.0", '"1"'])
def test_ways_to_write_a_positive(tmp_path, cell):
    assert read_csv(tmp_path, "file,cat,dog", f"a.jpg,{cell},0.0").labels.tolist() == [[1, 0]]


def test_names_of_classes_lose_the_spaces_around_them(tmp_path):
    assert read_csv(tmp_path, "file, cat , split", "a.jpg, 1, test").classes == ("cat",)
    assert read_csv(tmp_path, "file,labels", 'a.jpg,"["" dog""]"', "b.jpg, cat ;dog").classes == ("cat", "dog")


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_separators_line_ends_and_byte_order_marks(tmp_path, separator, end, mark):
    text = mark + end.join(["file,cat,dog", "a.jpg,1,", "", "b.jpg,0,1", ""]).replace(",", separator)
    read = table.read(layouts.write(tmp_path / "labels.csv", text))
    assert read.files == ("a.jpg", "b.jpg")
    assert read.labels.tolist() == [[1, -1], [0, 1]]


def test_images_may_lie_elsewhere(tmp_path):
    assert read_csv(tmp_path, "file,cat", "a.jpg,1", images=Path("photos")).path(0) == Path("photos/a.jpg")


def test_problems_name_line_and_column_and_become_unknown(tmp_path):
    rows = (
        "file,split,cat,dog,cat",
        '"a\n1.jpg",train,1,2,0',
        "b.jpg,train,oder,0,0",
        "c.jpg,train,1",
        "b.jpg,train,1,1,1",
        "b.jpg,test,1,#,1",
        ",test,1,1,1",
        "d.jpg,eval,1,1,1",
    )
    read, problems = problems_of(read_csv, tmp_path, *rows)
    assert problems == [
        "labels.csv, line 5: has 3 cells for 5 columns",
        "labels.csv, column 5: names class cat again, after column 3",
        "labels.csv, line 9, column split: holds 'eval'; a split is train, validation, test",
        "labels.csv, line 8, column file: holds '', not the name of a file",
        "labels.csv: lists b.jpg twice (lines 4 and 6)",
        "labels.csv, line 2, column dog: holds '2'; a label is 1 or 0, and the cell stays blank where it is unknown",
        "labels.csv, line 4, column cat: holds 'oder'; a label is 1 or 0, and the cell stays blank where it is unknown",
        "labels.csv, line 7, column dog: holds '#'; a label is 1 or 0, and the cell stays blank where it is unknown",
    ]
    assert read.files == ("a\n1.jpg", "b.jpg", "b.jpg")
    assert read.split.tolist() == ["train", "train", "test"]
    assert read.labels.tolist() == [[1, -1], [-1, 0], [1, -1]]


def test_rows_that_say_no_split_are_for_training(tmp_path):
    remarks = []
    rows = ("file,split,cat", "a.jpg,,1", "b.jpg,NA,0", "c.jpg,test,1")
    read = read_csv(tmp_path, *rows, report=remarks.append)
    assert read.split.tolist() == ["train", "train", "test"]
    assert list(map(str, remarks)) == [
        "labels.csv, line 2, column split: 2 rows from here on say nothing, and are for training"
    ]


def test_a_table_of_other_splits_lists_no_image(tmp_path):
    with pytest.raises(DataError, match="lists no image; none of its 2 rows has a file and a split"):
        read_csv(tmp_path, "file,split,cat", "a.jpg,0,1", "b.jpg,1,0", report=lambda _: None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no column named file; the first line names the columns"),
        ("a.jpg,1\n", "begins with an image; write a line above it"),
        ("cat,thing\n1,a\n", "no column named file among its columns cat, thing"),
        ("cat,one,other\n1,a.jpg,b.jpg\n", "no column named file among its columns cat, one, other"),
        (
            "file,cat\na.jpg,2\n",
            "no columns of classes .*; column cat holds values that are no labels, as '2' in line 2",
        ),
        ("file,cat\n", "lists no image"),
        ("file\na.jpg\n", "no columns of classes and no column named labels"),
        ("file,cat,File\na.jpg,1,0\n", "column 3 is a second column File; no class can have that name"),
        ("file,label,seen\na.jpg,cat,1\na.jpg,dog,0\n", "a list of labels and a column seen of labels; call it value"),
        ('file,labels\na.jpg,"[0, 1, 0]"\nb.jpg,"[0, 0, 1]"\n', "zeros and ones without the names"),
        ("file,labels\na.jpg,0 1 0\nb.jpg,0 0 1\n", "zeros and ones without the names"),
        ("file,tags,label\na.jpg,cat,dog\n", "has columns label and tags; name the one with the labels"),
        ("file,labels\na.jpg,NaN\n", "its column labels names no class at all"),
        ('file,cat\na.jpg,"1\n', r"labels\.csv, line 2: is not CSV"),
        ("file,cat\n" + "a" * 200_000 + ",1\n", "line 2: is not CSV"),
        (b"file,cat\n\x81.jpg,1\n", "byte 9 is not UTF-8"),
        (b"\xff\xfef", "byte 2 is not UTF-16"),
    ],
)
def test_refuses_what_is_no_table(tmp_path, text, message):
    path = tmp_path / "labels.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(DataError, match=message):
        table.read(path)


def test_unlisted_negative_makes_blank_cells_negative(tmp_path):
    read = read_csv(tmp_path, "file,cat,dog", "a.jpg,1,", "b.jpg,NA,-1", "c.jpg,0,2", unlisted="negative", report=print)
    assert read.labels.tolist() == [[1, 0], [0, -1], [0, -1]]


# Lists of labels


def test_lists_of_labels(tmp_path):
    read = table.read(layouts.csv_lists(tmp_path))
    assert read.classes == ("cat", "dog")
    assert read.labels.tolist() == [[1, 1], [1, -1], [-1, -1]]


def test_unlisted_may_be_negative_and_then_a_blank_list_is_verified_empty(tmp_path):
    read = table.read(layouts.csv_lists(tmp_path), unlisted="negative")
    assert read.labels.tolist() == [[1, 1], [1, 0], [0, 0]]
    with pytest.raises(ValueError, match="unlisted must be 'unknown' or 'negative', got 'zero'"):
        read_dataset(layouts.csv_lists(tmp_path), unlisted="zero")


@pytest.mark.parametrize(
    ("cell", "names"),
    [
        ("dog", {"dog"}),
        (" dog ; cat;", {"dog", "cat"}),
        ('"dog, cat"', {"dog", "cat"}),
        ('"cat, tabby;dog"', {"cat, tabby", "dog"}),
        ('"[""a;b"", ""c""]"', {"a;b", "c"}),
    ],
)
def test_ways_to_write_a_list(tmp_path, cell, names):
    assert set(read_csv(tmp_path, "file,labels", f"a.jpg,{cell}").classes) == names


def test_a_bad_list_is_a_problem_and_all_unknown(tmp_path):
    rows = ("file,labels,split", "a.jpg,dog,train", "b.jpg,[{}],train", '"c.jpg","[null]",train')
    read, problems = problems_of(read_csv, tmp_path, *rows, unlisted="negative")
    assert problems == [
        "labels.csv, line 3, column labels: holds '[{}]'; write names separated by ; or a JSON list of names",
        "labels.csv, line 4, column labels: holds '[null]'; write names separated by ; or a JSON list of names",
    ]
    assert read.labels.tolist() == [[1], [-1], [-1]]


def test_lists_that_name_nothing_are_refused(tmp_path):
    with pytest.raises(DataError, match="names no class at all"):
        read_csv(tmp_path, "file,labels", "a.jpg,", "b.jpg,[]")


@pytest.mark.parametrize("name", ["file", "Split", "labels", "complete", "asked"])
@pytest.mark.parametrize("form", ["table", "folders"])
def test_a_class_with_the_name_of_a_column_is_refused_at_the_door(tmp_path, name, form):
    layouts.write(tmp_path / "photos" / name / "1.jpg", "")
    layouts.write(tmp_path / "photos" / "dog" / "2.jpg", "")
    path = (
        layouts.write(tmp_path / "labels.csv", f"file,labels\na.jpg,dog;{name}\n")
        if form == "table"
        else tmp_path / "photos"
    )
    with pytest.raises(DataError, match=rf"no class can be named '{name}', because tables .*; rename the class"):
        read_dataset(path)


def test_names_that_are_not_utf_8_are_refused_at_the_door(tmp_path):
    for folder, file in ((b"dog", b"1.jpg"), (b"cat", b"\xff.jpg")):
        (tmp_path / os.fsdecode(folder)).mkdir()
        (tmp_path / os.fsdecode(folder) / os.fsdecode(file)).touch()
    with pytest.raises(DataError, match=r"the name of the file 'cat/\\udcff\.jpg' is not UTF-8; rename it"):
        read_dataset(tmp_path)
    (tmp_path / "cat").rename(tmp_path / os.fsdecode(b"\xffcat"))
    (tmp_path / os.fsdecode(b"\xffcat") / os.fsdecode(b"\xff.jpg")).rename(tmp_path / os.fsdecode(b"\xffcat") / "1.jpg")
    with pytest.raises(DataError, match=r"is not UTF-8; rename it"):
        read_dataset(tmp_path)


def test_very_many_classes_are_read_and_checked_in_linear_time(tmp_path):
    """A quadratic step takes minutes here, which no test waits for."""
    names = [f"class {i}" for i in range(30_000)]
    rows = [",".join([f"{i}.jpg", *("1" if i == j % 12 else "" for j in range(len(names)))]) for i in range(12)]
    read = read_csv(tmp_path, ",".join(["file", *names]), *rows)
    assert read.labels.shape == (12, 30_000)
    assert len(list(find_problems(read))) < 20


# Parquet


def test_parquet_takes_numbers_booleans_texts_and_null(tmp_path):
    columns = {"file": ["a", "b", "c"], "x": [1, 0, None], "y": [True, False, None], "z": [1.0, 0.0, None]}
    read = read_parquet(tmp_path, {**columns, "split": ["train", "valid", "test"], "t": ["1", "0", ""]})
    assert read.classes == ("x", "y", "z", "t")
    assert read.labels.tolist() == [[1] * 4, [0] * 4, [-1] * 4]
    assert read.split.tolist() == ["train", "validation", "test"]


def test_parquet_lists(tmp_path):
    read = read_parquet(tmp_path, {"file": ["a", "b", "c"], "labels": [["dog", "cat"], [], None]})
    assert read.labels.tolist() == [[1, 1], [-1, -1], [-1, -1]]


def test_nulls_in_the_lists_of_parquet_are_blank(tmp_path):
    read = read_parquet(tmp_path, {"file": ["a", "b"], "labels": [["dog", None], [None]]})
    assert read.labels.tolist() == [[1], [-1]]
    with pytest.raises(DataError, match="its column labels names no class at all"):
        read_parquet(tmp_path, {"file": ["a", "b"], "labels": [[None], [None]]})


def test_problems_in_parquet_name_row_and_column(tmp_path):
    columns = {"file": ["a", None, "c"], "x": [1.0, 1.0, float("nan")], "y": [[1], [0], []], "z": [None, 2, 0]}
    read, problems = problems_of(read_parquet, tmp_path, columns)
    assert problems == [
        "labels.parquet, column y: holds values that are no labels, as [1] in row 1; left out",
        "labels.parquet, row 2, column file: holds None, not the name of a file",
    ]
    assert read.classes == ("x", "z")
    assert read.labels.tolist() == [[1, -1], [-1, 0]]
    columns["file"][1] = "b"
    assert "row 2, column z: holds 2; a label is 1 or 0" in problems_of(read_parquet, tmp_path, columns)[1][1]


def test_parquet_without_a_file_column_and_what_is_no_parquet_are_refused(tmp_path):
    with pytest.raises(DataError, match="no column named file among its columns x"):
        read_parquet(tmp_path, {"x": [1]})
    with pytest.raises(DataError, match="is not a Parquet file"):
        table.read(layouts.write(tmp_path / "bad.parquet", "file,cat\n"))


# Writing

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8).filter(str.strip) | st.sampled_from(
    [
        "a,b",
        "tags",
        "nan",
        "-1",
        "@home",
        "'=1",
        "''-",
        "\t=",
        "a|b",
        "[x]",
        '["x"]',
        'say "cat"',
        "two\nlines",
        "back\r",
        "a;file;b",
        "\ufefffile",
        "'",
        "=1+1",
        "1",
        "猫",
    ]
)
class_names = names.map(str.strip).filter(lambda name: name and name.lower() not in RESERVED)


@st.composite
def tables(draw):
    rows = draw(st.lists(st.tuples(names, st.sampled_from(["train", "validation", "test"])), min_size=1, unique=True))
    classes = draw(st.lists(class_names, min_size=1, max_size=4, unique=True))
    cells = st.lists(st.sampled_from([1, 0, -1]), min_size=len(classes), max_size=len(classes))
    labels = draw(st.lists(cells, min_size=len(rows), max_size=len(rows)))
    files, splits = zip(*rows, strict=True)
    asked = draw(st.none() | arrays(bool, (len(rows), len(classes))))
    return LabelTable(files, tuple(classes), np.array(labels, np.int8), np.array(splits), Path(), asked=asked)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@settings(derandomize=True, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(written=tables())
@hypothesis.example(LabelTable(("a",), ("ISVALID", "dog"), np.ones((1, 2), np.int8), np.array(["train"]), Path()))
def test_reading_gives_back_what_was_written(tmp_path, suffix, written):
    path = tmp_path / f"labels{suffix}"
    write_table(written, path)
    read = table.read(path)
    assert read.files == written.files
    assert read.classes == written.classes
    assert read.split.tolist() == written.split.tolist()
    assert read.labels.tolist() == written.labels.tolist()
    assert (read.asked is None) == (written.asked is None or not written.asked.has(1))
    assert read.asked is None or read.asked.tolist() == written.asked.tolist()
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("form", ["wide", "lists"])
def test_a_table_is_the_same_read_as_a_small_and_as_a_large_one(tmp_path, monkeypatch, form):
    rows = {
        "wide": ["file,cat,dog", "a,1,", "b,0,1", "c,,"],
        "lists": ["file,labels,negatives", "a,cat,", "b,dog,cat", "c,,"],
    }
    small = read_csv(tmp_path, *rows[form])
    monkeypatch.setattr(label_matrix, "MOST_CELLS", 0)
    monkeypatch.setattr(label_matrix, "_BLOCK", 1)
    large = read_csv(tmp_path, *rows[form])
    assert large.labels.is_large
    assert large.labels.same_as(small.labels)
    assert (large.fingerprint(), large.places) == (small.fingerprint(), small.places)
    write_table(large, tmp_path / "written.csv")
    assert table.read(tmp_path / "written.csv").labels.same_as(small.labels)


def known(table):
    """Every label that is known, by the names of the image and of the class."""
    cells = ((row, column) for row in range(len(table)) for column in range(len(table.classes)))
    return {
        (table.files[row], table.split[row], table.classes[column]): int(table.labels[row, column])
        for row, column in cells
        if table.labels[row, column] >= 0
    }


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@settings(derandomize=True, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(written=tables())
def test_lists_give_back_what_is_known(tmp_path, suffix, written):
    """As tables are written that are too large for a column per class."""
    hypothesis.assume(written.labels.has(1))
    path = tmp_path / f"lists{suffix}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(label_matrix, "MOST_CELLS", 0)
        write_table(written, path)
    read = table.read(path)
    assert read.files == written.files
    assert read.split.tolist() == written.split.tolist()
    assert known(read) == known(written)
    assert set(read.classes) == {name for *_, name in known(written)}


def test_more_negatives_than_can_be_named_are_refused(tmp_path, monkeypatch):
    """As of complete rows that an added class is unknown of."""
    labels = np.array([[1, 0, 0, -1], [1, 0, 0, -1], [1, 0, 0, 0]], np.int8)
    written = example(files=tuple("abc"), classes=tuple("wxyz"), labels=labels)
    monkeypatch.setattr(label_matrix, "MOST_CELLS", 0)
    monkeypatch.setattr(table_writing, "MOST_NAMED", 4)
    write_table(written, tmp_path / "lists.csv")
    monkeypatch.setattr(table_writing, "MOST_NAMED", 3)
    with pytest.raises(DataError, match="4 negatives are too many to be named one by one"):
        write_table(written, tmp_path / "other.csv")
    assert not (tmp_path / "other.csv").exists()


@pytest.mark.parametrize("large", [True, False])
def test_names_of_several_words_stay_whole(tmp_path, monkeypatch, large):
    """Also where each image has one label, so that nothing in the lists separates names but their spaces."""
    classes = ("blue dress", "dress", "long blue dress", "long red dress", "red dress", "red shirt", "shirt")
    labels = np.where(np.eye(7, dtype=np.int8) == 1, 1, -1).astype(np.int8)
    written = example(files=tuple("abcdefg"), classes=classes, labels=labels, asked=labels == 1)
    monkeypatch.setattr(label_matrix, "MOST_CELLS", 0 if large else 100)
    write_table(written, tmp_path / "labels.csv")
    read = table.read(tmp_path / "labels.csv")
    assert read.classes == classes
    assert read.labels.tolist() == labels.tolist()
    assert read.asked.tolist() == (labels == 1).astype(int).tolist()


def test_a_class_that_no_image_shows_is_named_once(tmp_path, monkeypatch):
    """Not by every complete row: these would name as many as there are cells."""
    labels = np.array([[-1, 0, -1], [1, 0, 0], [1, 0, 0], [0, 0, 0]], np.int8)
    monkeypatch.setattr(label_matrix, "MOST_CELLS", 0)
    write_table(example(files=tuple("abcd"), classes=("cat", "dog", "owl"), labels=labels), tmp_path / "lists.csv")
    assert (tmp_path / "lists.csv").read_text().splitlines() == [
        "file,split,complete,labels,negatives",
        "a,train,0,,dog",
        "b,train,1,cat,dog;owl",
        "c,train,1,cat,",
        "d,train,1,,",
    ]
    assert table.read(tmp_path / "lists.csv").labels.tolist() == labels.tolist()


def example(**changes):
    fields = {"files": ("a.jpg",), "classes": ("cat",), "labels": np.ones((1, 1), np.int8)}
    return LabelTable(
        **{**fields, "split": np.array(["train"] * len(changes.get("files", "1"))), "root": Path(), **changes}
    )


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classes": ("file",)}, "can be named 'file'"),
        ({"classes": ("Split",)}, "can be named 'Split'"),
        ({"classes": ("labels",)}, "can be named 'labels'"),
        ({"classes": ("",)}, "can be named ''"),
        ({"classes": (" cat",)}, "no spaces around them"),
        ({"classes": ("cat", "cat"), "labels": np.ones((1, 2), np.int8)}, "names every class once"),
        ({"files": ("a", "a"), "labels": np.ones((2, 1), np.int8)}, "every file once in a split"),
        ({"files": ("",)}, "row 0 has no file name"),
        ({"files": ("\udcff.jpg",)}, "is not UTF-8; rename it"),
    ],
)
def test_refuses_to_write_what_could_not_be_read_back(tmp_path, suffix, changes, message):
    with pytest.raises(DataError, match=message):
        write_table(example(**changes), tmp_path / f"labels{suffix}")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "labels.csv"
    write_table(example(), path)
    before = path.read_bytes()

    def full_disk(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(WriteError, match=r"labels\.csv: cannot be written \(No space left on device\)"):
        write_table(example(classes=("dog",)), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_other_kinds_of_files_are_not_written(tmp_path):
    with pytest.raises(DataError, match=r"written as \.csv or \.parquet"):
        write_table(example(), tmp_path / "labels.xlsx")


def test_writing_into_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(WriteError, match="cannot be written"):
        write_table(example(), tmp_path / "missing" / "labels.csv")


def test_csv_needs_neither_torch_nor_pyarrow(tmp_path):
    path = layouts.csv_wide(tmp_path)
    code = (
        "import sys; from onepair.data import read_dataset; "
        "read_dataset(sys.argv[1]); print(sorted({'torch', 'pyarrow'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


# What other programs write


def noted(folder, *rows):
    """The table, and what was remarked on it; nothing was wrong with it."""
    remarks = []
    read = read_csv(folder, *rows, report=remarks.append)
    assert all(remark.remark for remark in remarks)
    return read, list(map(str, remarks))


def test_where_images_have_several_rows_a_label_may_hold_a_comma(tmp_path):
    read, remarks = noted(tmp_path, "file,label", "a.jpg,dog", 'a.jpg,"cat, black"', "b.jpg,dog")
    assert read.classes == ("cat, black", "dog")
    assert read.labels.tolist() == [[1, 1], [-1, 1]]
    assert remarks == ["labels.csv: has several rows for 1 image; each has all the labels of its rows"]


def test_lists_with_commas_stay_lists_where_an_image_is_there_twice_by_mistake(tmp_path):
    problems = []
    rows = ('a.jpg,"dog, cat"', 'b.jpg,"dog, cat"', 'c.jpg,"cat, dog"', "a.jpg,dog")
    read = read_csv(tmp_path, "file,labels", *rows, report=problems.append)
    assert read.classes == ("cat", "dog")
    assert [problem.kind for problem in problems] == ["duplicate"]


def test_a_split_column_is_known_by_what_it_holds(tmp_path):
    read, remarks = noted(tmp_path, "File Name,subset,cat", "a.jpg,Train,1", "b.jpg,TEST,0")
    assert read.split.tolist() == ["train", "test"]
    assert read.classes == ("cat",)
    assert remarks == ["labels.csv, column subset: holds splits; taken for the column split"]


def test_paths_of_another_machine_are_found_by_their_ends(tmp_path):
    for name in ("a.jpg", "b.jpg"):
        layouts.write(tmp_path / "photos" / name, "")
    foreign = ("C:\\me\\photos\\a.jpg", "C:\\me\\photos\\b.jpg", "C:\\me\\gone.jpg")
    read, remarks = noted(tmp_path, "file,cat", *(f"{name},1" for name in foreign))
    assert read.files == ("photos/a.jpg", "photos/b.jpg", foreign[2])
    assert remarks == [f"labels.csv: 2 files found by the end of the name, as {foreign[0]}, which is photos/a.jpg"]


def test_the_choices_of_label_studio_are_a_list(tmp_path):
    rows = ('a.jpg,"{""choices"": [""dog"", ""cat""]}"', "b.jpg,dog")
    assert noted(tmp_path, "image,labels", *rows)[0].classes == ("cat", "dog")


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
