"""`onepair labels`: the completed table, and a sentence for every mistake."""

import sqlite3

import pytest

from onepair.data.formats.read import read_dataset
from onepair.labels import NEGATIVE, POSITIVE
from onepair.review.answers import Answer
from tests.review.runs import open_session, small_run


@pytest.fixture
def command(in_process, monkeypatch, tmp_path):
    """The command in this process: exit code, output, errors."""
    monkeypatch.chdir(tmp_path)
    return in_process


def test_it_writes_the_labels_and_says_what_changed(command, tmp_path):
    session = open_session(small_run(tmp_path / "runs"))
    cells = [session.suggestion(number) for number in (1, 2, 40)]
    decisions = [
        Answer(cell.file, cell.label, answer, 0) for cell, answer in zip(cells, ("yes", "no", "no"), strict=True)
    ]
    session.record([*decisions, Answer("gone.png", "bar", "yes", 0)], who="Ann")
    code, output, errors = command("labels", tmp_path / "runs", "--out", "completed.csv")  # a folder of runs will do
    assert (code, errors) == (0, "")
    assert output.splitlines() == [
        "labels confirmed: 1, rejected: 1, corrected: 1, still unknown: 88",
        "left out, as the dataset does not have their image or class: 1",
        "the labels are in completed.csv, who decided and when in completed_decisions.csv",
        f"its files are named as in {tmp_path}/runs/images/labels.csv; to train on it: "
        f"onepair train completed.csv --folder {tmp_path}/runs/images",
    ]
    labels = read_dataset("completed.csv", images=tmp_path / "runs/images").labels
    found = [int(labels[cell.row, session.table.classes.index(cell.label)]) for cell in cells]
    assert found == [POSITIVE, NEGATIVE, NEGATIVE]


def test_the_table_keeps_its_form_but_for_what_was_answered(command, tmp_path):
    run = small_run(tmp_path / "runs")
    session = open_session(run)
    cell = session.suggestion(1)
    source = (tmp_path / "runs/images/labels.csv").read_text().splitlines(keepends=True)
    session.record([Answer(cell.file, cell.label, "yes", 0)], who="Ann")  # which the whole table says already
    assert command("labels", run, "--out", "same.csv")[0] == 0
    assert (tmp_path / "same.csv").read_text() == "".join(source)
    session.record([Answer(cell.file, cell.label, "no", 1)], who="Ann")
    assert command("labels", run, "--out", "same.csv")[0] == 0
    written = (tmp_path / "same.csv").read_text().splitlines(keepends=True)
    (changed,) = [i for i, (old, new) in enumerate(zip(source, written, strict=True)) if old != new]
    old, new = (lines[changed].strip().split(",") for lines in (source, written))
    column = source[0].strip().split(",").index(cell.label)
    assert (old[0], old[column], new[column]) == (cell.file, "1", "0")
    assert command("labels", run, "--out", "full.csv", "--as", "csv")[0] == 0
    assert (tmp_path / "full.csv").read_text().startswith("file,split,asked,bar")
    code, _, errors = command("labels", run, "--out", "a.tsv", "--as", "same")
    assert (code, errors.endswith("go to a file that ends in .csv\n")) == (2, True)


def test_answers_of_a_read_only_run_are_read(command, tmp_path, monkeypatch):
    session = open_session(small_run(tmp_path / "runs"))
    cell = session.suggestion(1)
    session.record([Answer(cell.file, cell.label, "yes", 0)], who="Ann")
    connect = sqlite3.connect

    def read_only(path, **options):
        if "review.sqlite" in str(path) and "mode=ro" not in str(path):
            raise sqlite3.OperationalError("attempt to write a readonly database")
        return connect(path, **options)

    monkeypatch.setattr(sqlite3, "connect", read_only)
    code, output, errors = command("labels", tmp_path / "runs", "--out", "completed.csv")
    assert (code, errors) == (0, "")
    assert output.startswith("labels confirmed: 1,")


@pytest.mark.parametrize("format", ["coco", "label-studio", "fiftyone"])
def test_it_writes_the_formats_of_other_programs(command, tmp_path, format):
    session = open_session(small_run(tmp_path / "runs"))
    cell = session.suggestion(1)
    session.record([Answer(cell.file, cell.label, "yes", 0)], who="Ann")
    code, _, errors = command("labels", tmp_path / "runs", "--out", "completed.json")
    assert code == 2
    assert "may be of several formats; name one" in errors
    code, _, errors = command("labels", tmp_path / "runs", "--out", "completed.json", "--as", format)
    assert (code, errors) == (0, "")
    assert cell.label in (tmp_path / "completed.json").read_text()


def test_mistakes_end_in_a_sentence_and_leave_nothing(command, tmp_path):
    run = small_run(tmp_path / "runs")
    code, _, errors = command("labels", run, "--out", "completed.csv")
    assert (code, errors) == (2, f"onepair: {run}: nobody has reviewed it yet; run onepair review {run} first\n")
    open_session(run)
    before = sorted(path for path in tmp_path.rglob("*") if path.parent.name != "finding")
    for out, sentence in (
        ("a.txt", "labels are written as .csv or .parquet"),
        ("no/a.csv", "cannot be written"),
        ("runs/images/labels.csv", "is what this is made from"),
    ):
        code, _, errors = command("labels", run, "--out", out)
        assert code == 2
        assert errors.startswith("onepair: ")
        assert sentence in errors
        assert "Traceback" not in errors
    assert sorted(path for path in tmp_path.rglob("*") if path.parent.name != "finding") == before


def test_help_says_what_the_table_looks_like(command):
    code, output, _ = command("labels", "--help")
    assert code == 0
    assert "1, 0 or blank" in " ".join(output.split())
