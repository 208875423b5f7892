"""Results beside the published ones, as Markdown, CSV and a report."""

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import files
from itertools import combinations
from pathlib import Path
from typing import Any

from onepair.experiments.figures import PICTURES, activations, draw
from onepair.experiments.records import (
    EXPERIMENTS,
    Dataset,
    Experiment,
    Row,
    Spread,
    Values,
    published,
    source,
    values_text,
)
from onepair.experiments.study import Outcome
from onepair.files import write_atomically
from onepair.report import gap_closed
from onepair.report.page import for_a_page, templates
from onepair.words import MINUS, NOTHING, percent


@dataclass(frozen=True)
class Result:
    """A row of a table: what came out here, and in the paper."""

    row: Row
    ours: Spread | None
    paper: Spread | None
    test_maps: Sequence[float] = ()
    values: Values | None = None
    failure: str | None = None

    @property
    def difference(self) -> float | None:
        return None if self.ours is None or self.paper is None else self.ours.mean - self.paper.mean


@dataclass(frozen=True)
class ResultTable:
    """The results of one dataset."""

    dataset: Dataset
    results: Sequence[Result]

    @property
    def rivals(self) -> list[Result]:
        """The rows that compete: those from single positives, or all where there are none."""
        single = [result for result in self.results if result.row.shown_labels == "1 P"]
        return single or list(self.results)

    @property
    def ranked(self) -> list[Result]:
        """The rivals, best first."""
        trained = [result for result in self.rivals if result.ours is not None]
        return sorted(trained, key=lambda result: -_mean(result))

    def place(self, result: Result) -> int | None:
        """1 for the best of the rivals, 2 for the second, None for the others."""
        best = self.ranked[:2] if len(self.ranked) > 1 else []
        return best.index(result) + 1 if result in best else None

    def closed(self, result: Result) -> float:
        """The share of the gap between BCE from single positives and BCE from full labels; NaN where one is missing."""
        ends = {each.row.shown_labels: _mean(each) for each in self.results if each.row.method == "bce"}
        return gap_closed(_mean(result), ends.get("1 P", math.nan), ends.get("all P, all N", math.nan))

    @property
    def has_gap(self) -> bool:
        return any(not math.isnan(self.closed(result)) for result in self.results)

    @property
    def has_choices(self) -> bool:
        return any(result.values for result in self.results)


def make_tables(outcomes: Iterable[Outcome]) -> list[ResultTable]:
    """A table for each dataset."""
    by_dataset: dict[Dataset, list[Result]] = {}
    for outcome in outcomes:
        dataset, row = outcome.line
        paper = published(row.labels, row.published, dataset.name)
        result = Result(row, outcome.spread, paper, outcome.test_maps, outcome.chosen, outcome.failure)
        by_dataset.setdefault(dataset, []).append(result)
    return [ResultTable(dataset, results) for dataset, results in by_dataset.items()]


@dataclass(frozen=True)
class Swap:
    """Two rows that stand in another order than in the paper."""

    above: Result
    below: Result

    @property
    def here(self) -> float:
        return _mean(self.above) - _mean(self.below)

    @property
    def there(self) -> float:
        return _paper_mean(self.above) - _paper_mean(self.below)

    @property
    def clear(self) -> bool:
        """Whether the rows are further apart than their standard deviations together, here and in the paper."""
        ours, paper = (_noise(self.above.ours, self.below.ours), _noise(self.above.paper, self.below.paper))
        return self.here > ours and -self.there > paper

    def __str__(self) -> str:
        apart = f"{signed(self.here)} here, {signed(self.there)} in the paper"
        return f"{self.above.row.label} above {self.below.row.label} ({apart})"


def swaps(results: Sequence[Result]) -> tuple[list[Swap], int]:
    """The pairs of rows in another order than in the paper, the clearest first; and the number of pairs compared."""
    known = [result for result in results if result.ours is not None and result.paper is not None]
    pairs = list(combinations(known, 2))
    found = []
    for first, second in pairs:
        above, below = (first, second) if _mean(first) >= _mean(second) else (second, first)
        if _paper_mean(above) < _paper_mean(below) and _mean(above) > _mean(below):
            found.append(Swap(above, below))
    return sorted(found, key=lambda swap: (not swap.clear, swap.there)), len(pairs)


def order_sentences(results: Sequence[Result]) -> list[str]:
    """How the order of rows differs from the paper's, in words."""
    found, pairs = swaps(results)
    if not pairs:
        return []
    if not found:
        return [f"All {pairs} pairs of rows stand in the paper's order." if pairs > 1 else "The order is the paper's."]
    clear = [str(swap) for swap in found if swap.clear]
    unclear = [str(swap) for swap in found if not swap.clear]
    sentences = [f"{len(found)} of {pairs} pairs of rows stand in another order than in the paper."]
    if clear:
        sentences.append(f"Beyond the standard deviations: {'; '.join(clear)}.")
    if unclear:
        sentences.append(f"Within the standard deviations, here or in the paper: {'; '.join(unclear)}.")
    return sentences


def to_markdown(table: ResultTable) -> str:
    """The table, the best rival in bold and the second underlined."""
    titles = ["labels", "method", "test mAP", "paper", "difference"]
    titles += ["gap closed"] if table.has_gap else []
    sides = ["---"] * 2 + ["---:"] * (len(titles) - 2)
    if table.has_choices:
        titles, sides = [*titles, "chosen on validation"], [*sides, "---"]
    lines = [titles, sides]
    for result in table.results:
        cells = [
            result.row.shown_labels,
            result.row.title,
            _ours(result, table.place(result)),
            str(result.paper or NOTHING),
            NOTHING if result.difference is None else signed(result.difference),
        ]
        cells += [percent(table.closed(result))] if table.has_gap else []
        cells += [values_text(result.values or {})] if table.has_choices else []
        lines.append(cells)
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def to_csv(tables: Iterable[ResultTable]) -> str:
    """All numbers, a line for each row of each dataset."""
    return csv_text(
        {
            "dataset": table.dataset.name,
            "labels": result.row.shown_labels,
            "method": result.row.method,
            "title": result.row.title,
            "test_map": _number(result.ours and result.ours.mean),
            "std": _number(result.ours and result.ours.std),
            "paper_map": _number(result.paper and result.paper.mean),
            "paper_std": _number(result.paper and result.paper.std),
            "difference": _number(result.difference),
            "gap_closed": _number(table.closed(result), digits=3),
            "seeds": len(result.test_maps),
            "test_maps": " ".join(f"{value:.2f}" for value in result.test_maps),
            "chosen": values_text(result.values or {}),
            "failure": result.failure or "",
        }
        for table in tables
        for result in table.results
    )


