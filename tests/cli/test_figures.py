"""What is printed of classes: nothing cut off, and an estimate never as if it were measured."""

from dataclasses import replace
from io import StringIO

import numpy as np
import pytest
from rich.console import Console

from onepair.cli.console import make_table
from onepair.cli.models import _print_thresholds as _print
from onepair.probability import fit_decisions
from onepair.probability.evaluation import Estimated, evaluate
from onepair.probability.intervals import Interval
from onepair.words import roughly


def test_a_narrow_terminal_folds_and_cuts_nothing_off():
    table = make_table("class", ">threshold", ">predicted", ">precision", ">recall", ">F1")
    table.add_row("a long name of a class", "0.98", "3", "100.0", "98.2", "99.1")
    with StringIO() as told:
        Console(width=40, file=told).print(table)
        shown = told.getvalue()
    assert "…" not in shown
    cells = [line[:8].strip() for line in shown.splitlines()]
    assert "alongnameofaclass" in "".join(cells).replace(" ", "")
    assert all(len(line) <= 40 for line in shown.splitlines())


@pytest.fixture
def single_positives():
    """Scores that tell classes apart, and one positive of each image: no negative is known."""
    random = np.random.default_rng(0)
    truth = random.random((200, 3)) < (0.5, 0.3, 0.1)
    truth[~truth.any(1), 0] = True
    scores = np.where(truth, 2.0, -2.0) + random.normal(size=truth.shape)
    labels = np.full(truth.shape, -1, np.int8)
    for row, found in enumerate(truth):
        labels[row, random.choice(np.flatnonzero(found))] = 1
    return scores.astype(np.float32), labels


def test_decide_marks_estimates_and_gives_their_intervals(single_positives, capsys):
    scores, labels = single_positives
    decisions = fit_decisions(scores, labels)
    found = evaluate(scores, labels, decisions, ("cat", "dog", "cow"))
    assert found.estimated is not None
    _print(decisions, scores, found)
    lines = capsys.readouterr().out.splitlines()
    rows = [line for line in lines if line.split()[:1] and line.split()[0] in ("cat", "dog", "cow")]
    assert len(rows) == 3
    assert all(line.count("≈") + line.count("–") == 3 and "100" not in line for line in rows)
    assert any("≈" in line for line in rows)
    (together,) = [line for line in lines if line.startswith("estimated for all labels of 200 images, if ")]
    assert "precision" in together
    assert " to " in together


def test_what_is_never_predicted_has_no_precision_and_nothing_else(single_positives, capsys):
    scores, labels = single_positives
    decisions = fit_decisions(scores, labels)
    never = replace(decisions, thresholds=np.full(3, np.inf))
    found = evaluate(scores, labels, never, ("cat", "dog", "cow"))
    _print(never, scores, found)
    told = capsys.readouterr().out
    for name in ("cat", "dog", "cow"):
        (row,) = [line.split() for line in told.splitlines() if line.split()[:1] == [name]]
        assert row[1:] == ["never", "0", "–", "0.0", "0.0"]
    (together,) = [line for line in told.splitlines() if line.startswith("estimated for all labels of 200 images, if ")]
    assert "recall 0.0 (0.0 to 0.0)" in together
    assert "precision –, " in together
    assert "by 200 images: it gives no label, as none is at its threshold" in told


def test_full_labels_tell_no_precision_of_what_is_never_predicted(single_positives):
    scores, labels = single_positives
    full = np.maximum(labels, 0)
    decisions = fit_decisions(scores, full)
    some = replace(decisions, thresholds=np.array([np.inf, *decisions.thresholds[1:]]))
    found = evaluate(scores, full, some, ("cat", "dog", "cow"))
    assert np.isnan(found.classes["cat"].precision)
    assert (found.classes["cat"].recall, found.classes["cat"].f1) == (0, 0)
    assert not np.isnan([found.classes["dog"].precision, found.precision]).any()
    assert np.isnan(evaluate(scores, full, replace(some, thresholds=np.full(3, np.inf)), ("a", "b", "c")).precision)


def test_what_labels_do_not_tell_is_an_interval_and_an_advice_and_no_number(single_positives):
    scores, labels = single_positives
    found = evaluate(scores, labels, fit_decisions(scores, labels), ("cat", "dog", "cow"))
    narrow, vague = Interval(0.5123, 0.45, 0.55), Interval(0.2234, 0.1, 0.7)
    estimated = Estimated("if labels are known at random", narrow, vague, narrow, vague, {"cat": None}, 1)
    found = found._replace(
        estimated=estimated, precision_recall=found.precision_recall._replace(precision=vague, recall=narrow)
    )
    told = "mAP 51.2 (45.0 to 55.0), precision – (10.0 to 70.0), recall 51.2 (45.0 to 55.0), F1 – (10.0 to 70.0)"
    assert found.line.endswith(told)
    assert found.sentence.startswith(
        "by 200 images: of 10 labels it gives, 1 to 7 are right, and it finds 5 in 10 of all"
    )
    assert found.sentence.endswith(". Complete 50 images to know: onepair audit")
    assert "22" not in found.line + found.sentence.replace("200", "")


def test_an_estimate_is_sure_only_of_what_is_certain():
    assert (roughly(1.0), roughly(0.0), roughly(0.5), roughly(float("nan"))) == ("100.0", "0.0", "≈ 50", "–")
    assert (roughly(0.999999), roughly(1e-6)) == ("≈ 99", "≈ 1")
