"""`onepair predict`: the labels of any images."""

import csv
import io
import json
from pathlib import Path
from typing import Annotated, Any

import typer


def predict(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    images: Annotated[list[Path], typer.Argument(help="Images, or folders of them.")],
    out: Annotated[Path | None, typer.Option(help="A .csv or .json file; by default CSV goes to the screen.")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes that read images.")] = None,
) -> None:
    """Predict labels: for each image the labels above their thresholds, and the probability of every class."""
    import numpy as np

    from onepair.errors import UserError
    from onepair.files import write_atomically
    from onepair.models import load_classifier
    from onepair.training.prediction import score_images, table_of_files

    if out is not None and out.suffix not in (".csv", ".json"):
        raise UserError(f"{out}: predictions are written as .csv or .json")
    classifier, thresholds = load_classifier(run)
    table = table_of_files(images, classifier.classes)
    scores = score_images(classifier, table, np.arange(len(table)), workers=workers)
    probabilities = 1 / (1 + np.exp(-scores.astype(np.float64)))
    predictions = [
        {
            "file": file,
            "labels": [name for name, chosen in zip(classifier.classes, row >= thresholds, strict=True) if chosen],
            "probabilities": dict(zip(classifier.classes, map(float, shares.round(6)), strict=True)),
        }
        for file, row, shares in zip(table.files, scores, probabilities, strict=True)
    ]
    text = _as_csv(predictions) if out is None or out.suffix == ".csv" else json.dumps(predictions, indent=2)
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_atomically(out, text.encode())
        typer.echo(f"{len(predictions):,} images predicted, in {out}", err=True)


def _as_csv(predictions: list[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["file", "labels", *predictions[0]["probabilities"]])
    for each in predictions:
        writer.writerow([each["file"], ";".join(each["labels"]), *each["probabilities"].values()])
    return text.getvalue()
