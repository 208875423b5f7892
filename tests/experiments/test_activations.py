"""The figure of class activation maps: which images and labels it shows."""

import csv
import io
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from PIL import Image

from onepair.experiments.figures import IMAGES, MAPS, activations, choose_examples, draw
from onepair.experiments.tables import csv_text
from tests.decisions import plain
from tests.experiments.small import TABLE


@pytest.fixture(scope="module")
def outcome(searched):
    return searched[1][1]


@pytest.fixture
def run(outcome):
    return outcome.runs[0]


def examples_at(run, threshold):
    run.description = run.description._replace(decisions=plain(np.full(4, threshold)))
    return choose_examples(run)


def test_labels_are_called_by_what_is_known_of_them(run):
    everything, nothing, task = examples_at(run, -np.inf), examples_at(run, np.inf), run.task
    assert len(everything) == len(nothing) == IMAGES
    for found, examples in ((True, everything), (False, nothing)):
        for example in examples:
            place = task.train.tolist().index(example.row)
            truth, observed = task.table.labels[example.row], task.observed[place]
            assert len(example.marks) <= MAPS
            for mark in example.marks:
                assert mark.found == found
                kind = "observed" if observed[mark.column] == 1 else "missing" if truth[mark.column] == 1 else "other"
                assert mark.kind == kind
            shown = {mark.column for mark in example.marks}
            assert set(np.flatnonzero(truth == 1)) <= shown
            assert found == (len(shown) == 4)
            kinds = [mark.kind for mark in example.marks]
            assert kinds == sorted(kinds, key=["observed", "missing", "other"].index)
            assert example.completed == (kinds.count("missing") if found else 0)


def test_images_where_most_is_found_come_first(run):
    examples = examples_at(run, 0.0)
    worth = [example.completed + example.goes_beyond for example in examples]
    assert worth == sorted(worth, reverse=True)


def test_the_figure(outcome):
    drawing, files = draw(partial(activations, {outcome.line.dataset: [outcome]}))
    colours = Image.open(io.BytesIO(files.png)).convert("RGB").getcolors(maxcolors=10**6)
    assert len(colours) > 1000, "pictures, not blank panels"
    rows = list(csv.DictReader(io.StringIO(csv_text(drawing.numbers))))
    assert {row["kind"] for row in rows} >= {"observed", "missing"}
    assert len({row["image"] for row in rows}) == IMAGES
    titles = [axes.get_title("left") for axes in drawing.figure.axes]
    for row in rows:
        assert any(title.startswith(f"{row['label']} {float(row['probability']):.2f}\n") for title in titles)
    missing = [row for row in rows if row["kind"] == "missing"]
    found = sum(row["found"] == "1" for row in missing)
    assert f"of the {len(missing)} missing labels shown, the model finds {found}" in drawing.findings[0]


def test_the_record_asks_for_one_whole_run(study):
    (outcome,) = study(seeds=3, methods=["opml"]).run(replace(TABLE, seeds=1))
    assert [run.shown for run in outcome.planned] == [True]
