"""Suggestions in order, against a slow reference, and the files that they are written to."""

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


def slow_rank(labels, probabilities):
    cells = []
    for row, (values, shares) in enumerate(zip(labels.tolist(), probabilities.tolist(), strict=True)):
        for label, (value, share) in enumerate(zip(values, shares, strict=True)):
            kind = "missing" if value == -1 else "wrong"
            cells.append((row, label, 1 - share if value == 1 else share, kind))
    return sorted(cells, key=lambda cell: -cell[2])


def cells_of(found):
    return list(
        zip(found.row.tolist(), found.label.tolist(), found.probability.tolist(), found.kind.tolist(), strict=True)
    )


def test_every_cell_is_ranked_as_by_the_slow_reference():
    random = np.random.default_rng(0)
    labels = random.integers(-1, 2, (31, 7))
    probabilities = random.integers(0, 5, labels.shape) / 4  # with ties, which stay in the order of the matrix
    found = rank(labels, probabilities)
    assert cells_of(found) == slow_rank(labels, probabilities)
    assert len(found) == labels.size


def test_a_part_keeps_its_order():
    found = rank([[-1, -1, 1]], [[0.2, 0.9, 0.5]])
    assert cells_of(found[:2]) == [(0, 1, 0.9, "missing"), (0, 2, 0.5, "wrong")]
    assert cells_of(found[found.kind == "missing"]) == [(0, 1, 0.9, "missing"), (0, 0, 0.2, "missing")]


@pytest.mark.parametrize(
    ("labels", "probabilities", "sentence"),
    [
        ([[1, 2]], [[0.5, 0.5]], "row 0, column 1 holds 2"),
        ([[1, 0]], [[0.5]], "must have one shape"),
        ([[1, 0]], [[0.5, 1.5]], "row 0, column 1 is 1.5, not from 0 to 1"),
        ([[1, 0]], [[np.nan, 0.5]], "row 0, column 0 is nan"),
    ],
)
def test_mistakes_are_named(labels, probabilities, sentence):
    with pytest.raises(ValueError, match=sentence):
        rank(labels, probabilities)
