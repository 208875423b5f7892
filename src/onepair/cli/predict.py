"""`onepair predict`: the labels of any images."""

import csv
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from onepair.inference.prediction import Model, Prediction


def predict(
    model: Annotated[Path, typer.Argument(help="The folder of a finished run, or an .onnx file of onepair export.")],
    images: Annotated[list[Path], typer.Argument(help="Images, or folders of them.")],
    out: Annotated[Path | None, typer.Option(help="A .csv or .json file; by default CSV goes to the screen.")] = None,
) -> None:
    """Predict labels: for each image the labels above their thresholds, and the probability of every class."""
    from onepair.errors import UserError
    from onepair.files import write_atomically, writing
    from onepair.inference.prediction import load

    if out is not None and out.suffix not in (".csv", ".json"):
        raise UserError(f"{out}: predictions are written as .csv or .json")
    predictions = _predict(load(model), images)
    text = _as_csv(predictions) if out is None or out.suffix == ".csv" else _as_json(predictions)
    if out is None:
        typer.echo(text, nl=False)
    else:
        with writing(out):
            write_atomically(out, text.encode())
        typer.echo(f"{len(predictions):,} images predicted, in {out}", err=True)


def _predict(model: "Model", images: list[Path]) -> "list[Prediction]":
    """The predictions, with a bar on a terminal."""
    from rich.progress import Progress

    from onepair.cli.progress import error_console

    console = error_console()
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("predicting", total=None)
        return model.predict(images, on_progress=lambda done, total: bar.update(task, completed=done, total=total))


def _as_csv(predictions: "list[Prediction]") -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["file", "labels", *predictions[0].probabilities])
    for each in predictions:
        writer.writerow([each.file, ";".join(each.labels), *_rounded(each).values()])
    return text.getvalue()


def _as_json(predictions: "list[Prediction]") -> str:
    rows = [{"file": each.file, "labels": each.labels, "probabilities": _rounded(each)} for each in predictions]
    return json.dumps(rows, indent=2)


def _rounded(prediction: "Prediction") -> dict[str, float]:
    return {name: round(probability, 6) for name, probability in prediction.probabilities.items()}
