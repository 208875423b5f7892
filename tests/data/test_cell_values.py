"""Tables in every dialect that people and programs write them in."""

import codecs
import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onepair.data import LabelTable
from onepair.data.label_table import RESERVED
from onepair.data.tables import read_table as table
from onepair.data.tables.cell_values import BLANK, Column, guard, label_of, names_in, unguard, write_names

thorough = settings(
    derandomize=True, deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

POSITIVES = ["WAHR", "1", "1.0", "true", "TRUE", "yes", "Y", "x", "X", " 1 ", "Ja", "oui", "sí"]
NEGATIVES = ["0", "0.0", "false", "FALSE", "no", "N", "nein", "Non"]
UNKNOWNS = ["", "NaN", "NA", "null", "None", "N/A", "-1", "?"]

words = st.text(st.sampled_from("abcdeéüß猫 -'"), min_size=1, max_size=8).map(str.strip)
not_names = {*RESERVED, *BLANK, "x", "y", "n", "tags", "image"}
plain_names = words.filter(lambda name: name and name.lower() not in not_names and not name.startswith("'"))
odd_names = plain_names | st.sampled_from(["cat, black", "a;b", "a|b", "it's", "say 'x'", "back\\slash", "2"])


@st.composite
def labelled(draw, names=plain_names, alphabet=(1, 0, -1)):
    """Files with their splits, classes, and labels of each."""
    count = draw(st.integers(1, 6))
    classes = draw(st.lists(names, min_size=1, max_size=4, unique=True))
    row = st.lists(st.sampled_from(alphabet), min_size=len(classes), max_size=len(classes))
    labels = np.array(draw(st.lists(row, min_size=count, max_size=count)), np.int8)
    splits = draw(st.lists(st.sampled_from(["train", "validation", "test"]), min_size=count, max_size=count))
    return LabelTable(tuple(f"é {i}.jpg" for i in range(count)), tuple(classes), labels, np.array(splits), Path())


def render(rows, *, delimiter=",", end="\n", quoting=csv.QUOTE_MINIMAL):
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=delimiter, lineterminator=end, quoting=quoting).writerows(rows)
    return text.getvalue()


def known(read):
    """The known labels of a table by split, file and class."""
    names = list(zip(read.split.tolist(), read.files, strict=True))
    return {(*names[i], read.classes[j]): int(read.labels[i, j]) for i, j in np.argwhere(read.labels != -1)}


def read(path, text, encoding="utf-8", **options):
    path.write_bytes(text if isinstance(text, bytes) else text.encode(encoding))
    return table.read(path, **options)


@thorough
@given(data=st.data(), expected=labelled())
def test_wide_tables(tmp_path, data, expected):
    """Any delimiter, encoding, line end, quoting and way to write a label, with what spreadsheets add at the end."""
    ways = {1: POSITIVES, 0: NEGATIVES, -1: UNKNOWNS}
    delimiter = data.draw(st.sampled_from(",;\t|"))
    encoding, mark = data.draw(
        st.sampled_from([("utf-8", b""), ("utf-8", codecs.BOM_UTF8), ("utf-16-le", codecs.BOM_UTF16_LE)])
        | st.sampled_from([("utf-16-be", codecs.BOM_UTF16_BE), ("utf-16-le", b""), ("utf-16-be", b"")])
    )
    title = data.draw(st.sampled_from(["file", "Filename", "image", "file_name", "path"]))
    trailing = [""] * data.draw(st.integers(0, 2))
    rows = [[title, "split", *expected.classes, *trailing]]
    for file, split, labels in zip(expected.files, expected.split.tolist(), expected.labels.tolist(), strict=True):
        rows.append([file, split, *(data.draw(st.sampled_from(ways[label])) for label in labels), *trailing])
    rows += [[""] * len(rows[0])] * data.draw(st.integers(0, 2))
    text = render(
        rows,
        delimiter=delimiter,
        end=data.draw(st.sampled_from(["\n", "\r\n"])),
        quoting=data.draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])),
    )
    if mark or not encoding.startswith("utf-16"):
        text = data.draw(st.sampled_from(["", f"sep={delimiter}\r\n"])) + text
    found = read(tmp_path / "labels.csv", mark + text.encode(encoding))
    assert found.files == expected.files
    assert found.classes == expected.classes
    assert found.labels.tolist() == expected.labels.tolist()
    assert found.split.tolist() == expected.split.tolist()


LISTS = {
    "semicolons": ";".join,
    "bars": "|".join,
    "commas": ",".join,
    "spaces": " ; ".join,
    "JSON": json.dumps,
    "Python": lambda names: str(list(names)),
    "numpy": lambda names: str(np.array(list(names), object)),
    "our own": write_names,
}


