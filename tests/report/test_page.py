import base64
import io
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from onepair.probability.calibration import Platt
from onepair.report import Examples, ReportError, write_report
from onepair.report import page as charts
from onepair.report import page as page_module
from onepair.report.compared_runs import Comparison
from onepair.words import points, short
from tests.decisions import plain
from tests.report.summaries import CLASSES, LABELS, found, four, records, summary

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


VOID = {"meta", "img", "link", "br", "hr"}


class Reader(HTMLParser):
    """Checks that elements nest, and keeps what a reader sees and what tables hold."""

    def __init__(self, page):
        super().__init__()
        self.open, self.elements, self.text, self.rows = [], [], "", []
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("th", "td"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.text += data
        if {"th", "td"} & set(self.open):
            self.rows[-1][-1] += data

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


def report(folder, runs, *, title="Digits", introduction="Words.", **options):
    path = folder / "report.html"
    write_report(path, runs, title=title, introduction=introduction, **options)
    return path.read_text("utf-8")


def cells(page):
    """The rows of the first table, blanks squeezed, the mark before a run's name left out."""
    return [[" ".join(cell.split()) for cell in row] for row in Reader(page).rows]


def examples(n=2):
    return Examples(np.full((n, 8, 8, 3), 200, np.uint8), range(n))


@pytest.fixture
def without_charts(monkeypatch):
    """Drawing takes most of the time, and only words are looked at."""
    monkeypatch.setattr(page_module, "draw", lambda *_, **__: "<svg></svg>")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return report(tmp_path_factory.mktemp("report"), four(), ceiling="full", examples=examples())


def test_table_compares_with_baseline_and_ceiling(page):
    header, *rows = cells(page)[:5]
    assert header[3:6] == ["F1", "Against BCE", "Gap closed"]
    assert [row[1:3] + row[4:] for row in rows] == [
        ["single positives", "70.0", "–", "0 %", "3", "1.2 min"],
        ["single positives", "75.0", "+5.0", "25 %", "3", "1.2 min"],
        ["single positives", "82.6", "+12.6", "63 %", "3", "1.2 min"],
        ["full labels", "90.0", "+20.0", "100 %", "3", "1.2 min"],
    ]


def test_best_run_from_the_baselines_labels_is_bold_and_told(page):
    assert page.count('<tr class="best">') == 1
    assert "OPML-SP" in page.split('<tr class="best">')[1].split("</th>")[0]
    told = " ".join(Reader(page).text.split())
    assert "OPML-SP reaches a test mAP of 82.6, 12.6 points above BCE. That closes 63 % of the gap to BCE with" in told


@pytest.mark.usefixtures("without_charts")
def test_a_baseline_that_stays_best_is_told(tmp_path):
    told = " ".join(Reader(report(tmp_path, [summary("a", 0.8), summary("b", 0.7)])).text.split())
    assert "A reaches a test mAP of 80.0; no other method does better." in told


def test_every_class_is_in_the_second_table(page):
    rows = cells(page)[5:9]
    assert rows[0] == ["Class", "BCE", "OPML", "OPML-SP", "BCE, full labels", "Gain"]
    assert rows[1:] == [
        ["bird", "60.0", "70.0", "90.0", "90.0", "+30.0"],
        ["cat", "50.0", "60.0", "60.0", "90.0", "+10.0"],
        ["dog", "80.0", "80.0", "70.0", "90.0", "−10.0"],
    ]


def test_page_needs_nothing_from_outside(page):
    assert "http:" not in page
    assert "https:" not in page
    reader = Reader(page)
    assert not {"script", "link", "iframe"} & {tag for tag, _ in reader.elements}
    assert all(image["src"].startswith("data:image/png;base64,") for image in reader.all("img"))
    assert not re.search(r"@import|url\((?!#)", page)
    assert page.count("<style") == 1


def test_page_can_be_read_without_seeing_it(page):
    reader = Reader(page)
    assert reader.all("html") == [{"lang": "en"}]
    assert len(reader.all("svg")) == 10
    assert all(svg["role"] == "img" and svg["aria-label"] for svg in reader.all("svg"))
    assert "OPML-SP: at best 82.6, in epoch 3" in reader.all("svg")[0]["aria-label"]
    assert [image["alt"] for image in reader.all("img")] == [
        "Test image that shows cat, bird",
        "Test image that shows dog",
    ]
    ids = [attributes["id"] for _, attributes in reader.elements if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_hostile_words_stay_words(tmp_path):
    bad = "<script>alert('x')</script>"
    runs = [summary(name, 0.5, title=bad, labels=bad, classes=(bad, "$", "&amp;")) for name in "ab"]
    page = report(tmp_path, runs, title=bad, introduction=bad, examples=examples())
    reader = Reader(page)
    assert "<script" not in page
    assert reader.text.count(bad) > 10
    assert "&amp;amp;" in page


@pytest.mark.usefixtures("without_charts")
def test_examples_say_found_missed_wrong_and_unknown(tmp_path):
    truth_of_row_three = LABELS[3].tolist()
    assert truth_of_row_three == [0, 0, -1]
    first = summary("a", 0.5, test_scores=np.array([[1, 1, -1], [0, 0, 0], [0, 0, 0], [-1, 2, 2]]))
    last = summary("b", 0.6, test_scores=np.full((4, 3), -1.0))
    shown = Examples(np.zeros((2, 8, 8, 3), np.uint8), [0, 3])
    text = " ".join(Reader(report(tmp_path, [first, summary("between", 0.5), last], examples=shown)).text.split())
    cards = text[text.index("? seen, truth unknown") :]
    cards = re.sub("[●■◆▲▼] ", "", cards)
    assert cards.split("Truth")[1:] == [
        " cat, bird A ✓ cat (found) – bird (missed) ✗ dog (wrong) B – cat (missed) – bird (missed) ",
        " none A ✗ dog (wrong) ? bird (unknown) B none",
    ]


def test_small_images_keep_their_pixels(page):
    image = Image.open(io.BytesIO(base64.b64decode(Reader(page).all("img")[0]["src"].split(",")[1])))
    assert 'class="pixelated"' in page
    assert np.array_equal(np.asarray(image), examples().images[0])


@pytest.mark.usefixtures("without_charts")
def test_large_images_are_scaled_down(tmp_path):
    noise = np.random.RandomState(0).randint(0, 256, (12, 300, 400, 3)).astype(np.uint8)
    page = report(tmp_path, [summary("a", 0.5)], examples=Examples(noise, [0] * 12))
    assert 'class="pixelated"' not in page
    assert len(page.encode()) < 2_000_000


@pytest.mark.usefixtures("without_charts")
def test_a_single_run_without_ceiling_or_examples(tmp_path):
    page = report(tmp_path, [summary("a", 0.5, method="bce")])
    assert cells(page)[:2] == [
        ["Method", "Trained on", "Test mAP", "F1", "Best epoch", "Training time"],
        ["● Asingle positives", "single positives", "50.0", points(summary("a", 0.5).f1), "3", "1.2 min"],
    ]
    text = Reader(page).text
    for absent in ("Gap closed", "Against", "Examples", "Gain"):
        assert absent not in text


def test_no_positives_and_no_records(tmp_path):
    nothing = {"test_labels": np.zeros((4, 3), np.int8), "class_ap": np.full(3, np.nan), "records": [], "best_epoch": 0}
    page = report(tmp_path, [summary("a", 0.5, **nothing), summary("b", 0.6, **nothing)])
    assert "<svg" not in page
    assert [row[0] for row in cells(page)[4:]] == list(CLASSES)
    assert cells(page)[4][1:] == ["–", "–", "–"]


def test_many_classes_are_drawn_from_both_ends(tmp_path):
    rng = np.random.default_rng(0)
    many = {
        "classes": tuple(f"class {i:03}" for i in range(312)),
        "test_scores": rng.normal(size=(5, 312)),
        "test_labels": np.ones((5, 312), np.int8),
        "decisions": plain(np.zeros(312)),
    }
    ap = np.full(312, 0.3)
    runs = [summary("a", 0.3, class_ap=ap, **many), summary("b", 0.6, class_ap=ap + np.arange(312) / 1000, **many)]
    page = report(tmp_path, runs)
    text = " ".join(Reader(page).text.split())
    assert "The 20 classes at either end; all 312 are in the table." in text
    drawn = re.findall(r"<text[^>]*>class (\d+)</text>", page)
    assert sorted(set(drawn)) == [f"{i:03}" for i in [*range(20), *range(292, 312)]]


@pytest.mark.usefixtures("without_charts")
def test_paragraphs_of_the_introduction(tmp_path):
    page = report(tmp_path, [summary("a", 0.5)], introduction="One.\n\nTwo.\n\n")
    assert re.findall(r"<p>(.*)</p>", page.split("</header>")[0]) == ["One.", "Two."]


@pytest.mark.usefixtures("without_charts")
@pytest.mark.parametrize(
    ("images", "rows", "sentence"),
    [
        (np.zeros((1, 8, 8, 3)), [0], "must be uint8"),
        (np.zeros((1, 8, 8), np.uint8), [0], "must be uint8"),
        (np.zeros((1, 8, 8, 3), np.uint8), [0, 1], "every image needs its row, got 1 image and 2 rows"),
        (np.zeros((1, 8, 8, 3), np.uint8), [4], "row 4 is not one of the 4 test images"),
    ],
)
def test_bad_examples_are_refused_and_nothing_is_written(tmp_path, images, rows, sentence):
    with pytest.raises(ReportError, match=sentence):
        report(tmp_path, [summary("a", 0.5)], examples=Examples(images, rows))
    assert list(tmp_path.iterdir()) == []


def test_same_runs_give_the_same_page(tmp_path, page):
    assert report(tmp_path, four(), ceiling="full", examples=examples()) == page


def test_report_needs_no_torch_and_the_package_no_matplotlib():
    code = (
        "import sys, onepair; print('matplotlib' in sys.modules); import onepair.report; print('torch' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.split() == ["False", "False"]


@pytest.mark.usefixtures("without_charts")
def test_what_differs_is_said_where_it_is_known(tmp_path):
    page = report(
        tmp_path,
        [summary("a", 0.5), summary("b", 0.6)],
        named=True,
        differences=[("B against A", "+10.0", "+2.0 to +18.0", "real")],
        settings={"method.name": ["a", "b"], "method.options.<alpha>": [None, 0.5]},
    )
    rows = cells(page)
    assert ["B against A", "+10.0", "+2.0 to +18.0", "real"] in rows
    assert ["method.options.<alpha>", "–", "0.5"] in rows
    assert '<span class="name">a</span>' in page


@pytest.mark.usefixtures("without_charts")
def test_calibration_that_makes_it_worse_is_flagged(tmp_path):
    random = np.random.default_rng(0)
    labels = (random.random((400, 3)) < 0.3).astype(np.int8)
    scores = np.log(0.3 / 0.7) + random.normal(size=(400, 3)) / 100  # right as they are
    worse = summary("a", 0.5, test_labels=labels, test_scores=scores, decisions=shifted())
    assert "(worse:" in report(tmp_path, [worse])


def shifted():
    return replace(plain([0.0] * 3), calibrator=Platt(np.ones(3), np.full(3, 2.0)))


def test_charts_take_their_colours_from_the_page(page):
    for chart in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        assert "var(--ink)" in chart
        assert "#1d2530" not in chart
    assert "prefers-color-scheme: dark" in page


@pytest.mark.usefixtures("without_charts")
def test_how_often_classes_occur_is_told_where_labels_were_looked_for(tmp_path):
    page = Reader(report(tmp_path, four()))
    (row,) = (row for row in page.rows if row[0] == "cat" and "to" in row[2])
    assert [cell.replace("\xa0", " ") for cell in row[1:]] == ["3", "2 (1 to 4)", "50.0 %", "40.0 to 70.0 %"]
    assert "How often each class occurs" not in report(tmp_path, [replace(each, found=()) for each in four()])
