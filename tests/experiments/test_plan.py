"""What there is to do, and how long it takes."""

from dataclasses import replace

import pytest

from onepair.experiments.records import EXPERIMENTS
from onepair.experiments.study import GUESSES, make_plan
from tests.experiments.small import OPML, OVERRIDES, TABLE, make_study
from tests.training.tiny import TRAIN

FIGURE = replace(TABLE, name="fig", rows=(OPML,), sweep={"alpha": (0.2, 0.3)})


def counts(plan):
    return [(step.search_done, step.search, step.runs_done, step.runs, step.left) for step in plan]


def test_before_anything_is_done(study):
    assert counts(make_plan(study(seeds=3), [TABLE])) == [(0, 0, 0, 3, 3)] * 2
    plan = make_plan(study(seeds=3, search=True), [TABLE])
    assert counts(plan) == [(0, 2, 0, 2, 4), (0, 18, 0, 2, 20)], "the chosen one's first seed is part of the search"


def test_nothing_is_counted_twice(study):
    plan = make_plan(study(seeds=3, search=True), [TABLE, replace(TABLE, name="again"), FIGURE])
    assert counts(plan)[2:] == [(0, 0, 0, 0, 0)] * 2 + [(0, 0, 0, 6, 6)]


def test_a_guess_goes_by_epochs_and_images(study):
    step, _ = make_plan(study(seeds=3), [TABLE])
    training_images = round(0.8 * TRAIN)
    assert step.guessed
    assert step.seconds == pytest.approx(3 * 2 * training_images * GUESSES["linear"])


def test_half_way_and_at_the_end(study):
    half = study(seeds=2, methods=["bce"])
    half.run(TABLE)
    bce, opml = make_plan(study(seeds=3), [TABLE])
    assert counts([bce, opml]) == [(0, 0, 2, 3, 1), (0, 0, 0, 3, 3)]
    seconds = [record["seconds"] for run in half.run(TABLE)[0].runs for record in run.history]
    assert bce.seconds == pytest.approx(2 * sum(seconds) / len(seconds)), "one run of two epochs"
    assert opml.seconds == pytest.approx(3 * bce.seconds), "other runs on the same dataset tell, too"
    assert not bce.guessed


def test_a_finished_search(searched, images, cache):
    study, _ = searched
    assert counts(make_plan(study, [TABLE])) == [(2, 2, 1, 1, 0), (18, 18, 1, 1, 0)]
    more = make_study(images, study.out, cache, seeds=3, search=True)
    assert [step.left for step in make_plan(more, [TABLE])] == [1, 1]


def test_all_of_the_paper(study):
    plan = make_plan(study(search=True, seeds=3, overrides=replace(OVERRIDES, epochs=None)), EXPERIMENTS.values())
    by_name = {name: sum(step.left for step in plan if step.experiment.name == name) for name in EXPERIMENTS}
    assert by_name["fig-alpha-beta"] == 81 - 9, "nine of the pairs are tried by the search already"
    assert by_name["fig-lambda"] == 6 * 3
    assert by_name["fig-epochs"] == 3 * 3
    assert by_name["fig-confidence"] == by_name["fig-gradcam"] == by_name["fig-gradients"] == 0
