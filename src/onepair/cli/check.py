"""`onepair check`: what is in a dataset, and what is wrong with it."""

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onepair.cli.figures import class_table
from onepair.cli.interruption import NOTHING, on_interrupt
from onepair.cli.reading import UNSAID, Features, Reading, reads_data, say_how_to_train
from onepair.words import counted, plural

if TYPE_CHECKING:
    from rich.console import Console

    from onepair.data.label_table import LabelTable
    from onepair.data.problems import Problem
    from onepair.data.quality.check import Census

SHOWN = 10  # problems of each kind; --json has them all
CLASSES = 100  # in the table, of more, those with most positives; --json has them all


@on_interrupt(NOTHING)
@reads_data
def check(
    data: Annotated[str, typer.Argument(help="A dataset's folder or file, or 'digits' for the embedded one.")],
    reading: Reading = UNSAID,
    features: Features = None,
    images: Annotated[bool, typer.Option("--images", help="Decode every image too.")] = False,
    fix: Annotated[
        Path | None, typer.Option(help="Write a clean table, .csv or .parquet, without what is wrong.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Say what is in a dataset, and all that is wrong with it.

    Exit code 0 if it is clean, 2 if there are problems. --fix decodes every image, leaves out what is missing, broken
    or there twice, merges spellings of one class, says all that it changed, and writes the rest: splits stay, and
    unknown labels stay unknown.
    """
    from onepair.data.problems import Problem
    from onepair.data.quality.check import find_problems, take_census
    from onepair.remote import as_path

    found: list[Problem] = []
    table = reading.table(data, features=features, report=found.append)
    if fix is not None:
        table, found = _fix(table, found, as_path(data), fix, ask=not as_json)
    else:
        found += find_problems(table, images=images, progress=_with_bar)
    problems = [problem for problem in found if not problem.remark]
    remarks = [problem for problem in found if problem.remark]
    word = "problem" if fix is None else "change"
    census = take_census(table)
    if as_json:
        listed = {
            plural(word): [_plain(problem) for problem in problems],
            "remarks": [_plain(remark) for remark in remarks],
        }
        typer.echo(json.dumps({**_as_json(census), **listed}, indent=2, ensure_ascii=False))
    else:
        _print(census, problems, remarks, word)
        if fix is not None:
            say_how_to_train(fix, table)
    raise typer.Exit(2 if problems and fix is None else 0)


def _fix(
    table: "LabelTable", found: list["Problem"], source: Path, out: Path, *, ask: bool
) -> tuple["LabelTable", list["Problem"]]:
    """Write a clean table; it, and what was changed, with remarks."""
    from onepair.data.formats.write import named_from
    from onepair.data.problems import DataError, outcome
    from onepair.data.quality.clean import clean
    from onepair.data.tables.write_table import write_table
    from onepair.data.text_files import real

    if table.pixels is not None:
        raise DataError(f"{source}: is inside the package, and nothing is wrong with it")
    if out.suffix.lower() not in (".csv", ".parquet"):
        raise DataError(f"{out}: a table is written as .csv or .parquet; name it so")
    if real(out) == real(source):
        raise DataError(f"{out}: is the table to check; name another file")
    if not out.parent.is_dir():
        raise DataError(f"{out}: there is no folder {out.parent}")
    asks = ask and sys.stdin.isatty() and sys.stdout.isatty()
    cleaned = clean(table, is_same=_ask if asks else lambda one, other: False, progress=_with_bar)
    write_table(named_from(cleaned.table, out.parent), out)
    return cleaned.table, [*map(outcome, found), *cleaned.changes, *cleaned.doubts]


def _ask(one: str, other: str) -> bool:
    return typer.confirm(f"Are {one} and {other} the same class?", default=False)


def _with_bar(rows: Iterable[int]) -> Iterator[int]:
    from rich.progress import track

    from onepair.cli.progress import error_console

    console = error_console()
    yield from track(rows, "Looking at the images", console=console, transient=True, disable=not console.is_terminal)


def _plain(problem: "Problem") -> dict[str, str]:
    return {key: value for key, value in asdict(problem).items() if key != "remark"}


def _as_json(census: "Census") -> dict[str, Any]:
    counts = zip(census.classes, census.positive, census.negative, census.unknown, strict=True)
    return {
        "images": census.images,
        "positives_per_image": census.cardinality,
        "verified_empty": census.verified_empty,
        "not_annotated": census.not_annotated,
        "classes": [
            {"name": name, "positive": int(positive), "negative": int(negative), "unknown": int(unknown)}
            for name, positive, negative, unknown in counts
        ],
    }


def _print(census: "Census", problems: list["Problem"], remarks: list["Problem"], word: str) -> None:
    from rich.console import Console
    from rich.markup import escape

    console = Console(highlight=False, soft_wrap=True)
    table = class_table("positive", "negative", "unknown")
    rows = list(zip(census.classes, census.positive, census.negative, census.unknown, strict=True))
    many = len(rows) > CLASSES
    for name, *counts in sorted(rows, key=lambda row: -row[1])[:CLASSES] if many else rows:
        table.add_row(escape(name), *(f"{count:,}" for count in counts))
    if many:
        table.add_row(f"… {len(rows) - CLASSES:,} more", "", "", "")
    table.add_section()
    table.add_row("all", *(f"{counts.sum():,}" for counts in (census.positive, census.negative, census.unknown)))
    console.print(table)

    splits = ", ".join(f"{images:,} {split}" for split, images in census.images.items())
    images, classes = counted(sum(census.images.values()), "image"), counted(len(census.classes), "class")
    console.print(f"{images} ({splits}), {classes}")
    console.print(f"{census.cardinality:.2f} positives per image")
    console.print(
        f"{counted(census.verified_empty, 'image')} verified empty, {census.not_annotated:,} not annotated at all"
    )

    if remarks:
        console.print(f"\n[bold]{counted(len(remarks), 'remark')}[/bold]")
        _print_by_kind(console, remarks)
    if problems:
        console.print(f"\n[bold red]{counted(len(problems), word)}[/bold red]")
        _print_by_kind(console, problems)
    else:
        console.print(f"[green]no {plural(word)}[/green]")


def _print_by_kind(console: "Console", problems: list["Problem"]) -> None:
    from rich.markup import escape

    for kind, group in groupby(sorted(problems, key=lambda problem: problem.kind), lambda problem: problem.kind):
        found = list(group)
        console.print(f"[bold]{escape(kind)}: {len(found):,}[/bold]")
        for problem in found[:SHOWN]:
            console.print(f"  {escape(str(problem))}")
        if len(found) > SHOWN:
            console.print(f"  … and {len(found) - SHOWN:,} more; --json lists all")
