"""The demo: from nothing to suggestions, judged by the truth."""

import csv

import numpy as np

from onepair.cli.first_steps import FIRST, judge
from onepair.finding.suggestions import ClassSummary, Finding, Suggestions
from onepair.probability.calibration import UNTOLD
from onepair.probability.intervals import Interval
from onepair.review.queue import open_run, read_queue


def test_from_nothing_to_what_can_be_reviewed(in_process, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    code, output, errors = in_process("demo", "--scenes", 60, "--backbone", "small-cnn")
    assert code == 0, errors
    scenes = tmp_path / "runs" / "demo" / "scenes"
    truth, tags = (
        list(csv.DictReader((scenes / name).read_text().splitlines())) for name in ("truth.csv", "labels.csv")
    )
    named = [
        ({*one["labels"].split(";")}, {*other["labels"].lower().split(";")})
        for one, other in zip(truth, tags, strict=True)
    ]
    assert f"really miss {sum(len(shown - tagged) for shown, tagged in named)} labels" in output
    assert "OPML+" in output
    assert "BCE" in output
    assert output.endswith("To confirm the suggestions on a page: onepair review runs/demo/run\n")
    assert "spellings read as another" in output
    assert len(read_queue(open_run(tmp_path / "runs" / "demo" / "run"))) > 0

    (scenes / "labels.csv").write_text("file,labels\nmine.jpg,cat\n")
    code, _, errors = in_process("demo", "--scenes", 60, "--backbone", "small-cnn")
    assert code == 2
    assert "labels.csv: is there already, with other labels" in errors
    assert (scenes / "labels.csv").read_text() == "file,labels\nmine.jpg,cat\n"


def test_suggestions_are_judged_by_the_labels_that_are_missing():
    rows = np.arange(2 * FIRST)
    probability = np.repeat([0.9, 0.2], FIRST)
    suggestions = Suggestions(rows, rows % 2, probability, np.where(rows == 1, "wrong", "missing"))
    classes = [ClassSummary(name, *[0] * 9) for name in ("cat", "dog")]
    files = [str(row) for row in rows]
    found = Finding(suggestions, classes, Interval(1.0, 0.0, 2.0), rows, files, 5, "a guess", UNTOLD)
    missing = {(str(row), "cat") for row in range(0, FIRST, 2)} | {("1", "dog"), ("4", "dog")}
    verdict = judge(found, missing)
    assert (verdict.suggested, verdict.right) == (2 * FIRST - 1, FIRST // 2)
    assert verdict.first_right == 0.5
    assert verdict.first_stated == np.mean([0.9] * (FIRST - 1) + [0.2])
