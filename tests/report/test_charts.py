from xml.etree import ElementTree

import numpy as np
import pytest

from onepair.report import page as charts
from onepair.report.compared_runs import Comparison
from onepair.words import short
from tests.decisions import plain
from tests.report.summaries import found, four, records, summary

PANELS = [charts.confidence_bars, charts.reliability_curves]
ALL = [charts.validation_curves, charts.class_dots, charts.class_shares, *PANELS]


def draw(chart, comparison, width=880):
    return parse(charts.draw(chart, comparison, width=width, description="a chart"))


def parse(svg):
    return ElementTree.fromstring(svg)  # noqa: S314 (drawn here)


@pytest.fixture(scope="module")
def drawn():
    """Every chart of the same four runs at both widths; tests only read them."""
    comparison = Comparison(four(), "full")
    return {(chart, width): draw(chart, comparison, width) for chart in ALL for width in (880, 340)}


def texts(svg):
    return [element.text for element in svg.iter("text")]


@pytest.mark.parametrize("chart", ALL)
@pytest.mark.parametrize("width", [880, 340])
def test_chart_is_a_described_svg_of_its_width(drawn, chart, width):
    svg = drawn[chart, width]
    assert (svg.tag, svg.get("role"), svg.get("aria-label")) == ("svg", "img", "a chart")
    assert float(svg.get("viewBox").split()[2]) == pytest.approx(width)


def test_charts_share_no_ids(drawn):
    ids = [element.get("id") for svg in drawn.values() for element in svg.iter() if element.get("id")]
    assert len(set(ids)) == len(ids) > 0


def test_references_inside_a_chart_resolve(drawn):
    svg = drawn[charts.class_dots, 880]
    ids = {element.get("id") for element in svg.iter()}
    references = [element.get("href") for element in svg.iter("use")]
    clips = [element.get("clip-path") for element in svg.iter() if element.get("clip-path")]
    assert references
    assert clips
    assert {reference[1:] for reference in references} <= ids
    assert {clip.removeprefix("url(#").removesuffix(")") for clip in clips} <= ids


def test_lines_are_named_at_their_ends(drawn):
    shown = texts(drawn[charts.validation_curves, 880])
    assert {"BCE", "OPML", "OPML-SP", "BCE, full labels"} <= set(shown)


@pytest.mark.parametrize("lengths", [(1, 1), (1, 12), (40, 3), (0, 5)])
def test_runs_of_different_length(lengths):
    runs = [summary(name, 0.5, records=records([0.5] * n), best_epoch=1) for name, n in zip("ab", lengths, strict=True)]
    shown = texts(draw(charts.validation_curves, Comparison(runs)))
    assert ("A" in shown, "B" in shown) == (lengths[0] > 0, lengths[1] > 0)


def test_classes_are_in_order_of_gain_and_those_without_positives_left_out():
    first = summary("a", 0.5, class_ap=np.array([0.5, np.nan, 0.5]))
    last = summary("b", 0.6, class_ap=np.array([0.4, np.nan, 0.75]))
    order, gains = charts.classes_by_gain(Comparison([first, last]))
    assert order.tolist() == [2, 0]
    assert gains[order] == pytest.approx([0.25, -0.1])
    shown = texts(draw(charts.class_dots, Comparison([first, last])))
    assert [text for text in shown if text in first.classes] == ["bird", "cat"]
    assert {"+25.0", "−10.0"} <= set(shown)


def test_a_single_run_is_in_order_of_its_ap():
    run = summary("a", 0.5, class_ap=np.array([0.2, 0.9, 0.5]))
    assert charts.classes_by_gain(Comparison([run]))[0].tolist() == [1, 2, 0]
    assert "Gain" not in texts(draw(charts.class_dots, Comparison([run])))


def test_confidence_shares_count_true_positives_only():
    scores = np.array([[-1e4, 9.0, 1e4], [9.0, 0.0, 9.0], [0.0, -1.0, 9.0], [9.0, 9.0, 9.0]])
    # σ at the five positives: 0, 1, 0.5, 0.5, 0.27
    assert charts.confidence_shares(summary("a", 0.5, test_scores=scores)).tolist() == [0.2, 0.2, 0.4, 0, 0.2]


NAMES = ("<script>alert(1)</script>", "$x_{", "a & b\x0b", "自行车 🚲", 'id="x" url(#y)', "-->")


@pytest.mark.parametrize("chart", ALL)
def test_any_name_can_be_drawn(chart):
    """As a class, and as the title of a run."""
    labels = {"test_labels": np.ones((4, len(NAMES)), np.int8), "test_scores": np.zeros((4, len(NAMES)))}
    of_classes = {"classes": NAMES, "class_ap": np.full(len(NAMES), 0.5), "decisions": plain([0.0] * len(NAMES))}
    missing = found((1.0,) * len(NAMES), NAMES)
    runs = [summary(str(i), 0.5, title=name, found=missing, **of_classes, **labels) for i, name in enumerate(NAMES)]
    shown = set(texts(draw(chart, Comparison(runs))))
    assert {short(name) for name in NAMES} <= shown


def test_spread_moves_only_what_overlaps():
    places, heights = np.array([5.0, 1.0, 1.2, 20.0]), np.full(4, 2.0)
    moved = charts.spread(places, heights)
    assert moved[3] == 20
    assert np.diff(np.sort(moved)).min() >= 2 - 1e-9
    assert np.argsort(moved).tolist() == np.argsort(places).tolist()


def test_shares_are_of_the_most_frequent_classes_first(drawn):
    shown = texts(drawn[charts.class_shares, 880])
    places = [shown.index(name) for name in ("cat", "bird", "dog")]
    assert places == sorted(places)
    assert {"50.0", "25.0"} <= set(shown)
