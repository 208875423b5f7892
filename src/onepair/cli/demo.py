"""`onepair demo`: all steps on scenes that the package draws, judged by what they really show."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from onepair.cli.console import make_table, on_interrupt
from onepair.cli.first_steps import METHOD, say_command
from onepair.cli.options import Backbone
from onepair.words import command, counted, percent

if TYPE_CHECKING:
    from onepair.dataset import Dataset
    from onepair.finding.suggestions import Finding

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
    from onepair.data.formats.scenes import write_scenes
    from onepair.dataset import Dataset
    from onepair.models import INSTALL, backbones_at_hand

    network = backbone or next(iter(backbones_at_hand()), "small-cnn")
    if network == "small-cnn":
        typer.echo(f"a network that was never trained finds little; {INSTALL}, which finds far more", err=True)
    labels = write_scenes(out / "scenes", number=scenes)
    say_command("check", labels)
    tagged, truth = Dataset.read(labels), Dataset.read(labels.with_name("truth.csv"))
    typer.echo("\n".join(map(str, [tagged, *tagged.check()])))
    missing = _positives(truth) - _positives(tagged)
    verdicts = [
        judge(_train_and_find(method, labels, network, out / run), missing)
        for method, run in ((METHOD, "run"), ("bce", "run-bce"))
    ]
    _print(verdicts, len(missing))
    typer.echo(f"To confirm the suggestions on a page: {command('review', out / 'run')}")


def _print(verdicts: list[Verdict], missing: int) -> None:
    from rich.console import Console

    table = make_table("method", ">suggested", ">right", ">of the missing", f">first {FIRST}: stated", ">right")
    for title, each in zip(("OPML+", "BCE"), verdicts, strict=True):
        shares = (each.right / max(missing, 1), each.first_stated, each.first_right)
        table.add_row(title, f"{each.suggested:,}", f"{each.right:,}", *map(percent, shares))
    Console(highlight=False).print(table)
    ours, usual = verdicts
    first = f"the first {FIRST}"
    typer.echo(
        f"The scenes really miss {counted(missing, 'label')}. onepair finds {ours.right:,} of them; of {first} that it "
        f"suggests, {percent(ours.first_right)} are right, where it stated {percent(ours.first_stated)}. BCE, the "
        f"usual loss, finds {usual.right:,}; of {first}, {percent(usual.first_right)} are right."
    )


def judge(found: "Finding", missing: set[tuple[str, str]]) -> Verdict:
    """Compare suggestions of missing labels with the labels really missing, by file and class in lower case."""
    suggestions = found.suggestions[found.suggestions.kind == "missing"]
    cells = zip(suggestions.row.tolist(), suggestions.label.tolist(), strict=True)
    right = [(found.files[row], found.classes[label].name.lower()) in missing for row, label in cells]
    first = max(len(right[:FIRST]), 1)
    stated = float(suggestions.probability[:FIRST].sum())
    return Verdict(len(right), sum(right), stated / first, sum(right[:FIRST]) / first)


def _positives(dataset: "Dataset") -> set[tuple[str, str]]:
    """The labels that a dataset has, by file and class."""
    rows, columns = (dataset.labels == 1).nonzero()
    cells = zip(rows.tolist(), columns.tolist(), strict=True)
    return {(dataset.files[row], dataset.classes[column].lower()) for row, column in cells}


def _train_and_find(method: str, table: Path, network: str, run: Path) -> "Finding":
    """Do what `onepair train` and `onepair find` do, and name them."""
    from onepair.training.callbacks import ProgressCallback
    from onepair.training.hardware import Hardware
    from onepair.workflow import train

    with ProgressCallback() as shown:
        say_command("train", table, "--method", method, "--backbone", network, "--out", run)
        hardware = Hardware(devices=1)
        done = train(table, method=method, backbone=network, out=run, hardware=hardware, callbacks=[shown])
        say_command("find", run, "--no-maps")
        return done.find(callbacks=[shown]).finding
