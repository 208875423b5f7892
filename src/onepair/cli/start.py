"""`onepair start`: from a table to confirmed labels, one command after the other."""

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from onepair.cli.interruption import on_interrupt
from onepair.cli.reading import UNSAID, Features, Reading, reads_data
from onepair.cli.settings import Backbone, chosen_config
from onepair.errors import require_extra
from onepair.words import command

METHOD = "opml-plus"


@on_interrupt("the same command goes on")
@reads_data
def start(
    data: Annotated[str, typer.Argument(help="Your table of labels, or the folder of a dataset.")],
    backbone: Backbone = None,
    reading: Reading = UNSAID,
    features: Features = None,
    out: Annotated[
        Path | None, typer.Option(help="The run's folder; by default in runs/, named by what it is.")
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Where the page is; 0 takes any port that is free.")
    ] = 8765,
    restart: Annotated[
        bool, typer.Option("--restart", help="Put the run that is there aside, with all answers to it, and begin anew.")
    ] = False,
    page: Annotated[bool, typer.Option("--page/--no-page", help="Open the page in the end.")] = True,
) -> None:
    """Check a dataset, train on it, find the labels that are missing, and open a page to confirm them.

    Every step is a command of its own, which it names. The same command again goes on where it stopped.
    """
    require_extra("review")
    from onepair.cli.check import check
    from onepair.cli.find import find
    from onepair.cli.review import review
    from onepair.cli.train import default_folder, sound, train

    complete = sound(
        chosen_config(data=data, method=METHOD, mode="linear", backbone=backbone, reading=reading, features=features)
    )
    network = complete.model.backbone
    options = {**asdict(reading), "features": features}
    given = [*reading.words, *(["--features", features] if features is not None else [])]
    run = out or default_folder(complete)

    _say("check", data, *given)
    try:
        check(data, **options)
    except typer.Exit as end:
        if end.exit_code:
            fix = shlex.join(["onepair", "check", data, *given, "--fix", "clean.csv"])
            typer.echo(f"\nwhat cannot be used is left out; {fix} writes a table without it")
    anew = ["--restart"] if restart else []
    _say("train", data, "--method", METHOD, "--mode", "linear", "--backbone", network, *given, "--out", run, *anew)
    train(data, method=METHOD, mode="linear", backbone=network, out=run, restart=restart, **options)
    _say("find", run)
    suggested = find(run)
    if not suggested:
        typer.echo(f"there is nothing to confirm; to count what is missing on random images: {command('audit', run)}")
    elif page:
        _say("review", run, "--port", port, "--open")
        review(run, port=port, browse=True)


def _say(*words: object) -> None:
    """Name the command that comes now."""
    typer.secho(f"\n$ {shlex.join(['onepair', *map(str, words)])}", bold=True, err=True)
