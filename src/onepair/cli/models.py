"""`onepair evaluate`, `decide`, `predict`, `export`, `explain`: what a run's model is worth, and its use."""

import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from onepair.cli.console import NOTHING, make_table, on_interrupt, print_worth
from onepair.cli.options import (
    READ_DEFAULTS,
    Address,
    Engine,
    Features,
    FinishedRunFolder,
    ReadOptions,
    Strict,
    Threads,
    computed,
    newest_run,
    open_run,
    with_options,
)
from onepair.errors import UserError, require_extra
from onepair.words import command, counted, plural

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from onepair.inference.engine import Executor
    from onepair.inference.prediction import Model, Written
    from onepair.probability.evaluation import Evaluation
    from onepair.probability.thresholds import Thresholds


@on_interrupt(NOTHING)
@with_options
def evaluate(
    run: FinishedRunFolder,
    data: Annotated[
        str | None, typer.Option(help="Another dataset that has classes of the run; by default the run's own.")
    ] = None,
    split: Annotated[
        Literal["train", "validation", "test"] | None,
        typer.Option(help="Which images.", show_default="test, or validation where the run has no test images"),
    ] = None,
    reading: ReadOptions = READ_DEFAULTS,
    features: Features = None,
    threads: Threads = None,
    strict: Strict = False,
    metric: Annotated[
        list[str] | None, typer.Option(help="A further metric by its name, on the known labels. May be repeated.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Evaluate a run's model: average precision per class, and precision, recall and F1 at its thresholds.

    An audited split is evaluated on its audited images. Another dataset may have its classes in any order: those that
    both have are evaluated. Options on how a dataset is read are those of --data.
    """
    opened = open_run(run)

    from onepair.runs.finished import find_metrics
    from onepair.training.callbacks import ProgressCallback

    find_metrics(metric or ())  # or a sentence, before a dataset is read
    if data is None:
        options = {"--features": features, "--strict": strict}
        if given := [*reading.given, *(option for option, value in options.items() if value)]:
            raise UserError(f"{given[0]} says how another dataset is read; name it with --data, or leave it out")
        dataset = None
    else:
        dataset = reading.noted(data, features=features, strict=strict)
    with ProgressCallback():
        found = opened.evaluate(split, data=dataset, metrics=metric or (), threads=threads, strict=strict)
    sampled = opened.sampled(split) if data is None else ""
    if as_json:
        fields = found.to_dict() | ({"sample": sampled} if sampled else {})
        typer.echo(json.dumps(fields, indent=2, ensure_ascii=False, allow_nan=False))
        return
    _print_evaluation(found)
    for name, value in found.metrics.items():
        typer.echo(f"{name} {value:.4f}")
    if sampled:
        typer.echo(f"these figures are {sampled}")


def _print_evaluation(found: "Evaluation") -> None:
    from rich.console import Console
    from rich.markup import escape

    from onepair.words import points, roughly

    console = Console(highlight=False, soft_wrap=True)
    print_worth(found.precision_recall)
    table = make_table("class", ">AP", ">precision", ">recall", ">F1")
    shown, told = (found.classes, points) if found.estimated is None else (found.estimated.classes, roughly)
    for name, figures in shown.items():
        table.add_row(escape(name), *map(told, figures))
    console.print(table)
    console.print(found.line, markup=False)
    if not found.lacking:
        console.print(f"ranking loss {found.ranking_loss:.4f}, coverage {found.coverage:.2f} labels")


@on_interrupt(NOTHING)
def decide(
    run: FinishedRunFolder,
    rule: Annotated[
        Literal["likely", "f1", "precision", "count"],
        typer.Option(
            help="What thresholds aim at: labels at least as likely right as wrong, the best F1, a precision, or the "
            "right number of labels."
        ),
    ] = "likely",
    precision: Annotated[
        float | None, typer.Option(help="The precision that --rule precision keeps in every class.", show_default="0.9")
    ] = None,
    calibration: Annotated[
        Literal["auto", "platt", "isotonic"],
        typer.Option(
            help="How scores become probabilities: Platt scaling, isotonic regression, or the better of both."
        ),
    ] = "auto",
) -> None:
    """Choose the thresholds and the calibration of a run's model again, without training.

    Training chooses labels at least as likely right as wrong. What is chosen here, on the validation images or on
    out-of-fold scores of the training images, is stored with the model, for evaluate, predict and export. After an
    audit, the complete labels of the audited images count.
    """
    if precision is not None and rule != "precision":
        raise UserError(f"--precision belongs to --rule precision, and this is --rule {rule}; leave one of them out")
    opened = open_run(run)
    chosen = opened.thresholds(rule=rule, precision=precision, calibration=calibration)
    _print_thresholds(chosen.thresholds, chosen.scores, chosen.evaluation)
    if sampled := opened.sampled("validation"):
        typer.echo(f"calibration, thresholds and figures are {sampled}")
    if opened.audited == "validation":
        images = counted(chosen.images, "image")
        typer.echo(f"of {images} these are audited in full; calibration and thresholds use them")


def _print_thresholds(decisions: "Thresholds", scores: "NDArray[np.float32]", found: "Evaluation") -> None:
    import numpy as np
    from rich.console import Console
    from rich.markup import escape

    from onepair.words import counted, points, roughly

    predicted = decisions.labels(scores)
    # The smallest probability that is predicted; thresholds are scores.
    least = np.where(predicted, decisions.probabilities(scores), np.inf).min(0)
    shown = found.classes if found.estimated is None else found.estimated.classes
    table = make_table("class", ">threshold", ">predicted", ">precision", ">recall", ">F1")
    for (name, figures), limit, number in zip(shown.items(), least, predicted.sum(0), strict=True):
        given = (figures.precision if number else math.nan, figures.recall, figures.f1)
        values = map(points, given) if found.estimated is None else map(roughly, given)
        table.add_row(escape(name), f"{limit:.2f}" if number else "never", f"{number:,}", *values)
    console = Console(highlight=False, soft_wrap=True)
    console.print(table)
    basis = "on the labels of" if found.estimated is None else "≈ estimated for"
    console.print(
        f"{basis} {counted(found.images, 'validation image')}, at thresholds for {decisions.rule}", markup=False
    )
    console.print(found.sentence, markup=False)
    console.print(found.line, markup=False)
    pooled = [name for name, few in zip(shown, decisions.pooled, strict=False) if few]
    if pooled:
        console.print(f"with the threshold of all classes, for want of positives: {', '.join(pooled)}", markup=False)


@on_interrupt(NOTHING)
def predict(
    model: Annotated[
        Path,
        typer.Argument(
            help="The folder of a run or a project, or an .onnx file of onepair export.", callback=newest_run
        ),
    ],
    images: Annotated[
        list[str],
        typer.Argument(
            help="Images, or folders of them, also at URLs; for a model of vectors, files such as vectors.npy; "
            "for one of texts, tables with a column text, or .txt files."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="A .csv, .jsonl or .parquet file; by default CSV goes to the screen."),
    ] = None,
    probabilities: Annotated[
        Literal["all", "predicted"] | None,
        typer.Option(
            help="Write those of all classes, or of the predicted ones only.", show_default="all up to 1,000 classes"
        ),
    ] = None,
    engine: Engine = "auto",
    address: Address = None,
    strict: Strict = False,
) -> None:
    """Predict labels: for each image those at least as likely right as wrong, and the probability of every class.

    onepair decide chooses another rule.

    Memory does not grow with the number of images, and the file appears when it is complete. Images that cannot be read
    are listed in a file beside it, for example predictions.skipped.csv.
    """
    alone = None if probabilities is None else probabilities == "predicted"
    with computed(engine, address) as executor:
        _predict(model, images, out, alone, strict, executor)


def _predict(
    model: Path, images: list[str], out: Path | None, alone: bool | None, strict: bool, executor: "Executor"
) -> None:
    from onepair.data.images.tar import in_tar
    from onepair.data.vector_files import chosen
    from onepair.errors import DataError
    from onepair.inference.engine import local
    from onepair.inference.prediction import load, require_writer, skipped_file
    from onepair.remote import as_path
    from onepair.runs.finished import protect_inputs

    given = list(map(as_path, images))
    if out is not None:
        require_writer(out)
        for file in (out, skipped_file(out)):
            protect_inputs(file, run=model, others=[model, *images])
    for path in images:
        if not in_tar(chosen(path)[0]).exists():
            raise DataError(f"{path}: cannot be read, there is no such file or folder")
    loaded = load(model)
    if loaded.preprocessing is not None:
        loaded = replace(loaded, engines=executor(loaded.engines))
    elif executor is not local:
        raise UserError(f"{model}: takes {plural(loaded.noun)}, and --engine ray is for images; leave it out")
    if out is None:
        _print_predictions(loaded, given, alone, strict)
        return
    written = _write_predictions(loaded, given, out, alone, strict)
    typer.echo(f"{counted(written.predicted, loaded.noun)} predicted, in {out}", err=True)
    typer.echo(_by_rule(loaded), err=True)
    if written.unreadable:
        sentence = _could_not_be_read(written.unreadable, loaded.noun)
        typer.echo(f"{sentence}; they are in {skipped_file(out)}", err=True)


def _print_predictions(model: "Model", given: list[Path], alone: bool | None, strict: bool) -> None:
    from onepair.data.label_table import announce
    from onepair.inference.prediction import CsvWriter, stream_predictions

    unreadable: list[str] = []

    def say(sentence: str) -> None:
        unreadable.append(sentence)
        typer.echo(sentence, err=True)

    writer = CsvWriter(sys.stdout.buffer, model.classes, predicted_only=alone)
    stream_predictions(model, model.each(given), writer, report=announce(say, strict=strict))
    sys.stdout.flush()  # or a full disk would be told of by the interpreter
    typer.echo(_by_rule(model), err=True)
    if unreadable:
        typer.echo(_could_not_be_read(len(unreadable), model.noun), err=True)


def _write_predictions(model: "Model", given: list[Path], out: Path, alone: bool | None, strict: bool) -> "Written":
    """Write the predictions, with a bar on a terminal; nobody knows beforehand how many there will be."""
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from onepair.data.label_table import announce
    from onepair.training.callbacks import error_console

    console = error_console()
    words = f"{{task.completed:,}} {plural(model.noun)} predicted"
    columns = (SpinnerColumn(), TextColumn(words), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None)

        def say(sentence: object) -> None:
            console.print(str(sentence), markup=False, soft_wrap=True)

        return model.write(
            given,
            out,
            predicted_only=alone,
            report=announce(say, strict=strict),
            on_progress=lambda done: bar.update(task, completed=done),
        )


def _by_rule(model: "Model") -> str:
    return f"labels by thresholds for {model.decisions.rule}; onepair decide chooses others"


def _could_not_be_read(count: int, noun: str) -> str:
    return f"{counted(count, noun)} could not be read"


@on_interrupt(NOTHING)
def export(
    run: FinishedRunFolder,
    out: Annotated[Path | None, typer.Option(help="The .onnx file; by default model.onnx in the run's folder.")] = None,
    float_input: Annotated[
        bool, typer.Option("--float-input", help="Take normalised float32 images instead of uint8 pixels.")
    ] = False,
    int8: Annotated[bool, typer.Option("--int8", help="Keep the weights in 8 bits: a quarter of the size.")] = False,
    calibrate: Annotated[
        Path | None,
        typer.Option(
            help="With --int8, some dozens of photos: compute in 8 bits too; by default only weights are in 8 bits."
        ),
    ] = None,
) -> None:
    """Write a run's model as an ONNX file, to be used without torch.

    It takes scaled images, and gives logits, calibrated probabilities and labels. It is compared with torch before it
    is written.
    """
    require_extra("onnx")
    from onepair.inference.model_files import read_description

    described = read_description(run)  # or a sentence that there is no model, before torch is imported

    from onepair.inference.prediction import load
    from onepair.runs.finished import protect_inputs

    protect_inputs(out, run=run)
    file = out or run / "model.onnx"
    quantize: Literal["int8"] | None = "int8" if int8 else None
    exported = load(run).export(file, float_input=float_input, quantize=quantize, calibration=calibrate)
    typer.echo(f"{file}: {exported.size / 1e6:,.1f} MB")
    for title, tensors in (("in", exported.inputs), ("out", exported.outputs)):
        for tensor in tensors:
            typer.echo(f"  {title:<3}  {tensor}")
    typer.echo(f"its logits differ from torch's by at most {exported.difference:.1g}")
    if exported.quantised is not None:
        images, speed, before, agreement = exported.quantised
        typer.echo(
            f"in 8 bits: {100 * agreement:.1f} % of labels as before, on {counted(images, 'image')}; "
            f"{speed:,.0f} a second, before {before:,.0f}"
        )
    inputs = "images/" if described.width is None else "vectors.npy"
    typer.echo(f"use it: {command('predict', file, inputs)}")


@on_interrupt(NOTHING)
def explain(
    run: FinishedRunFolder,
    images: Annotated[list[str], typer.Argument(help="Images: files, or row numbers of the run's dataset, from 0.")],
    labels: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Which labels, for example dog,person; by default the predicted ones."),
    ] = None,
    out: Annotated[Path, typer.Option(help="The picture to write, a .png file.")] = Path("explanation.png"),
) -> None:
    """Show where in images the model sees its labels.

    Writes a picture: each image, and beside it a heat map for every predicted label, or for those asked for, with its
    probability and what the run's dataset says of it.
    """
    require_extra("report")
    from onepair.runs.finished import protect_inputs

    if out.suffix.lower() != ".png":
        raise UserError(f"{out}: the picture is written as .png; name it so")
    opened = open_run(run)
    protect_inputs(out, run=run, others=images)
    explained = opened.explain(images, labels=[name.strip() for name in labels.split(",")] if labels else [])
    if explained.note:
        typer.echo(f"the dataset's labels are not shown: {explained.note}", err=True)
    explained.write(out)
    seen = counted(sum(len(each.sightings) for each in explained), "label")
    typer.echo(f"{seen} in {counted(len(images), 'image')}, in {out}", err=True)