def csv_text(rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows that all have the same columns, as CSV."""
    listed, text = list(rows), io.StringIO()
    if listed:
        writer = csv.DictWriter(text, list(listed[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(listed)
    return text.getvalue()


def signed(points: float) -> str:
    """A difference in points of mAP, always with its sign.

    >>> signed(0.5), signed(-0.112)
    ('+0.50', '−0.11')
    """
    return f"{points:+.2f}".replace("-", MINUS)


def _ours(result: Result, place: int | None) -> str:
    if result.ours is None:
        return f"failed: {result.failure}" if result.failure else NOTHING
    return {1: f"**{result.ours}**", 2: f"<u>{result.ours}</u>"}.get(place or 0, str(result.ours))


def _mean(result: Result) -> float:
    return math.nan if result.ours is None else result.ours.mean


def _paper_mean(result: Result) -> float:
    return math.nan if result.paper is None else result.paper.mean


def _noise(*spreads: Spread | None) -> float:
    return sum(spread.std or 0.0 for spread in spreads if spread is not None)


def _number(value: float | None, *, digits: int = 2) -> str:
    return "" if value is None or math.isnan(value) else f"{value:.{digits}f}"


TITLE = "The paper’s experiments"

_ENVIRONMENT = templates("onepair.experiments")
_ENVIRONMENT.filters.update(signed=signed, percent=percent, values=values_text)


@dataclass(frozen=True, eq=False)
class Content:
    """What is to be said and shown of an experiment."""

    markdown: str
    csv: str
    findings: Sequence[str]
    tables: Sequence[ResultTable] = ()
    figure: str | None = None  # an `<svg>` element
    inches: float = 0.0  # its width in print
    images: Mapping[str, bytes] = field(default_factory=dict)  # by suffix


def write_output(out: Path, experiment: Experiment, outcomes: Sequence[Outcome], *, command: str) -> list[Path]:
    """Write the files of a table or figure and the report that holds all of them; returns the files."""
    content = (_table if experiment.picture == "table" else _figure)(experiment, outcomes)
    paper = f" The paper's numbers are from {source()}." if content.tables else ""
    heading = f"# {experiment.title}\n\n    {command}\n\n{experiment.caption}{paper}\n\n"
    contents = {".md": (heading + content.markdown).encode(), ".csv": content.csv.encode(), **content.images}
    written = [out / f"{experiment.name}{suffix}" for suffix in contents]
    for path, bytes_ in zip(written, contents.values(), strict=True):
        write_atomically(path, bytes_)
    section = _ENVIRONMENT.get_template("section.html.j2").render(
        experiment=experiment, command=command, **vars(content)
    )
    return [*written, _write_report(out, experiment, section)]


def _table(experiment: Experiment, outcomes: Sequence[Outcome]) -> Content:
    tables = make_tables(outcomes)
    findings = []
    for table in tables:
        title = f"{table.dataset.title}. " if len(tables) > 1 else ""
        findings += [f"{title}{' '.join(sentences)}"] if (sentences := order_sentences(table.results)) else []
    findings += _failures(outcomes)
    markdown = "".join(f"## {table.dataset.title}\n\n{to_markdown(table)}\n" for table in tables)
    return Content(markdown + _paragraphs(findings), to_csv(tables), findings, tables)


def _figure(experiment: Experiment, outcomes: Sequence[Outcome]) -> Content:
    panels = {
        dataset: [outcome for outcome in outcomes if outcome.line.dataset == dataset and outcome.runs]
        for dataset in dict.fromkeys(outcome.line.dataset for outcome in outcomes if outcome.runs)
    }
    if experiment.rows and not panels:
        return Content(_paragraphs(_failures(outcomes)), "", _failures(outcomes))
    drawing, drawn = draw(partial({**PICTURES, "activations": activations}[experiment.picture], panels))
    findings = [*drawing.findings, *_failures(outcomes)]
    description = " ".join([f"{experiment.title}.", experiment.caption, *findings])
    return Content(
        f"![{experiment.title}]({experiment.name}.svg)\n\n{drawing.table}{_paragraphs(findings)}",
        csv_text(drawing.numbers),
        findings,
        figure=for_a_page(drawn.page, prefix=f"{experiment.name}-", description=description),
        inches=drawing.figure.get_figwidth(),
        images={".png": drawn.png, ".svg": drawn.svg},
    )


def _failures(outcomes: Sequence[Outcome]) -> list[str]:
    return [
        f"{outcome.line.dataset.title}, {outcome.line.row.title}: {outcome.failure}."
        for outcome in outcomes
        if outcome.failure is not None
    ]


def _paragraphs(sentences: Sequence[str]) -> str:
    return "".join(f"{sentence}\n\n" for sentence in sentences).rstrip("\n") + "\n" if sentences else ""


def _write_report(out: Path, experiment: Experiment, section: str) -> Path:
    """Put a section into the report, beside those that earlier commands have put there."""
    kept = out / ".report"
    kept.mkdir(exist_ok=True)
    write_atomically(kept / f"{experiment.name}.html", section.encode())
    present = [path for name in EXPERIMENTS if (path := kept / f"{name}.html").exists()]
    page = _ENVIRONMENT.get_template("report.html.j2").render(
        title=TITLE,
        source=source(),
        style=files("onepair.report").joinpath("page.css").read_text("utf-8"),
        sections=[path.read_text("utf-8") for path in present],
    )
    write_atomically(out / "report.html", page.encode())
    return out / "report.html"
