"""`onepair check`, `features`, `datasets`: what is in a dataset, and its features."""

import json
import logging
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onepair.cli.console import NOTHING, make_table, on_interrupt
from onepair.cli.options import (
    READ_DEFAULTS,
    Address,
    Cache,
    Engine,
    Features,
    ReadOptions,
    Strict,
    Threads,
    Weights,
    computed,
    say_how_to_train,
    with_options,
)
from onepair.errors import UserError
from onepair.words import counted, plural

if TYPE_CHECKING:
    from rich.console import Console

    from onepair.data.label_table import Problem
    from onepair.data.quality import Census
    from onepair.dataset import Dataset

_log = logging.getLogger(__name__)


SHOWN_PROBLEMS = 10  # problems of each kind; --json has them all
SHOWN_CLASSES = 100  # in the table, of more, those with most positives; --json has them all


@on_interrupt(NOTHING)
@with_options
def check(
    data: Annotated[str, typer.Argument(help="A dataset's folder or file, or 'digits' for the embedded one.")],
    reading: ReadOptions = READ_DEFAULTS,
    features: Features = None,
    decode: Annotated[bool, typer.Option("--decode", help="Also decode every image.")] = False,
    fix: Annotated[
        Path | None, typer.Option(help="Write a clean table, .csv or .parquet, without the problems.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Describe a dataset, and list everything that is wrong with it.

    The exit code is 1 if there are problems, else 0. --fix decodes every image, leaves out missing, broken and
    duplicate images, merges spellings of one class, lists what it changed, and writes the rest. Splits stay, and
    unknown labels stay unknown.
    """
    from onepair.data.quality import take_census
    from onepair.runs.finished import protect_inputs

    dataset = reading.dataset(data, features=features)
    protect_inputs(fix, table=dataset.table, others=[data, features])
    if fix is None:
        found = dataset.check(images=decode, progress=with_bar)
    else:
        _require_table(dataset, data, fix)
        asks = not as_json and sys.stdin.isatty() and sys.stdout.isatty()
        dataset = dataset.fix(is_same=_ask if asks else lambda one, other: False, progress=with_bar)
        dataset.write(fix)
        found = dataset.problems
    table = dataset.table
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
        _print_census(census, problems, remarks, word)
        if fix is not None:
            say_how_to_train(fix, table)
    raise typer.Exit(1 if problems and fix is None else 0)


def _require_table(dataset: "Dataset", source: str, out: Path) -> None:
    """Refuse to write a clean table that could not be one."""
    if dataset.table.pixels is not None:
        raise UserError(f"{source}: is inside the package, and nothing is wrong with it")
    if out.suffix.lower() not in (".csv", ".parquet"):
        raise UserError(f"{out}: a table is written as .csv or .parquet; name it so")
    if not out.parent.is_dir():
        raise UserError(f"{out}: there is no folder {out.parent}")


def _ask(one: str, other: str) -> bool:
    return typer.confirm(f"Are {one} and {other} the same class?", default=False)


def with_bar(rows: Iterable[int]) -> Iterator[int]:
    from rich.progress import track

    from onepair.training.callbacks import error_console

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


def _print_census(census: "Census", problems: list["Problem"], remarks: list["Problem"], word: str) -> None:
    from rich.console import Console
    from rich.markup import escape

    console = Console(highlight=False, soft_wrap=True)
    table = make_table("class", ">positive", ">negative", ">unknown")
    rows = list(zip(census.classes, census.positive, census.negative, census.unknown, strict=True))
    many = len(rows) > SHOWN_CLASSES
    for name, *counts in sorted(rows, key=lambda row: -row[1])[:SHOWN_CLASSES] if many else rows:
        table.add_row(escape(name), *(f"{count:,}" for count in counts))
    if many:
        table.add_row(f"… {len(rows) - SHOWN_CLASSES:,} more", "", "", "")
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
        for problem in found[:SHOWN_PROBLEMS]:
            console.print(f"  {escape(str(problem))}")
        if len(found) > SHOWN_PROBLEMS:
            console.print(f"  … and {len(found) - SHOWN_PROBLEMS:,} more; --json lists all")


@on_interrupt("the features extracted so far are kept; the same command goes on")
@with_options
def features(
    data: Annotated[str, typer.Argument(help="A dataset's folder or file, or 'digits' for the embedded one.")],
    backbone: Annotated[
        str | None,
        typer.Option(
            help="A network of timm by name, or small-cnn; by default the best pretrained network on this machine."
        ),
    ] = None,
    weights: Weights = None,
    image_size: Annotated[
        int | None, typer.Option(min=1, help="Image size in pixels; by default that of the pretrained weights.")
    ] = None,
    cache: Cache = None,
    engine: Engine = "auto",
    address: Address = None,
    threads: Threads = None,
    flipped: Annotated[
        bool, typer.Option("--flipped", help="Extract features of the mirrored images, an augmented view.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Also write the features to this .npy file, one row per image.")
    ] = None,
    reading: ReadOptions = READ_DEFAULTS,
    strict: Strict = False,
) -> None:
    """Extract the features of all images of a dataset into the cache, for every run on them.

    Images are identified by their content: what was extracted before, for any dataset, is not extracted again.
    """
    if out is not None and out.suffix != ".npy":
        raise UserError(f"{out}: features are written as .npy; name it so")
    place = computed(engine, address)
    dataset = reading.noted(data, strict=strict)

    from onepair.data.label_table import announce
    from onepair.runs.finished import protect_inputs
    from onepair.training.callbacks import ProgressCallback, progress_of

    protect_inputs(out, table=dataset.table, others=[data, weights])
    with ProgressCallback() as progress, place as executor:
        found = dataset.extract_features(
            backbone,
            weights=weights,
            image_size=image_size,
            flipped=flipped,
            cache=cache,
            threads=threads,
            executor=executor,
            report=announce(_log.info, strict=strict),
            on_progress=progress_of([progress], "extracting features"),
        )
    typer.echo(f"{found.folder}: {counted(found.new, 'image')} new, {found.there:,} there before")
    if found.unreadable:
        typer.echo(f"{counted(found.unreadable, 'image')} could not be read", err=True)
    if out is not None:
        found.write(out)
        rows, width = found.features.shape
        typer.echo(f"{out}: {counted(rows, 'image')} × {width:,} features, {found.features.dtype}")


def datasets() -> None:
    """List the dataset formats: what must be at the path, and where to get it."""
    from rich.console import Console
    from rich.markup import escape

    from onepair.data import READERS

    console = Console(highlight=False)
    for reader in READERS.values():
        console.print(f"[bold]{reader.name}[/bold]  {escape(reader.description)}")
        console.print(f"  layout    {escape(reader.layout)}", soft_wrap=True)
        console.print(f"  download  {escape(reader.origin)}\n", soft_wrap=True)