@pytest.mark.parametrize("way", LISTS)
@thorough
@given(data=st.data(), title=st.sampled_from(["labels", "label", "tags", "Classes"]))
def test_lists(tmp_path, way, title, data):
    names = odd_names if way in ("JSON", "Python", "our own") else plain_names.filter(lambda name: "'" not in name)
    expected = data.draw(labelled(names, alphabet=(1, -1)).filter(lambda table: (table.labels == 1).any()))
    rows = [["file", title, "split"]]
    for file, split, labels in zip(expected.files, expected.split.tolist(), expected.labels, strict=True):
        positive = [expected.classes[i] for i in np.flatnonzero(labels == 1)]
        rows.append([file, LISTS[way](positive) if positive else "", split])
    assert known(read(tmp_path / "labels.csv", render(rows))) == known(expected)


@thorough
@given(expected=labelled(alphabet=(1, -1)).filter(lambda table: (table.labels == 1).any()))
def test_a_row_per_label(tmp_path, expected):
    rows = [["file", "label", "split"]]
    rows += [
        (expected.files[i], expected.classes[j], expected.split[i])
        for i, j in np.argwhere(expected.labels.dense().T == 1)[:, ::-1]
    ]
    assert known(read(tmp_path / "labels.csv", render(rows))) == known(expected)


@thorough
@given(expected=labelled(odd_names), as_lists=st.booleans())
def test_parquet_and_json_lines(tmp_path, expected, as_lists):
    columns = {"file": list(expected.files), "split": expected.split.tolist()}
    if as_lists and (expected.labels == 1).any(0).all():
        expected = replace(expected, labels=np.where(expected.labels == 0, -1, expected.labels))
        columns["labels"] = [[expected.classes[i] for i in np.flatnonzero(row == 1)] for row in expected.labels]
    else:
        value = {1: True, 0: False, -1: None}
        columns |= {
            name: [value[label] for label in column.tolist()]
            for name, column in zip(expected.classes, expected.labels.dense().T, strict=True)
        }
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "labels.parquet")
    assert known(table.read(tmp_path / "labels.parquet")) == known(expected)
    objects = [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]
    lines = "".join(f"{json.dumps(each)}\n" for each in objects)
    assert known(read(tmp_path / "labels.jsonl", lines)) == known(expected)


def test_the_encoding_of_windows_is_read_with_a_remark(tmp_path):
    problems = []
    found = read(tmp_path / "labels.csv", "file,Vögel\nä.jpg,1\n", "cp1252", report=problems.append)
    assert (found.files, found.classes) == (("ä.jpg",), ("Vögel",))
    assert [(problem.kind, problem.remark) for problem in problems] == [("encoding", True)]


@pytest.mark.parametrize(
    ("cell", "names"),
    [
        ('"cat, black";dog', ["cat, black", "dog"]),
        ('"cat, black"', ["cat, black"]),
        ('"a;b", c', ["a;b", "c"]),
        ('a "quoted" name', ['a "quoted" name']),
        ('5" pipe;dog', ['5" pipe', "dog"]),
        ("['dog' 'cat']", ["dog", "cat"]),
        ("['dog'\n 'cat']", ["dog", "cat"]),
        ("['it\\'s']", ["it's"]),
        ("""["it's", 'b']""", ["it's", "b"]),
        ("[]", []),
        ("NaN", []),
        (None, []),
        (float("nan"), []),
        (3, ["3"]),
        ([1, "a "], ["1", "a"]),
        ("[dog, cat]", ["dog", "cat"]),
        ("[dog, [cat]]", None),
        ("['dog', __import__('os')]", None),
        ("['dog', 1]", None),
        ("['it''s']", None),
        ("['it's']", None),
        ("[{}]", None),
        ('["a", ""]', None),
        ({"a": 1}, None),
        ({"bbox": [[0, 0, 1, 1]], "categories": ["dog"]}, ["dog"]),
        ({"bbox": [[0, 0, 1, 1]], "ids": [1]}, None),
        (True, None),
    ],
)
def test_names_in_a_cell(cell, names):
    assert names_in(cell) == names


def test_a_name_with_a_comma_is_known_from_cells_that_separate_otherwise(tmp_path):
    rows = [["file", "labels"], ["a", "cat, tabby;dog"], ["b", "cat, tabby"], ["c", "dog, bird"]]
    found = read(tmp_path / "labels.csv", render(rows))
    assert found.classes == ("bird", "cat, tabby", "dog")
    assert found.labels.tolist() == [[-1, 1, 1], [-1, 1, -1], [1, -1, 1]]


@given(cells=st.lists(st.text(st.sampled_from("ab;;  NA'\\t#("), max_size=6)))
def test_plain_cells_list_the_names_that_each_alone_does(cells):
    assert Column(cells).lists == list(map(names_in, cells))


@given(text=st.text() | st.text(st.sampled_from("'=+-@\t\r ab"), max_size=5))
def test_what_is_guarded_comes_back_and_is_no_formula(text):
    assert unguard(guard(text)) == text
    assert not guard(text).startswith(("=", "+", "-", "@", "\t", "\r"))


@given(names=st.lists(st.text(st.characters(exclude_categories=["Cs"])).map(str.strip).filter(bool)))
def test_lists_that_are_written_come_back(names):
    assert names_in(write_names(names)) == names


@pytest.mark.parametrize("cell", [2, 0.5, "2", "maybe", [1], {}, "10", "1 0", b"1"])
def test_what_is_no_label(cell):
    assert label_of(cell) == 2
