"""The files that suggestions are written to."""

import csv

import numpy as np
import pyarrow.parquet
import pytest

from onepair.errors import RunError
from onepair.finding import rank
from onepair.finding.suggestions import write_suggestions

FILES, CLASSES = ["a, b.jpg", 'folder/"c".jpg'], ["dog", "röntgen"]


@pytest.fixture
def found():
    return rank([[-1, 1], [0, -1]], [[0.25, 0.9], [0.001, 1 / 3]])


EXPECTED = [
    ('folder/"c".jpg', "röntgen", 0.333333, 1, "missing"),
    ("a, b.jpg", "dog", 0.25, 2, "missing"),
    ("a, b.jpg", "röntgen", 0.1, 3, "wrong"),
    ('folder/"c".jpg', "dog", 0.001, 4, "wrong"),
]


def test_csv_holds_one_suggestion_a_line(found, tmp_path):
    write_suggestions(tmp_path / "found.csv", found, FILES, CLASSES)
    with (tmp_path / "found.csv").open(encoding="utf-8", newline="") as text:
        header, *lines = csv.reader(text)
    assert header == ["file", "label", "probability", "rank", "kind"]
    assert [(file, label, float(p), int(rank), kind) for file, label, p, rank, kind in lines] == EXPECTED


def test_parquet_holds_the_same(found, tmp_path):
    write_suggestions(tmp_path / "found.parquet", found, FILES, CLASSES)
    columns = pyarrow.parquet.read_table(tmp_path / "found.parquet").to_pydict()
    assert list(columns) == ["file", "label", "probability", "rank", "kind"]
    assert list(zip(*columns.values(), strict=True)) == EXPECTED


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_nothing_found_is_an_empty_table(found, tmp_path, suffix):
    write_suggestions(tmp_path / f"found.{suffix}", found[np.zeros(4, bool)], FILES, CLASSES)
    if suffix == "csv":
        assert (tmp_path / "found.csv").read_text() == "file,label,probability,rank,kind\n"
    else:
        assert pyarrow.parquet.read_table(tmp_path / "found.parquet").num_rows == 0


def test_other_names_are_refused(found, tmp_path):
    with pytest.raises(RunError, match=r"found.xls: suggestions are written as .csv or .parquet"):
        write_suggestions(tmp_path / "found.xls", found, FILES, CLASSES)
    with pytest.raises(RunError, match="there is no folder"):
        write_suggestions(tmp_path / "no" / "found.csv", found, FILES, CLASSES)
    assert not list(tmp_path.iterdir())
