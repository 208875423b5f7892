"""The page of a report, and its charts, as SVG for use inside a page.

Each chart is drawn for a given width in pixels, so that a page can hold one for screens and paper and one for phones,
both with text of readable size. Text stays text: it can be searched, and takes the font of the page.
"""

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from scipy.special import expit

from onepair.files import write_atomically
from onepair.finding.suggestions import ClassSummary
from onepair.labels import POSITIVE, Indices
from onepair.metrics import Floats
from onepair.probability.calibration import expected_calibration_error, reliability
from onepair.report.compared_runs import Comparison, RunSummary
from onepair.report.explain_images import Examples, cards
from onepair.report.style import INK, MUTED, PAPER, RULE, SeriesStyle, drawing, method_styles, on_a_page
from onepair.words import LONGEST_NAME, duration, percent, points, short, signed

NARROW = 480  # pixels; charts below this width are for phones
MOST_CLASSES = 40  # drawn in one chart; beyond that only those at both ends of the order

# One point is one pixel, and text stays text.
_ON_PAGE = {"figure.dpi": 72, "savefig.transparent": True, "svg.fonttype": "none", "text.parse_math": False}
_STEPS = [1, 2, 5, 10]  # between ticks, times a power of ten
_IN_MARGIN: dict[str, Any] = {  # of `annotate`, for text right of the axes
    "xycoords": ("axes fraction", "data"),
    "textcoords": "offset points",
    "ha": "right",
    "va": "center_baseline",
    "annotation_clip": False,
}

Chart = Callable[[Comparison, int], Figure]


def draw(chart: Chart, comparison: Comparison, *, width: int, description: str) -> str:
    """An `<svg>` element of a chart, with `description` for those who cannot see it."""
    content = io.BytesIO()
    with drawing(12, **_ON_PAGE):
        metadata = dict.fromkeys(["Creator", "Date", "Format", "Type"])
        chart(comparison, width).savefig(content, format="svg", metadata=metadata)
    return for_a_page(content.getvalue(), prefix=f"{chart.__name__}-{width}-", description=description)


def for_a_page(svg: bytes, *, prefix: str, description: str) -> str:
    """Leave out what only a file of its own needs, and give it ids that no other chart of the page has."""
    root = ElementTree.fromstring(svg)  # noqa: S314 (drawn above)
    root.remove(root[0])  # a style sheet, which would hold for the whole page
    for element in root.iter():
        element.tag = _local(element.tag)
        attributes = {_local(name): value for name, value in element.items()}
        if "id" in attributes:
            attributes["id"] = prefix + attributes["id"]
        for name in {"href", "clip-path"} & attributes.keys():
            attributes[name] = attributes[name].replace("#", f"#{prefix}")
        for name in {"style", "fill", "stroke"} & attributes.keys():
            attributes[name] = on_a_page(attributes[name])
        element.attrib = attributes
    root.attrib = {
        "viewBox": root.attrib["viewBox"],
        "stroke-linejoin": "round",
        "role": "img",
        "aria-label": description,
    }
    return ElementTree.tostring(root, encoding="unicode")


def _local(name: str) -> str:
    """A name without its namespace."""
    return name.rpartition("}")[2]


def validation_curves(comparison: Comparison, width: int) -> Figure:
    """Validation mAP over epochs, a line per run with its name at the end and a dot at its best epoch."""
    height = 340 if width > NARROW else 300
    figure, axes = _figure(width, height)
    runs = [run for run in comparison.runs if run.records]
    last = max(len(run.records) for run in runs)
    for run in runs:
        colour = comparison.style(run).colour
        values = 100 * np.array(run.validation_maps)
        axes.plot(np.arange(1, len(values) + 1), values, comparison.style(run).dashes, color=colour)
        best = run.best_position
        (dot,) = axes.plot(best + 1, values[best], "o", color=colour, markersize=7, markeredgecolor=PAPER, zorder=3)
        dot.set_clip_on(False)
    axes.set_xlim(1 - 0.02 * last, max(last, 2))
    axes.set_xlabel("Epoch")
    axes.set_title("Validation mAP", color=MUTED, fontsize=12)
    axes.xaxis.set_major_locator(MaxNLocator(8, steps=_STEPS, integer=True, min_n_ticks=1))
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=_STEPS))
    _name_lines(axes, comparison, runs, line_height=15 / (height - 80), wrap=width <= NARROW)
    return figure


