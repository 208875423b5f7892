"""The quick way of reading large tables, against the way that reads every table."""

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onepair.data.problems import Problem
from onepair.data.tables import plain_lists
from onepair.data.tables import read_table as table
from onepair.data.tables.plain_lists import read_plain_lists

CELLS = ["dog", "cat;dog", "dog;dog;cow", "", "NA", "NA;dog", "big cat;7", "none", "dog;;cat", "é"]
ODD_CELLS = ["dog|cat", "dog,cat", "['dog']", " dog", "dog ;cat", '"dog"', "'=dog", "train", '{"a": ["dog"]}']


def both_ways(path, **options):
    """What each way makes of a file; the general one with all that it remarks."""
    problems: list[Problem] = []
    try:
        general = table.read(path, report=problems.append, **options)
    except table.DataError as error:
        problems.append(Problem("refused", str(path), str(error)))
        general = None
    return read_plain_lists(path, [path.parent], unlisted=options.get("unlisted", "unknown")), general, problems


def assert_same(found, expected):
    assert found.fingerprint() == expected.fingerprint()
    assert found.labels.same_as(expected.labels)
    assert tuple(found.places) == expected.places
    assert found.root == expected.root
    assert found.asked is None
    assert expected.asked is None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(
    cells=st.lists(st.sampled_from(CELLS * 3 + ODD_CELLS), min_size=1, max_size=6),
    splits=st.none() | st.lists(st.sampled_from(["train", "Val", "test", " test", "eval"]), min_size=6, max_size=6),
    title=st.sampled_from(["labels", "Labels", "tags"]),
    file=st.sampled_from(["file", "image", "path"]),
    end=st.sampled_from(["\n", "\r\n"]),
    last=st.booleans(),
    unlisted=st.sampled_from(["unknown", "negative"]),
)
def test_csv(tmp_path, cells, splits, title, file, end, last, unlisted):
    lines = [",".join([file, title, *(["split"] if splits else [])])]
    lines += [
        ",".join([f"{i}.jpg", f'"{cell}"' if "," in cell else cell, *([splits[i]] if splits else [])])
        for i, cell in enumerate(cells)
    ]
    path = tmp_path / "labels.csv"
    path.write_bytes((end.join(lines) + end * last).encode())
    found, expected, problems = both_ways(path, unlisted=unlisted)
    assert found is None or (expected is not None and not problems)
    if found is not None:
        assert_same(found, expected)
    elif title != "tags" and set(cells) <= set(CELLS) and any(cell not in ("", "NA", "none") for cell in cells):
        assert "eval" in (splits or [])[: len(cells)]  # all else is plain


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(
    lists=st.lists(
        st.none() | st.lists(st.sampled_from(["dog", "cat, black", "a;b", " odd", ""]), max_size=3), min_size=1
    ),
    unlisted=st.sampled_from(["unknown", "negative"]),
)
def test_parquet(tmp_path, lists, unlisted):
    column = pyarrow.array(lists, pyarrow.list_(pyarrow.string()))
    path = tmp_path / "labels.parquet"
    files = [f"{i}.jpg" for i in range(len(lists))]
    pyarrow.parquet.write_table(pyarrow.table({"labels": column, "file": files}), path)
    found, expected, problems = both_ways(path, unlisted=unlisted)
    assert found is None or (expected is not None and not problems)
    names = {name for each in lists for name in each or ()}
    if found is not None:
        assert_same(found, expected)
    else:
        assert not names or names & {" odd", ""}


@pytest.mark.parametrize(
    "lines",
    [
        ["file,labels", "a.jpg,dog", "a.jpg,cat"],  # a row per label
        ["file,labels", "a.jpg,dog", "", "b.jpg,cat"],  # a blank line, so that places are others
        ["file,labels", "a.jpg,dog", "b.jpg"],
        ["file,labels", "a.jpg,dog", ",cat"],
        ["file,labels,note", "a.jpg,dog,x"],
        ["file,labels", "a\\b.jpg,dog"],
        ["file;labels", "a.jpg;dog"],
        ["file,labels"],
    ],
)
def test_what_is_not_plain_is_left_to_the_other_way(tmp_path, lines):
    path = tmp_path / "labels.csv"
    path.write_text("".join(f"{line}\n" for line in lines))
    assert read_plain_lists(path, [tmp_path], unlisted="unknown") is None


def test_files_that_moved_are_left_to_the_other_way(tmp_path):
    (tmp_path / "a.jpg").touch()
    path = tmp_path / "labels.csv"
    path.write_text("file,labels\n/elsewhere/a.jpg,dog\n")
    assert read_plain_lists(path, [tmp_path], unlisted="unknown") is None


def test_large_tables_are_read_by_it(tmp_path, monkeypatch):
    monkeypatch.setattr(plain_lists, "LARGE", 10)
    path = tmp_path / "labels.csv"
    path.write_text("file,labels\na.jpg,dog\nb.jpg,cat;dog\n")
    read = table.read(path)
    assert isinstance(read.places, plain_lists.Places)
    assert read.places[1] == "labels.csv, line 3"
    assert read.places[:2] == ("labels.csv, line 2", "labels.csv, line 3")
    np.testing.assert_array_equal(read.labels, [[-1, 1], [1, 1]])
