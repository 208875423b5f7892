"""How a command reads a dataset: the options that all of them share, and what they come to."""

import inspect
import shlex
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

if TYPE_CHECKING:
    from onepair.data.label_table import LabelTable
    from onepair.data.problems import Report

R = TypeVar("R")

Features = Annotated[
    str | None,
    typer.Option(
        metavar="VECTORS",
        help="Vectors in place of images, one for each row of the table: a .npy, .npz or Parquet file, or a folder of "
        "shards; by default there are none.",
    ),
]
Strict = Annotated[
    bool,
    typer.Option("--strict", help="Stop at the first row or image that cannot be read, instead of leaving it out."),
]


@dataclass(frozen=True)
class Reading:
    """What a command line says of how a dataset is read; each field is an option."""

    format: Annotated[
        str | None,
        typer.Option(help="The dataset's format, see onepair datasets; auto goes by the layout.", show_default="auto"),
    ] = None
    folder: Annotated[
        str | None,
        typer.Option(
            metavar="PATH", help="The folder or URL that file names are relative to; by default the table's own folder."
        ),
    ] = None
    unlisted: Annotated[
        Literal["unknown", "negative"] | None,
        typer.Option(help="What a class is that a row's list of labels leaves out.", show_default="unknown"),
    ] = None
    zeros: Annotated[
        Literal["negative", "unknown"] | None,
        typer.Option(
            help="What a 0 of a table is: negative, or unknown where it means no more than 'not tagged'.",
            show_default="negative",
        ),
    ] = None
    label_columns: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="A table's columns of classes, as cat,dog, or the one with lists; by default recognised.",
        ),
    ] = None
    complete_split: Annotated[
        str | None,
        typer.Option(metavar="SPLITS", help="Splits labelled in full, as test: what a row leaves out is negative."),
    ] = None

    @property
    def given(self) -> dict[str, str]:
        """What was given, by the names of the options."""
        return {f"--{name.replace('_', '-')}": value for name, value in asdict(self).items() if value is not None}

    @property
    def words(self) -> list[str]:
        """What was given, as it is typed."""
        return [word for option in self.given.items() for word in option]

    @property
    def settings(self) -> dict[str, str | None]:
        """The same as settings of data in a configuration."""
        names = {"folder": "images", "complete_split": "complete_splits"}
        return {names.get(name, name): value for name, value in asdict(self).items()}

    def table(self, data: str, *, features: str | None, report: "Report") -> "LabelTable":
        """The dataset, read as `data.reading.read_dataset` does."""
        from onepair.data.formats.read import read_dataset
        from onepair.data.tables.cell_values import names_in

        return read_dataset(
            data,
            format=self.format or "auto",
            unlisted=self.unlisted or "unknown",
            zeros=self.zeros or "negative",
            images=self.folder,
            label_columns=names_in(self.label_columns),
            complete_splits=names_in(self.complete_split) or (),
            features=features,
            report=report,
        )

    def noted_table(self, data: str, *, strict: bool, features: str | None = None) -> "LabelTable":
        """The dataset. What is remarkable about it, or wrong, is said, and no reason to stop."""
        from onepair.data.problems import Problem, noting
        from onepair.words import command, itemised

        found: list[Problem] = []
        table = self.table(data, features=features, report=noting(found, strict=strict))
        if found:
            rest = f"{command('check', data)} has all of them"
            typer.echo(itemised("noted about the labels:", found, rest=rest), err=True)
        return table


UNSAID = Reading()


def reads_data(command: Callable[..., R]) -> Callable[..., R]:
    """Give a command the options of `Reading`, each by its name, where it takes all of them as `reading`."""
    fields = inspect.signature(Reading).parameters
    own = inspect.signature(command)

    @wraps(command)
    def taking(*arguments: Any, **options: Any) -> R:
        given = {name: options.pop(name) for name in fields if name in options}
        return command(*arguments, reading=Reading(**given), **options)

    parameters = list(own.parameters.values())
    place = list(own.parameters).index("reading")
    parameters[place : place + 1] = [each.replace(kind=parameters[place].kind) for each in fields.values()]
    taking.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    taking.__annotations__ = {each.name: each.annotation for each in parameters}
    return taking


def say_how_to_train(written: Path, table: "LabelTable") -> None:
    """Of a table that was written here while its images are at URLs."""
    from onepair.remote import is_remote

    if is_remote(table.root):
        again = shlex.join(["onepair", "train", str(written), "--folder", str(table.root)])
        typer.echo(f"its images are at URLs; to train on it: {again}")