def _name_lines(axes: Axes, comparison: Comparison, runs: list[RunSummary], *, line_height: float, wrap: bool) -> None:
    """Write each run's name beside the end of its line, moved up or down so that no two overlap."""
    bottom, top = axes.get_ylim()
    names = [_name(comparison, run, wrap=wrap) for run in runs]
    ends = np.array([100 * run.validation_maps[-1] for run in runs])
    heights = np.array([(name.count("\n") + 1) * line_height * (top - bottom) for name in names])
    for run, name, end, place in zip(runs, names, ends, spread(ends, heights), strict=True):
        colour = comparison.style(run).colour
        axes.annotate(
            name,
            xy=(len(run.records), end),
            xytext=(1.03, place),
            textcoords=("axes fraction", "data"),
            color=colour,
            va="center",
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.6, "shrinkA": 2, "shrinkB": 2},
            annotation_clip=False,
        )


def spread(places: Floats, heights: Floats) -> Floats:
    """Move places apart, each as little as the pile it lies in allows, so that things of these heights fit.

    >>> spread(np.array([1.0, 1.0, 9.0]), np.array([2.0, 2.0, 2.0]))
    array([0., 2., 9.])
    """
    piles: list[tuple[list[int], float]] = []  # members from below, and the pile's centre
    for thing in np.argsort(places, kind="stable"):
        members, centre = [int(thing)], float(places[thing])
        while piles and centre - piles[-1][1] < (heights[members].sum() + heights[piles[-1][0]].sum()) / 2:
            members = piles.pop()[0] + members
            centre = float(places[members].mean())
        piles.append((members, centre))
    moved = np.empty(len(places))
    for members, centre in piles:
        tops = np.cumsum(heights[members])
        moved[members] = centre - tops[-1] / 2 + tops - heights[members] / 2
    return moved


