import math

import numpy as np
import pytest

from onepair.methods import METHODS
from onepair.report import ReportError, gap_closed
from onepair.report.compared_runs import Comparison
from onepair.report.style import METHOD_ORDER, PALETTE, looks_of
from tests.decisions import plain
from tests.report.summaries import CLASSES, four, records, summary


@pytest.mark.parametrize(
    ("value", "share"),
    [(70, 0), (80, 0.5), (90, 1), (60, -0.5), (100, 1.5)],
    ids=["baseline", "half", "ceiling", "below", "above"],
)
def test_gap_closed_measures_from_baseline_to_ceiling(value, share):
    assert gap_closed(value, baseline=70, ceiling=90) == share


@pytest.mark.parametrize(
    ("value", "baseline", "ceiling"),
    [(80, 90, 90), (80, 90, 70), (80, 70, math.nan), (80, math.nan, 90), (math.nan, 70, 90)],
)
def test_without_a_gap_nothing_is_closed(value, baseline, ceiling):
    assert math.isnan(gap_closed(value, baseline, ceiling))


def test_the_parts_that_runs_play():
    runs = four()
    comparison = Comparison(runs, "full")
    assert comparison.baseline is runs[0]
    assert comparison.ceiling is runs[3]
    assert comparison.rivals == runs[:3]
    assert comparison.best is runs[2]
    assert comparison.closed(runs[2]) == pytest.approx(0.63)
    assert [comparison.label(run) for run in runs] == ["BCE", "OPML", "OPML-SP", "BCE, full labels"]


@pytest.mark.parametrize("methods", [[f"of others {i}" for i in range(30)], ["opml"] * 15, METHOD_ORDER])
def test_every_run_looks_different(methods):
    comparison = Comparison([summary(f"run {i}", 0.5, method=method) for i, method in enumerate(methods)])
    assert len({comparison.look(run) for run in comparison.runs}) == len(methods)


def test_a_method_has_one_colour_wherever_it_stands():
    alone = {method: looks_of([method])[0] for method in METHOD_ORDER}
    assert [look.colour for look in looks_of(METHOD_ORDER)] == [look.colour for look in alone.values()]
    assert looks_of(METHOD_ORDER[::-1])[::-1] == list(alone.values())
    assert len({look.colour for look in looks_of(METHOD_ORDER[: len(PALETTE)])}) == len(PALETTE)
    assert set(METHOD_ORDER) == set(METHODS), "a new method takes the last place"


def test_a_later_stage_goes_on_where_the_earlier_ended():
    run = summary("a", 0.5, records=records([0.1, 0.2]) + records([0.3, 0.5, 0.4], "finetune"), best_epoch=2)
    assert run.validation_maps == [0.1, 0.2, 0.3, 0.5, 0.4]
    assert run.best_position == 3


@pytest.mark.parametrize(
    ("runs", "ceiling", "sentence"),
    [
        ([], None, "at least one run"),
        ([summary("a", 0.5), summary("a", 0.6)], None, "own name, got a, a"),
        ([summary("a", 0.5)], "b", "no run is named 'b'; there are a"),
        ([summary("a", 0.5), summary("b", 0.6, classes=CLASSES[::-1])], None, "'b' was tested on other classes"),
    ],
)
def test_runs_that_cannot_be_compared_are_refused(runs, ceiling, sentence):
    with pytest.raises(ReportError, match=sentence):
        Comparison(runs, ceiling)


def test_a_run_whose_parts_do_not_fit_is_refused():
    with pytest.raises(ReportError, match="run 'a': 3 classes"):
        summary("a", 0.5, decisions=plain(np.zeros(2)))


def test_a_best_epoch_that_never_was_is_refused():
    with pytest.raises(ReportError, match="hold no epoch 9"):
        _ = summary("a", 0.5, best_epoch=9).best_position
