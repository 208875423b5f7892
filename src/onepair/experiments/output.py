"""What an experiment leaves behind: Markdown, CSV, figures, and its section of one report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import files
from pathlib import Path

from onepair.experiments.activations import activations
from onepair.experiments.drawing import draw
from onepair.experiments.figures import PICTURES
from onepair.experiments.published import source
from onepair.experiments.records import EXPERIMENTS, Experiment, values_text
from onepair.experiments.study import Outcome
from onepair.experiments.tables import ResultTable, csv_text, make_tables, order_sentences, signed, to_csv, to_markdown
from onepair.files import write_atomically
from onepair.report.charts import for_a_page
from onepair.report.page import templates
from onepair.report.wording import percent

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
