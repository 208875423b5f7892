import math
import shutil
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from onepair.errors import RunError
from onepair.methods import METHODS
from onepair.metrics import mean_average_precision
from onepair.report import ReportError, gap_closed
from onepair.report.compared_runs import Comparison, compare_runs, differing_settings, read_runs
from onepair.report.style import METHOD_ORDER, PALETTE, method_styles
from onepair.runs.config import parse_setting
from tests.decisions import plain
from tests.experiments.small import OVERRIDES, TABLE
from tests.report.summaries import CLASSES, four, records, summary
from tests.training.tiny import TEST, TRAIN, labels_of, write_table


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
    assert len({comparison.style(run) for run in comparison.runs}) == len(methods)


def test_a_method_has_one_colour_wherever_it_stands():
    alone = {method: method_styles([method])[0] for method in METHOD_ORDER}
    assert [style.colour for style in method_styles(METHOD_ORDER)] == [style.colour for style in alone.values()]
    assert method_styles(METHOD_ORDER[::-1])[::-1] == list(alone.values())
    assert len({style.colour for style in method_styles(METHOD_ORDER[: len(PALETTE)])}) == len(PALETTE)
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


@pytest.fixture(scope="module")
def paths(searched):
    """Two runs of BCE, two of OPML."""
    return [run.path for outcome in searched[1] for run in outcome.runs]


def test_what_is_read_is_what_was_tested(paths):
    for run in read_runs(paths):
        assert mean_average_precision(run.scores, run.labels).value == pytest.approx(run.test_map)
        assert run.summary().test_map == run.test_map
    assert len({run.name for run in read_runs(paths)}) == 4
    assert [each.run.title for each in read_runs(paths)] == ["BCE", "BCE", "OPML", "OPML"]


def test_all_pairs_of_a_few_and_each_with_the_first_of_many(paths, tmp_path):
    more = [*paths, shutil.copytree(paths[0], tmp_path / "copy")]
    few, many = (compare_runs(each, resamples=100, seed=0) for each in (more[:4], more))
    assert [(pair.first, pair.second) for pair in few.pairs] == list(combinations(few.runs, 2))
    assert [(pair.first, pair.second) for pair in many.pairs] == [(many.runs[0], other) for other in many.runs[1:]]
    for pair in few.pairs:
        assert pair.interval.value == pytest.approx(pair.second.test_map - pair.first.test_map)
    assert many.pairs[-1].interval == (0, 0, 0), "a run against itself"


def test_settings_that_differ(paths):
    differing = differing_settings(read_runs(paths))
    assert differing["method.name"] == ["bce", "bce", "opml", "opml"]
    assert differing["seed"] == [0, 1, 0, 1]
    assert differing["method.options.alpha"][:2] == [None, None]
    assert "batch_size" not in differing


def test_runs_on_other_test_labels_are_refused(paths, study, images):
    labels = labels_of(TRAIN + TEST)
    labels[-1] = 1 - labels[-1]
    other = write_table(images.parent / "other.csv", ["train"] * TRAIN + ["test"] * TEST, labels)
    (outcome,) = study(source=other, seeds=1, methods=["bce"]).run(TABLE)
    with pytest.raises(RunError, match=r"was tested on other images or classes than .*; only runs with the same test"):
        read_runs([paths[0], outcome.runs[0].path])


def test_runs_that_cannot_be_compared(paths, searched, tmp_path):
    study, outcomes = searched
    with pytest.raises(RunError, match="name two runs or more"):
        read_runs(paths[:1])
    with pytest.raises(RunError, match="name each run once"):
        read_runs([paths[0], paths[1], paths[0]])
    with pytest.raises(RunError, match="holds no finished run"):
        read_runs([paths[0], tmp_path])
    loser = next(
        cell for cell in study.candidates(outcomes[1].line) if not (cell.folder.path / "scores_test.npy").exists()
    )
    with pytest.raises(RunError, match="its scores were not kept"):
        read_runs([paths[0], loser.folder.path])


def test_full_labels_and_single_positives_are_tested_alike(study):
    rows = (TABLE.rows[0], replace(TABLE.rows[0], labels="full"))
    outcomes = study(seeds=1).run(replace(TABLE, rows=rows))
    runs = read_runs([outcome.runs[0].path for outcome in outcomes])
    assert [each.run.trained_on for each in runs] == ["single positives", "labels as given"]
    np.testing.assert_array_equal(runs[0].labels, runs[1].labels)


def test_overrides_reach_the_runs(study):
    overrides = replace(OVERRIDES, others=[*OVERRIDES.others, parse_setting("linear.optimiser.lr=0.125")])
    (outcome,) = study(seeds=1, methods=["bce"], overrides=overrides).run(TABLE)
    assert outcome.runs[0].config.linear.optimiser.lr == 0.125
