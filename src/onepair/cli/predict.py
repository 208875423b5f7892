"""`onepair predict`: the labels of any images."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from onepair.cli.interruption import on_interrupt
from onepair.cli.reading import Strict
from onepair.cli.settings import Address, Engine, computed
from onepair.errors import UserError
from onepair.words import counted, plural

if TYPE_CHECKING:
    from onepair.data.images.blocks import Input
    from onepair.inference.engine import Over
    from onepair.inference.prediction import Model
    from onepair.inference.prediction_files import Written


def predict(
    model: Annotated[Path, typer.Argument(help="The folder of a finished run, or an .onnx file of onepair export.")],
    images: Annotated[
        list[str],
        typer.Argument(
            help="Images, or folders of them, also at URLs; for a model of vectors, files of these, as vectors.npy; "
            "for one of texts, tables with a column text, or .txt files."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="A .csv, .jsonl, .json or .parquet file; by default CSV goes to the screen."),
    ] = None,
    probabilities: Annotated[
        Literal["all", "predicted"] | None,
        typer.Option(help="Of all classes, or of the predicted ones alone.", show_default="all up to 1,000 classes"),
    ] = None,
    engine: Engine = "auto",
    address: Address = None,
    strict: Strict = False,
) -> None:
    """Predict labels: for each image the labels above their thresholds, and the probability of every class.

    Any number of images need the memory of a few. Repeated after an interruption, the command goes on where it stopped.
    Images that cannot be read are named, and listed in a file beside the predictions, as predictions.skipped.csv.
    """
    kept = "nothing was kept, as there is no --out"
    if out is not None:
        kept = "the predictions so far are kept; the same command goes on"
    alone = None if probabilities is None else probabilities == "predicted"
    with on_interrupt(kept), computed(engine, address) as over:
        _predict(model, images, out, alone, strict, over)


def _predict(model: Path, images: list[str], out: Path | None, alone: bool | None, strict: bool, over: "Over") -> None:
    from onepair.data.images.tar import in_tar
    from onepair.data.problems import DataError
    from onepair.data.vectors.vector_files import chosen
    from onepair.inference.engine import here
    from onepair.inference.prediction import load
    from onepair.inference.prediction_files import require_form
    from onepair.remote import as_path

    if out is not None:
        require_form(out)
    for path in images:
        if not in_tar(chosen(path)[0]).exists():
            raise DataError(f"{path}: cannot be read, there is no such file or folder")
    loaded = load(model)
    given = list(map(as_path, images))
    if loaded.preprocessing is not None:
        loaded = replace(loaded, engines=over(loaded.engines))
    elif over is not here:
        raise UserError(f"{model}: takes {plural(loaded.noun)}, and --engine ray is for images; leave it out")

    def files() -> "Iterator[Input]":
        return loaded.each(given)

    if out is None:
        _print(loaded, files(), alone, strict)
    else:
        _tell(_write(loaded, files, out, alone, strict), out, loaded.noun)


def _print(model: "Model", files: "Iterator[Input]", alone: bool | None, strict: bool) -> None:
    from onepair.data.problems import naming
    from onepair.inference.prediction_files import Csv, lines

    unreadable: list[str] = []

    def say(sentence: str) -> None:
        unreadable.append(sentence)
        typer.echo(sentence, err=True)

    for line in lines(model, files, Csv(model.classes, predicted_alone=alone), report=naming(say, strict=strict)):
        sys.stdout.write(line)
    sys.stdout.flush()  # or a full disk would be told of by the interpreter
    if unreadable:
        typer.echo(_could_not_be_read(len(unreadable), model.noun), err=True)


def _write(
    model: "Model", files: "Callable[[], Iterator[Input]]", out: Path, alone: bool | None, strict: bool
) -> "Written":
    """Write the predictions, with a bar on a terminal; nobody knows beforehand how many there will be."""
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from onepair.cli.progress import error_console
    from onepair.data.problems import naming
    from onepair.inference.prediction_files import write_predictions

    console = error_console()
    words = f"{{task.completed:,}} {plural(model.noun)} predicted"
    columns = (SpinnerColumn(), TextColumn(words), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None)

        def say(sentence: object) -> None:
            console.print(str(sentence), markup=False, soft_wrap=True)

        return write_predictions(
            model,
            files,
            out,
            predicted_alone=alone,
            report=naming(say, strict=strict),
            say=say,
            on_progress=lambda done: bar.update(task, completed=done),
        )


def _tell(written: "Written", out: Path, noun: str) -> None:
    earlier = f" ({written.before:,} of the {plural(noun)} were done before)" if written.before else ""
    typer.echo(f"{counted(written.predicted, noun)} predicted, in {out}{earlier}", err=True)
    if written.unreadable:
        listed = out.with_name(f"{out.stem}.skipped.csv")
        typer.echo(f"{_could_not_be_read(written.unreadable, noun)}; they are in {listed}", err=True)


def _could_not_be_read(count: int, noun: str) -> str:
    return f"{counted(count, noun)} could not be read"
