"""`onepair demo`: all steps on scenes that the package draws, judged by what they really show."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from onepair.cli.console import make_table
from onepair.cli.first_steps import METHOD, say_command
from onepair.cli.interruption import on_interrupt
from onepair.cli.options import Backbone, RunOptions
from onepair.words import command, counted, percent

if TYPE_CHECKING:
    from onepair.finding.suggestions import Finding
    from onepair.runs.task import RunCache

FIRST = 100  # suggestions, which nearly everybody will look at


class Verdict(NamedTuple):
    """How suggestions of missing labels compare with the truth."""

    suggested: int
    right: int
    first_stated: float  # of the first ones, the share that probabilities promise to be right
    first_right: float  # and the share that is


@on_interrupt("what was saved is kept; the same command goes on")
def demo(
    out: Annotated[Path, typer.Option(help="The folder for the scenes and the runs.")] = Path("runs/demo"),
    scenes: Annotated[int, typer.Option(min=50, help="How many scenes to draw.")] = 400,
    backbone: Backbone = None,
) -> None:
    """Find missing labels in scenes that are drawn here, and compare what was found with the truth.

    Draws picture-book scenes and tags them as people do: what is large first, most labels missing, some spelt
    otherwise, some wrong. Then it checks the table, trains and finds, and does so again with BCE, the usual loss. Run
    the same command again to resume.
    """
    from rich.console import Console

    from onepair.cli.data import check
    from onepair.cli.finding import print_finding
    from onepair.data.formats.scenes import write_scenes
    from onepair.models.packages import INSTALL, backbones_at_hand
    from onepair.runs.task import RunCache

    network = backbone or next(iter(backbones_at_hand()), "small-cnn")
    if network == "small-cnn":
        typer.echo(f"a network that was never trained finds little; {INSTALL}, which finds far more", err=True)
    labels = write_scenes(out / "scenes", number=scenes)
    clean, run, shared = labels.with_name("clean.csv"), out / "run", RunCache()
    say_command("check", labels, "--fix", clean)
    try:
        check(str(labels), fix=clean)
    except typer.Exit as end:
        if end.exit_code:
            raise
    found = _train_and_find(METHOD, clean, network, run, shared)
    print_finding(found)
    baseline = _train_and_find("bce", clean, network, out / "run-bce", shared)

    missing = _missing(labels, clean)
    table = make_table("method", ">suggested", ">right", ">of the missing", f">first {FIRST}: stated", ">right")
    for title, each in (("OPML+", found), ("BCE", baseline)):
        verdict = judge(each, missing)
        shares = (verdict.right / max(len(missing), 1), verdict.first_stated, verdict.first_right)
        table.add_row(title, f"{verdict.suggested:,}", f"{verdict.right:,}", *map(percent, shares))
    Console(highlight=False).print(table)
    first = round(judge(found, missing).first_right * FIRST)
    typer.echo(
        f"The scenes really miss {counted(len(missing), 'label')}; of the first {FIRST} that onepair suggests, {first} "
        f"are right.\nTo confirm them on a page: {command('review', run)}"
    )


def judge(found: "Finding", missing: set[tuple[str, str]]) -> Verdict:
    """Compare suggestions of missing labels with the labels really missing, by file and class in lower case."""
    suggestions = found.suggestions[found.suggestions.kind == "missing"]
    cells = zip(suggestions.row.tolist(), suggestions.label.tolist(), strict=True)
    right = [(found.files[row], found.classes[label].name.lower()) in missing for row, label in cells]
    first = max(len(right[:FIRST]), 1)
    stated = float(suggestions.probability[:FIRST].sum())
    return Verdict(len(right), sum(right), stated / first, sum(right[:FIRST]) / first)


def _missing(labels: Path, clean: Path) -> set[tuple[str, str]]:
    """The labels, by file and class, that scenes should have and do not."""
    truth, tagged = (_positives(table) for table in (labels.with_name("truth.csv"), clean))
    return truth - tagged


def _positives(path: Path) -> set[tuple[str, str]]:
    from onepair.data.formats.read import read_dataset
    from onepair.labels import POSITIVE

    table = read_dataset(path)
    rows, columns = (table.labels.dense() == POSITIVE).nonzero()
    cells = zip(rows.tolist(), columns.tolist(), strict=True)
    return {(table.files[row], table.classes[column].lower()) for row, column in cells}


def _train_and_find(method: str, table: Path, network: str, run: Path, shared: "RunCache") -> "Finding":
    """Do what `onepair train` and `onepair find` do, and name them."""
    from onepair.cli.training import complete_config
    from onepair.finding.find import find_labels
    from onepair.runs.finished import FinishedRun
    from onepair.runs.folder import RunFolder
    from onepair.training.callbacks import ProgressCallback
    from onepair.training.hardware import Hardware
    from onepair.training.run import train

    config = complete_config("demo", str(table), RunOptions(method=method, backbone=network), shared=shared)
    with ProgressCallback() as progress:
        hardware = Hardware(devices=1, shared=shared)
        say_command("train", table, "--method", method, "--backbone", network, "--out", run)
        train(config, RunFolder(run), hardware=hardware, callbacks=[progress])
        say_command("find", run, "--no-maps")
        return find_labels(FinishedRun(run, shared=shared), maps=False, hardware=hardware, callbacks=[progress])
