"""The `onepair` command."""

import inspect
import io
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from onepair import __version__
from onepair.cli import finding, machine
from onepair.cli.console import terminable
from onepair.cli.data import check, datasets, features
from onepair.cli.finding import audit, find, labels, retrain, review
from onepair.cli.first_steps import demo, start
from onepair.cli.machine import doctor
from onepair.cli.models import decide, evaluate, explain, export, predict
from onepair.cli.research import compare, report, reproduce
from onepair.cli.training import config, methods, train, tune
from onepair.errors import PluginError, Stopped, UserError
from onepair.remote import is_url


def _paragraphs(command: Callable[..., Any]) -> str:
    """What a command says of itself, each paragraph in one line, to be broken where the screen ends."""
    paragraphs = (inspect.getdoc(command) or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


_TYPES = {"<bool>": "", "<int>": "N", "<int range>": "N", "<float>": "X", "<float range>": "X"}
_TYPES |= {"<path>": "PATH", "<str>": "NAME", "<list[str]>": "NAME"}


class _Short:
    """Help that names what an option takes by one short word, and nothing for a flag."""

    def get_params(self, ctx: Any) -> list[Any]:
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for each in params:
            if isinstance(each, TyperOption) and each.metavar is None:
                each.metavar = _TYPES.get(each.display_type(ctx))
        return params


class _Command(_Short, TyperCommand):
    pass


class _Group(_Short, TyperGroup):
    pass


app = typer.Typer(
    name="onepair",
    help="Train multi-label classifiers from incomplete labels, and find the labels that are missing.\n\n"
    "With labels of your own: onepair start labels.csv. Without: onepair demo.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    cls=_Group,
)
GROUPS: dict[str, tuple[Callable[..., Any], ...]] = {
    "Begin": (start, demo, check, datasets, doctor),
    "Train": (train, tune, config, methods, features),
    "Find and fix": (find, review, labels, audit, retrain),
    "Use": (evaluate, decide, predict, explain, export),
    "Research": (reproduce, compare, report),
}
FAMILIES: dict[str, tuple[str, str, dict[str, Callable[..., Any]]]] = {
    "answers": (
        "Find and fix",
        "Write answers to a file for another machine, or take them from one.",
        {"export": finding.export_answers, "import": finding.import_answers},
    ),
    "runs": ("Use", "List runs, and see how far they are.", {"list": machine.list_runs, "status": machine.status}),
    "cache": ("Use", "Show and free the disk space of the cache.", {"size": machine.size, "clean": machine.clean}),
}
for group, commands in GROUPS.items():
    for command in commands:
        app.command(help=_paragraphs(command), rich_help_panel=group, cls=_Command)(command)
for family, (group, purpose, members) in FAMILIES.items():
    inner = typer.Typer(no_args_is_help=True, help=purpose, cls=_Group)
    for name, command in members.items():
        inner.command(name, help=_paragraphs(command), cls=_Command)(command)
    app.add_typer(inner, name=family, rich_help_panel=group)

RENAMED = {  # options by their old names, which work for one version more
    ("check", "--images"): "--decode",
    ("evaluate", "--workers"): "--threads",
    ("features", "--workers"): "--threads",
    ("labels", "--format"): "--as",
}


def _by_new_names(words: Sequence[str]) -> list[str]:
    """The words of a command line with the new names of options, and a warning for each old one."""
    command = next((word for word in words if not word.startswith("-")), "")
    known = []
    for word in words:
        option, equals, value = word.partition("=")
        if new := RENAMED.get((command, option)):
            typer.echo(f"onepair: {option} of onepair {command} is called {new} now; the old name will go", err=True)
            word = f"{new}{equals}{value}"
        known.append(word)
    return known


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"onepair {__version__}")
        raise typer.Exit


def _import(modules: list[str]) -> list[str]:
    """Import modules, from the current folder too, which register what they have by their decorators."""
    for name in modules:
        if str(Path.cwd()) not in sys.path:
            sys.path.append(str(Path.cwd()))
        try:
            import_module(name)
        except Exception as error:
            raise PluginError(f"--import {name}: cannot be imported ({type(error).__name__}: {error})") from error
    return modules


@app.callback()
def onepair(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    modules: Annotated[
        list[str] | None,
        typer.Option(
            "--import",
            metavar="MODULE",
            callback=lambda modules: _import(modules or []),
            help="Import a module first that registers methods, backbones, readers or metrics. May be repeated.",
        ),
    ] = None,
) -> None:
    pass


def _require_local_results(words: list[str]) -> None:
    """Refuse a URL as the place of what is written, before anything is computed."""
    for word, value in zip(words, [*words[1:], ""], strict=True):
        option, equals, rest = word.partition("=")
        path = rest if equals else value
        if option in ("--out", "--cache", "--fix", "--sheet") and is_url(path):
            raise UserError(f"{path}: what {option} names is written on this machine, not at a URL; name a local path")


def _end(stop: Stopped) -> None:
    if str(stop):  # of several processes, one speaks
        typer.echo(f"onepair: {stop}", err=True)
    sys.exit(stop.code)


def main() -> None:
    """Run the command; a user's mistake, or a signal that stops a run, ends in one sentence, never in a traceback."""
    os.umask(os.umask(0o077) | 0o002)  # whatever is written, nobody but its owner's group may change it
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a name may be no text, and is shown all the same
    warnings.filterwarnings("ignore", message="Image size .* decompression bomb")  # there is a limit of our own
    try:
        sys.argv[1:] = _by_new_names(sys.argv[1:])
        _require_local_results(sys.argv[1:])
        with terminable():
            app()
    except SystemExit as end:
        if end.code != 130:
            raise
        stop = getattr(end.__context__, "__cause__", None)  # typer ends with 130 at every KeyboardInterrupt
        _end(stop if isinstance(stop, Stopped) else Stopped("stopped by Ctrl-C", code=130))
    except Stopped as stop:
        _end(stop)
    except UserError as error:
        typer.echo(f"onepair: {error}", err=True)
        sys.exit(2)
    except OSError as error:  # a file that the system refuses, as for its name, before anybody looked at what it holds
        if error.errno is None:
            raise
        where = "what is printed" if error.filename is None else error.filename  # all other files have a name
        typer.echo(f"onepair: {where}: {error.strerror}", err=True)
        sys.exit(2)
