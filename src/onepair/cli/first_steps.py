"""`onepair start`: all steps by one command."""

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from onepair.cli.interruption import on_interrupt
from onepair.cli.options import (
    READ_DEFAULTS,
    Backbone,
    Features,
    Port,
    ReadOptions,
    RunOptions,
    with_options,
)
from onepair.errors import require_extra
from onepair.words import command

METHOD = "opml-plus"


@on_interrupt("the same command goes on")
@with_options
def start(
    data: Annotated[str, typer.Argument(help="Your table of labels, or the folder of a dataset.")],
    backbone: Backbone = None,
    reading: ReadOptions = READ_DEFAULTS,
    features: Features = None,
    out: Annotated[
        Path | None, typer.Option(help="The run's folder; by default in runs/, named by data, method and network.")
    ] = None,
    port: Port = 8765,
    restart: Annotated[
        bool, typer.Option("--restart", help="Move an existing run aside, with all answers to it, and start again.")
    ] = False,
    page: Annotated[bool, typer.Option("--page/--no-page", help="Open the page at the end.")] = True,
) -> None:
    """Check a dataset, train on it, find the labels that are missing, and open a page to confirm them.

    Every step is a command of its own, which is printed. Run the same command again to resume.
    """
    require_extra("review")
    from onepair.cli.data import check
    from onepair.cli.finding import find, review
    from onepair.cli.training import complete_config, default_folder, train

    given = RunOptions(method=METHOD, mode="linear", backbone=backbone, features=features)
    complete = complete_config("start", data, given, reading)
    network = complete.model.backbone
    options = {**asdict(reading), "features": features}
    words = [*reading.words, *(["--features", features] if features is not None else [])]
    run = out or default_folder(complete)

    say_command("check", data, *words)
    try:
        check(data, **options)
    except typer.Exit as end:
        if end.exit_code:
            fix = shlex.join(["onepair", "check", data, *words, "--fix", "clean.csv"])
            typer.echo(f"\nwhat cannot be used is left out; {fix} writes a table without it")
    anew = ["--restart"] if restart else []
    say_command(
        "train", data, "--method", METHOD, "--mode", "linear", "--backbone", network, *words, "--out", run, *anew
    )
    train(data, method=METHOD, mode="linear", backbone=network, out=run, restart=restart, **options)
    say_command("find", run)
    suggested = find(run)
    if not suggested:
        typer.echo(f"there is nothing to confirm; to count what is missing on random images: {command('audit', run)}")
    elif page:
        say_command("review", run, "--port", port, "--open")
        review(run, port=port, browse=True)


def say_command(*words: object) -> None:
    """Name the command that comes now."""
    typer.secho(f"\n$ {shlex.join(['onepair', *map(str, words)])}", bold=True, err=True)
