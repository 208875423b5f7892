"""`onepair compare`: runs side by side, and whether their differences are real."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onepair.cli.interruption import NOTHING, on_interrupt
from onepair.errors import require_extra

if TYPE_CHECKING:
    from onepair.experiments.comparison import Pair, TestedRun

INTRODUCTION = """Differences in test mAP, each with the interval that holds 95 % of them when the test images are drawn
anew, again and again, with replacement."""


@on_interrupt(NOTHING)
def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN RUN ...", help="The folders of finished runs.")],
    resamples: Annotated[int, typer.Option(min=100, help="How often the test images are drawn anew.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Of these draws.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Write a report with charts to this HTML file.")] = None,
) -> None:
    """Put runs side by side, and say whether each difference in test mAP is real or could be noise.

    A paired bootstrap over the test images gives an interval that holds 95 % of the differences; one that does not hold
    zero is called real. It tells of other test images, not of training again with another seed.
    """
    if out is not None:
        require_extra("report")
    from onepair.experiments.comparison import compare_runs, read_runs

    read = read_runs(runs)
    pairs = compare_runs(read, resamples=resamples, seed=seed)
    _print_runs(read)
    _print_pairs(pairs)
    if sampled := read[0].run.task.sampled("test"):
        typer.echo(f"mAP and differences are by {sampled}")
    if out is not None:
        _write_report(out, read, pairs)
        typer.echo(f"The report is {out}")


def _print_runs(runs: "Sequence[TestedRun]") -> None:
    """The runs by name, their results, and what differs in their settings."""
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from onepair.experiments.comparison import differing_settings
    from onepair.runs.config import value_text
    from onepair.words import points

    table = Table(box=box.SIMPLE_HEAD)
    for title in ("run", "method"):
        table.add_column(title)
    for title in ("best epoch", "validation", "test mAP", "F1"):
        table.add_column(title, justify="right")
    for run in runs:
        table.add_row(
            escape(run.name),
            run.run.title,
            "–" if run.run.results.best_epoch is None else str(run.run.results.best_epoch),
            points(run.run.results.validation_map),
            points(run.test_map),
            points(run.summary().f1),
        )
    console = Console(highlight=False, soft_wrap=True)
    console.print(table)
    differing = {key: values for key, values in differing_settings(runs).items() if key != "method.name"}
    for key, values in differing.items():
        each = (f"{value_text(value)} in {run.name}" for run, value in zip(runs, values, strict=True))
        console.print(f"{key}: {', '.join(each)}", markup=False)


def _print_pairs(pairs: "Sequence[Pair]") -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("")
    for title in ("difference", "95 % interval"):
        table.add_column(title, justify="right")
    table.add_column("verdict")
    for pair in pairs:
        table.add_row(*_words(pair))
    Console(highlight=False).print(table)


def _words(pair: "Pair") -> tuple[str, str, str, str]:
    """Which runs, their difference, its interval and the verdict."""
    from onepair.experiments.tables import signed

    names = f"{pair.second.name} against {pair.first.name}"
    difference, low, high = (signed(100 * value) for value in pair.interval)
    return names, difference, f"{low} to {high}", pair.interval.verdict


def _write_report(path: Path, runs: "Sequence[TestedRun]", pairs: "Sequence[Pair]") -> None:
    from onepair.experiments.comparison import differing_settings
    from onepair.files import writing
    from onepair.report import write_report
    from onepair.report.explain_images import choose_examples

    with writing(path):
        write_report(
            path,
            [run.summary() for run in runs],
            title="Runs side by side",
            introduction=INTRODUCTION,
            named=True,
            differences=[_words(pair) for pair in pairs],
            settings=differing_settings(runs),
            examples=choose_examples(runs[0].run),
        )