def class_dots(comparison: Comparison, width: int) -> Figure:
    """AP of every class, a dot per run, classes in the order of `classes_by_gain`, the gain in figures at the right."""
    order, gains = classes_by_gain(comparison)
    shown = order if len(order) <= MOST_CLASSES else np.r_[order[: MOST_CLASSES // 2], order[-MOST_CLASSES // 2 :]]
    rows = np.arange(len(shown))
    figure, axes = _figure(width, 22 * len(shown) + 60)
    table = 100 * np.array([run.class_ap[shown] for run in comparison.runs])
    axes.hlines(rows, table.min(axis=0), table.max(axis=0), color=RULE, linewidth=3)
    for run, values in zip(comparison.runs, table, strict=True):
        style = comparison.style(run)
        size = 90 if run is comparison.ceiling else 42
        axes.scatter(values, rows, s=size, marker=style.marker, color=style.colour, linewidths=1.5, zorder=2)
    _list_classes(axes, [comparison.baseline.classes[column] for column in shown], width)
    axes.set_xlabel("Average precision")
    if len(comparison.rivals) > 1:
        for row, column in zip(rows, shown, strict=True):
            axes.annotate(signed(gains[column]), (1, row), (46, 0), **_IN_MARGIN, color=INK)
        axes.annotate("Gain", (1, -0.6), (46, 6), **_IN_MARGIN, color=MUTED)
    return figure


def class_shares(comparison: Comparison, width: int) -> Figure:
    """The share of images that each class is in, the most frequent first: as labelled, and as estimated."""
    run = comparison.searched or comparison.baseline
    return _shares(run.found, comparison.style(run), width)


def plot_shares(classes: Sequence[ClassSummary]) -> Figure:
    """Draw `class_shares` of what was found, as a figure of its own."""
    with drawing(12):
        return _shares(classes, method_styles(["opml-plus"])[0], 720)


def _shares(classes: Sequence[ClassSummary], style: SeriesStyle, width: int) -> Figure:
    found = sorted(classes, key=lambda each: -each.prior)[:MOST_CLASSES]
    rows = np.arange(len(found))
    figure, axes = _figure(width, 22 * len(found) + 60)
    low, high = 100 * np.array([each.prior_interval for each in found]).reshape(-1, 2).T
    axes.hlines(rows, low, high, color=style.colour, linewidth=1.6)
    axes.scatter([100 * each.prior for each in found], rows, s=42, marker=style.marker, color=style.colour, zorder=2)
    observed = [100 * each.observed / max(each.images, 1) for each in found]
    axes.scatter(observed, rows, s=90, marker="|", color=MUTED, linewidths=1.5, zorder=2)
    _list_classes(axes, [each.name for each in found], width)
    axes.set_xlabel("Share of images (%)")
    axes.set_xlim(left=0)
    for row, each in zip(rows, found, strict=True):
        axes.annotate(f"{100 * each.prior:.1f}", (1, row), (40, 0), **_IN_MARGIN, color=INK)
    return figure


def _list_classes(axes: Axes, names: Sequence[str], width: int) -> None:
    """A row for each class, its name at the left."""
    limit = LONGEST_NAME if width > NARROW else LONGEST_NAME // 2
    axes.set_yticks(np.arange(len(names)), [short(name, limit=limit) for name in names], color=INK)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(False, axis="y")
    axes.grid(True, axis="x")
    axes.set_axisbelow(True)
    axes.xaxis.set_major_locator(MaxNLocator(10 if width > NARROW else 4, steps=_STEPS))


def classes_by_gain(comparison: Comparison) -> tuple[Indices, Floats]:
    """Columns of the classes that have an AP, the greatest gain of the last rival over the baseline first; all gains.

    With no rival there is no gain, and the order is that of the AP.
    """
    baseline, last = comparison.baseline.class_ap, comparison.rivals[-1].class_ap
    gains = last - baseline
    order = np.argsort(-gains if len(comparison.rivals) > 1 else -last, kind="stable")
    return order[~np.isnan(gains[order])], gains


def confidence_bars(comparison: Comparison, width: int) -> Figure:
    """How confident each run is where the truth is positive: shares in five bins, a panel per run."""
    figure, panels = _panels(comparison, width, height=170)
    for panel, run in zip(panels, comparison.runs, strict=True):
        shares = 100 * confidence_shares(run)
        bars = panel.bar(np.arange(0.1, 1, 0.2), shares, width=0.18, color=comparison.style(run).colour)
        panel.bar_label(bars, [f"{share:.0f} %" for share in shares], padding=2, fontsize=11, color=INK)
        panel.grid(False)
        panel.set_yticks([])
        panel.margins(y=0.15)
    figure.supxlabel("Confidence", x=0.005, ha="left", color=MUTED, fontsize=12)
    return figure


def reliability_curves(comparison: Comparison, width: int) -> Figure:
    """How many labels of each predicted probability are true, before (grey) and after calibration, a panel per run."""
    figure, panels = _panels(comparison, width, height=230 if width > NARROW else 200)
    for panel, run in zip(panels, comparison.runs, strict=True):
        panel.plot([0, 1], [0, 1], color=RULE, linewidth=1)
        for probabilities, colour, line in (
            (expit(run.test_scores), MUTED, "o:"),
            (run.decisions.probabilities(run.test_scores), comparison.style(run).colour, "o-"),
        ):
            curve = reliability(probabilities, run.test_labels)
            panel.plot(curve.predicted, curve.observed, line, color=colour, markersize=4, linewidth=1.6)
        panel.set_ylim(-0.02, 1.02)
        panel.set_yticks(np.linspace(0, 1, 6), ["0", ".2", ".4", ".6", ".8", "1"])
    figure.supxlabel("Predicted probability", x=0.005, ha="left", color=MUTED, fontsize=12)
    return figure


def calibration_errors(run: RunSummary) -> tuple[float, float]:
    """Expected calibration error on the test set, before and after calibration."""
    before, after = expit(run.test_scores), run.decisions.probabilities(run.test_scores)
    return expected_calibration_error(before, run.test_labels), expected_calibration_error(after, run.test_labels)


def _panels(comparison: Comparison, width: int, *, height: int) -> tuple[Figure, list[Axes]]:
    """A panel for each run, all from 0 to 1."""
    across = 4 if width > NARROW else 2
    down = -(-len(comparison.runs) // across)
    figure = Figure(figsize=(width / 72, (down * height + 20) / 72), layout="constrained")
    panels = figure.subplots(
        down, across, sharex=True, sharey=True, squeeze=False, gridspec_kw={"wspace": 0.12, "hspace": 0.08}
    ).ravel()
    for panel, run in zip(panels, comparison.runs, strict=False):
        panel.set_title(_name(comparison, run, wrap=width <= NARROW))
        panel.set_xlim(0, 1)
        panel.set_xticks(np.linspace(0, 1, 6), ["0", ".2", ".4", ".6", ".8", "1"])
        panel.tick_params(labelbottom=True)
    for panel in panels[len(comparison.runs) :]:
        panel.remove()
    return figure, panels[: len(comparison.runs)].tolist()


def confidence_shares(run: RunSummary) -> Floats:
    """Of the true positives, the share with a confidence in [0, 0.2), [0.2, 0.4), … [0.8, 1]."""
    scores = run.test_scores[run.test_labels == POSITIVE]
    counts, _ = np.histogram(expit(scores.astype(np.float64)), bins=5, range=(0, 1))
    return counts / max(len(scores), 1)


def _name(comparison: Comparison, run: RunSummary, *, wrap: bool) -> str:
    label = comparison.label(run)
    return "\n".join(short(part, limit=18) for part in label.split(", ")) if wrap else short(label)


def _figure(width: int, height: int) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width / 72, height / 72), layout="constrained")
    return figure, figure.subplots()


WIDTHS = {"wide": 880, "narrow": 340}  # of each chart in pixels: for screens and paper, and for phones

_DOTS_DESCRIPTION = "Dot plot of the average precision of each class, a dot per run; a table with the numbers follows."
_SHARES_DESCRIPTION = "Dot plot of the share of images that each class is in; a table with the numbers follows."


def templates(package: str) -> Environment:
    """The templates beside the modules of a package, as every report reads them."""
    return Environment(
        loader=PackageLoader(package, package_path=""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


_ENVIRONMENT = templates("onepair.report")
_ENVIRONMENT.filters.update(points=points, signed=signed, percent=percent, duration=duration, on_a_page=on_a_page)


def write_report(
    path: Path,
    runs: Sequence[RunSummary],
    *,
    title: str,
    introduction: str,
    ceiling: str | None = None,
    examples: Examples | None = None,
    named: bool = False,
    differences: Sequence[tuple[str, str, str, str]] = (),
    settings: Mapping[str, Sequence[object]] | None = None,
) -> None:
    """Write one HTML file that shows and explains how runs compare; it needs no other file and no network.

    Args:
        path: of the file; what was there is replaced.
        runs: in the order they are shown, the baseline first.
        title, introduction: plain text; a blank line in the introduction starts a new paragraph.
        ceiling: name of the run with full labels, the end of the gap that the others close.
        examples: test images to show with the predictions of the first and the last run on the baseline's labels.
        named: whether to show the name of each run under its title.
        differences: between pairs of runs: which, how large, its interval and the verdict, in words.
        settings: those that differ, each with its value in every run.
    """
    comparison = Comparison(runs, ceiling)
    order, gains = classes_by_gain(comparison)
    positives = int((comparison.baseline.test_labels == POSITIVE).sum())
    curves = dots = bars = calibration = shares = None
    errors: list[tuple[float, float]] = []
    if any(run.records for run in runs):
        curves = _draw(validation_curves, comparison, _describe_curves(comparison))
    if len(order):
        dots = _draw(class_dots, comparison, _DOTS_DESCRIPTION)
    if positives:
        bars = _draw(confidence_bars, comparison, _describe_bars(comparison))
        errors = [calibration_errors(run) for run in runs]
        calibration = _draw(reliability_curves, comparison, _describe_calibration(comparison, errors))
    if comparison.searched is not None:
        shares = _draw(class_shares, comparison, _SHARES_DESCRIPTION)
    page = _ENVIRONMENT.get_template("page.html.j2").render(
        title=title,
        paragraphs=[paragraph for paragraph in introduction.split("\n\n") if paragraph.strip()],
        comparison=comparison,
        named=named,
        differences=differences,
        settings=settings or {},
        curves=curves,
        dots=dots,
        bars=bars,
        calibration=calibration,
        shares=shares,
        errors=errors,
        columns=[*order, *np.flatnonzero(np.isnan(gains))],
        gains=gains,
        most_classes=MOST_CLASSES,
        positives=positives,
        cards=[] if examples is None else list(cards(comparison, examples)),
    )
    write_atomically(path, page.encode())


def _draw(chart: Chart, comparison: Comparison, description: str) -> dict[str, str]:
    """A chart at every width; the style sheet shows the one that fits."""
    return {kind: draw(chart, comparison, width=width, description=description) for kind, width in WIDTHS.items()}


def _describe_curves(comparison: Comparison) -> str:
    bests = (
        f"{comparison.label(run)}: at best {points(max(run.validation_maps))}, in epoch {run.best_position + 1}"
        for run in comparison.runs
        if run.records
    )
    return f"Line chart of validation mAP over epochs. {'; '.join(bests)}."


def _describe_bars(comparison: Comparison) -> str:
    shares = (
        f"{comparison.label(run)}: {', '.join(percent(share) for share in confidence_shares(run))}"
        for run in comparison.runs
    )
    return f"Histograms of confidence at the true positives, in steps of 0.2 from 0 to 1. {'; '.join(shares)}."


def _describe_calibration(comparison: Comparison, errors: Sequence[tuple[float, float]]) -> str:
    by_run = (
        f"{comparison.label(run)}: {percent(before)} before, {percent(after)} after"
        for run, (before, after) in zip(comparison.runs, errors, strict=True)
    )
    return f"Reliability diagrams. Expected calibration error of {'; '.join(by_run)} calibration."
