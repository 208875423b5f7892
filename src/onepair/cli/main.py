"""The `onepair` command."""

from typing import Annotated

import typer

from onepair import __version__

app = typer.Typer(
    name="onepair",
    help="Train multi-label classifiers from incomplete labels, and find the labels that are missing.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"onepair {__version__}")
        raise typer.Exit


@app.callback()
def onepair(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass
