"""The page of a report."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined

from onepair.files import write_atomically
from onepair.labels import POSITIVE
from onepair.report import charts
from onepair.report.compared_runs import Comparison, RunSummary
from onepair.report.explain_images import Examples, cards
from onepair.report.style import on_a_page
from onepair.words import duration, percent, points, signed

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
    order, gains = charts.classes_by_gain(comparison)
    positives = int((comparison.baseline.test_labels == POSITIVE).sum())
    curves = dots = bars = calibration = shares = None
    errors: list[tuple[float, float]] = []
    if any(run.records for run in runs):
        curves = _draw(charts.validation_curves, comparison, _describe_curves(comparison))
    if len(order):
        dots = _draw(charts.class_dots, comparison, _DOTS_DESCRIPTION)
    if positives:
        bars = _draw(charts.confidence_bars, comparison, _describe_bars(comparison))
        errors = [charts.calibration_errors(run) for run in runs]
        calibration = _draw(charts.reliability_curves, comparison, _describe_calibration(comparison, errors))
    if comparison.searched is not None:
        shares = _draw(charts.class_shares, comparison, _SHARES_DESCRIPTION)
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
        most_classes=charts.MOST_CLASSES,
        positives=positives,
        cards=[] if examples is None else list(cards(comparison, examples)),
    )
    write_atomically(path, page.encode())


def _draw(chart: charts.Chart, comparison: Comparison, description: str) -> dict[str, str]:
    """A chart at every width; the style sheet shows the one that fits."""
    return {
        kind: charts.draw(chart, comparison, width=width, description=description) for kind, width in WIDTHS.items()
    }


def _describe_curves(comparison: Comparison) -> str:
    bests = (
        f"{comparison.label(run)}: at best {points(max(run.validation_maps))}, in epoch {run.best_position + 1}"
        for run in comparison.runs
        if run.records
    )
    return f"Line chart of validation mAP over epochs. {'; '.join(bests)}."


def _describe_bars(comparison: Comparison) -> str:
    shares = (
        f"{comparison.label(run)}: {', '.join(percent(share) for share in charts.confidence_shares(run))}"
        for run in comparison.runs
    )
    return f"Histograms of confidence at the true positives, in steps of 0.2 from 0 to 1. {'; '.join(shares)}."


def _describe_calibration(comparison: Comparison, errors: Sequence[tuple[float, float]]) -> str:
    by_run = (
        f"{comparison.label(run)}: {percent(before)} before, {percent(after)} after"
        for run, (before, after) in zip(comparison.runs, errors, strict=True)
    )
    return f"Reliability diagrams. Expected calibration error of {'; '.join(by_run)} calibration."
