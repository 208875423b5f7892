"""Figures: the right numbers, as pictures that are not empty."""

import csv
import io
import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image

from onepair.experiments.figures import (
    IMAGES,
    MAPS,
    PICTURES,
    activations,
    choose_examples,
    confidence,
    confidence_counts,
    curve,
    draw,
    epochs,
    gradients,
    grid,
    negative_gradient,
    positive_gradient,
    shares,
)
from onepair.experiments.tables import csv_text
from onepair.losses import bce_loss, opml_loss
from tests.decisions import plain
from tests.experiments.small import BCE, OPML, OVERRIDES, TABLE

HR_SWEEP = {"alpha": (0.2, 0.6), "beta": (0.3, 0.5)}


@pytest.fixture(scope="module")
def panels(searched):
    """The searched study as a panel, drawn twice to have two datasets."""
    _, outcomes = searched
    dataset = outcomes[0].line.dataset
    return {dataset: outcomes, replace(dataset, name="voc2012"): outcomes}


def pixels(png):
    return np.asarray(Image.open(io.BytesIO(png)).convert("L"))


@pytest.mark.parametrize("picture", ["confidence", "epochs", "gradients"])
def test_a_picture_is_not_empty(panels, picture):
    drawing, files = draw(partial(PICTURES[picture], panels))
    image = pixels(files.png)
    assert min(image.shape) > 500
    assert 0.02 < (image < 200).mean() < 0.6, "some ink, and not all"
    assert files.svg.startswith(b"<?xml")
    assert b"<text" not in files.svg, "letters are shapes"
    assert b"<text" in files.page, "letters are text"
    assert len(drawing.numbers) > 5


def test_the_same_data_give_the_same_bytes(panels):
    dataset, outcomes = next(iter(panels.items()))
    assert len({draw(partial(epochs, {dataset: outcomes}))[1] for _ in range(2)}) == 1


def test_confidence_counts_every_true_positive():
    scores, labels = np.array([[-9.0, 0.0], [9.0, 3.0]], np.float32), np.array([[1, 1], [1, 0]])
    assert confidence_counts(scores, labels).tolist() == [1, 0, 1, 0, 1]


def test_confidence_shares_add_up(panels):
    dataset, outcomes = next(iter(panels.items()))
    drawing = confidence({dataset: outcomes})
    for method in ("bce", "opml"):
        rows = [row for row in drawing.numbers if row["method"] == method]
        assert sum(row["share"] for row in rows) == pytest.approx(1, abs=1e-3)
    assert "below 0.4" in drawing.findings[0]


def test_epochs_shows_the_mean_of_the_runs(panels, searched):
    drawing = epochs(panels)
    _, (bce, _) = searched
    maps = [run.history[1]["validation_map"] for run in bce.runs]
    row = next(row for row in drawing.numbers if (row["method"], row["epoch"]) == ("bce", 2))
    assert row["validation_map"] == pytest.approx(100 * np.mean(maps), abs=1e-3)
    assert row["std"] == pytest.approx(100 * np.std(maps, ddof=1), abs=1e-3)
    assert drawing.figure.axes[0].get_ylabel() == "Validation mAP (%)"


def test_epochs_shows_the_last_stage_alone_and_tells_rows_of_one_method_apart(study):
    overrides = replace(OVERRIDES, mode="linear-init", others=[*OVERRIDES.others, {"linear": {"epochs": 3}}])
    rows = (replace(BCE, labels="full"), BCE)
    outcomes = study(overrides=overrides, seeds=1).run(replace(TABLE, rows=rows))
    drawing = epochs({outcomes[0].line.dataset: outcomes})
    stages = [[record["stage"] for record in outcome.runs[0].history] for outcome in outcomes]
    assert stages == [["linear"] * 3 + ["finetune"] * 2] * 2
    maps = [100 * record["validation_map"] for outcome in outcomes for record in outcome.runs[0].history[3:]]
    assert [row["validation_map"] for row in drawing.numbers] == pytest.approx(maps, abs=1e-3)
    assert "BCE (all P, all N)" in drawing.findings[0]


def test_the_names_of_many_lines_stand_beside_them(panels):
    dataset, outcomes = next(iter(panels.items()))
    few, many = epochs({dataset: outcomes}), epochs({dataset: [*outcomes] * 3})
    for drawing, beside in ((few, False), (many, True)):
        drawing.figure.draw_without_rendering()
        panel = drawing.figure.axes[0]
        assert (panel.get_legend().get_window_extent().x0 > panel.get_window_extent().x1) == beside


