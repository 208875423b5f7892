"""`onepair check`: what is in a dataset, and what is wrong with it."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from onepair.data.checking import Census
    from onepair.data.problems import Problem

SHOWN = 10  # problems of each kind; --json has them all


def check(
    data: Annotated[str, typer.Argument(help="A dataset's folder or file, or 'digits' for the embedded one.")],
    format: Annotated[
        str, typer.Option(help="auto, table, voc, coco, nuswide, cub or digits; auto goes by the layout.")
    ] = "auto",
    unlisted: Annotated[
        Literal["unknown", "negative"], typer.Option(help="What a class is that a row's list of labels leaves out.")
    ] = "unknown",
    folder: Annotated[
        Path | None, typer.Option(help="The folder that file names are relative to, if not the table's own.")
    ] = None,
    images: Annotated[bool, typer.Option("--images", help="Decode every image too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Say what is in a dataset, and all that is wrong with it.

    Exit code 0 if it is clean, 2 if there are problems.
    """
    from onepair.data.checking import find_problems, take_census
    from onepair.data.problems import Problem
    from onepair.data.reading import read_dataset

    problems: list[Problem] = []
    table = read_dataset(data, format=format, unlisted=unlisted, images=folder, report=problems.append)
    problems += find_problems(table, images=images, progress=_with_bar)
    census = take_census(table)
    if as_json:
        typer.echo(json.dumps(_as_json(census, problems), indent=2, ensure_ascii=False))
    else:
        _print(census, problems)
    raise typer.Exit(2 if problems else 0)


def _with_bar(rows: Iterable[int]) -> Iterator[int]:
    from rich.progress import track

    from onepair.cli.progress import error_console

    console = error_console()
    yield from track(rows, "Looking at the images", console=console, transient=True, disable=not console.is_terminal)


def _as_json(census: "Census", problems: list["Problem"]) -> dict[str, Any]:
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
        "problems": [asdict(problem) for problem in problems],
    }


def _print(census: "Census", problems: list["Problem"]) -> None:
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(highlight=False, soft_wrap=True)
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("class")
    for title in ("positive", "negative", "unknown"):
        table.add_column(title, justify="right")
    for name, *counts in zip(census.classes, census.positive, census.negative, census.unknown, strict=True):
        table.add_row(escape(name), *(f"{count:,}" for count in counts))
    table.add_section()
    table.add_row("all", *(f"{counts.sum():,}" for counts in (census.positive, census.negative, census.unknown)))
    console.print(table)

    splits = ", ".join(f"{images:,} {split}" for split, images in census.images.items())
    console.print(f"{sum(census.images.values()):,} images ({splits}), {len(census.classes)} classes")
    console.print(f"{census.cardinality:.2f} positives per image")
    console.print(f"{census.verified_empty:,} images verified empty, {census.not_annotated:,} not annotated at all")

    if not problems:
        console.print("[green]no problems[/green]")
        return
    console.print(f"\n[bold red]{len(problems):,} problems[/bold red]")
    for kind, group in groupby(sorted(problems, key=lambda problem: problem.kind), lambda problem: problem.kind):
        found = list(group)
        console.print(f"[bold]{kind}: {len(found):,}[/bold]")
        for problem in found[:SHOWN]:
            console.print(f"  {escape(str(problem))}")
        if len(found) > SHOWN:
            console.print(f"  … and {len(found) - SHOWN:,} more; --json lists all")