def test_a_sweep_over_two_values_and_over_one(study):
    two = replace(TABLE, rows=(OPML,), sweep=HR_SWEEP, seeds=1)
    one = replace(TABLE, rows=(OPML,), sweep={"alpha": (0.2, 0.6)}, seeds=2)
    for experiment, picture in ((two, grid), (one, curve)):
        outcomes = study().run(experiment)
        drawing, files = draw(partial(picture, {outcomes[0].line.dataset: outcomes}))
        means = {tuple(outcome.swept.values()): outcome.spread.mean for outcome in outcomes}
        shown = {tuple(row[name] for name in experiment.sweep): row["test_map"] for row in drawing.numbers}
        assert shown == pytest.approx(means, abs=1e-3)
        best = max(means, key=means.get)
        assert (
            "".join(f"{name}={value} " for name, value in zip(experiment.sweep, best, strict=True)).strip()
            in (drawing.findings[0].partition(" to ")[2])
        )
        assert (pixels(files.png) < 200).mean() > 0.02


def test_the_gradients_are_those_of_the_losses():
    scores = torch.linspace(-4, 4, 9, dtype=torch.float64, requires_grad=True)
    rows = torch.stack([scores, torch.full_like(scores, -50.0)], dim=1)  # the second label takes no part
    for alpha in (0.3, 0.7):
        loss = opml_loss(rows, torch.tensor([[1, 0]] * 9), alpha=alpha, beta=0.5, reduction="sum")
        (gradient,) = torch.autograd.grad(loss, scores, retain_graph=True)
        np.testing.assert_allclose(positive_gradient(scores.detach().numpy(), alpha), gradient, atol=1e-12)
    for beta, other in ((0.3, -50.0), (0.5, 2.0)):
        rows = torch.stack([scores, torch.full_like(scores, other), torch.full_like(scores, 50.0)], dim=1)
        loss = opml_loss(rows, torch.tensor([[0, 0, 1]] * 9), alpha=0.5, beta=beta, reduction="sum")
        (gradient,) = torch.autograd.grad(loss, scores, retain_graph=True)
        np.testing.assert_allclose(negative_gradient(scores.detach().numpy(), beta, other), gradient, atol=1e-12)


def test_the_figure_of_gradients_shows_bce_beside_opml():
    drawing = gradients({})
    shown = {(row["label"], row["loss"]): row["gradient"] for row in drawing.numbers if row["score"] == 1.0}
    logit = torch.ones(1, 1, requires_grad=True)
    bce_loss(logit, torch.ones(1, 1)).backward()
    assert shown["A positive label", "BCE"] == pytest.approx(logit.grad.item(), abs=1e-4)
    assert shown["The only negative label", "BCE"] == pytest.approx(1 / (1 + math.exp(-1)), abs=1e-4)
    others = [value for (label, _), value in shown.items() if label == "One of two negative labels"]
    assert others == sorted(others, reverse=True), "the higher the other, the less this one is pushed"


def test_rows_keep_their_looks(panels):
    drawing = epochs(panels)
    for axes in drawing.figure.axes:
        assert [text.get_text() for text in axes.get_legend().get_texts()] == [BCE.title, OPML.title]
        styles = {(line.get_linestyle(), line.get_marker()) for line in axes.lines}
        assert len(styles) == 2


def test_shares_shows_every_row_and_says_which_is_first(study):
    rows = tuple(replace(row, labels="fraction") for row in (BCE, OPML))
    outcomes = study(seeds=1).run(replace(TABLE, rows=rows, sweep={"data.known": (0.5, 1.0)}))
    assert {outcome.planned[0].config.data.known for outcome in outcomes} == {0.5, 1.0}
    drawing, files = draw(partial(shares, {outcomes[0].line.dataset: outcomes}))
    means = {(outcome.line.row.method, outcome.swept["data.known"]): outcome.spread.mean for outcome in outcomes}
    shown = {(row["method"], row["data.known"]): row["test_map"] for row in drawing.numbers}
    assert shown == pytest.approx(means, abs=1e-3)
    first = max(("bce", "opml"), key=lambda method: means[method, 0.5])
    assert f"{first.upper()} with 50 % ({means[first, 0.5]:.2f})" in drawing.findings[0]
    assert f"| OPML | {means['opml', 0.5]:.2f} | {means['opml', 1.0]:.2f} |\n" in drawing.table
    assert (pixels(files.png) < 200).mean() > 0.015


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
