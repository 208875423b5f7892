"""`onepair explain`: where in an image a run's model sees its labels."""

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onepair.errors import UserError

if TYPE_CHECKING:
    from onepair.data.labeltable import LabelTable
    from onepair.decisions import Decisions
    from onepair.finding.picture import Explained
    from onepair.models import Classifier
    from onepair.training.task import Task

MOST = 8  # predicted labels of an image that are shown, the most probable ones


def explain(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    images: Annotated[list[str], typer.Argument(help="Images: files, or row numbers of the run's dataset, from 0.")],
    labels: Annotated[
        str | None, typer.Option(help="Which labels, as dog,person; by default those that are predicted.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The picture to write, a .png file.")] = Path("explanation.png"),
) -> None:
    """Show where in images the model sees its labels.

    Writes a picture: each image, and beside it a heat map for every predicted label, or for those asked for, with its
    probability and what the run's dataset says of it.
    """
    from onepair.files import write_atomically
    from onepair.finding.picture import render
    from onepair.models import load_classifier
    from onepair.training.folder import writing

    if out.suffix.lower() != ".png":
        raise UserError(f"{out}: the picture is written as .png; name it so")
    classifier, decisions = load_classifier(run)
    wanted = [_column(name.strip(), classifier.classes) for name in labels.split(",")] if labels else []
    task = _read_task(run, classifier.classes, needed=any(map(_is_row, images)))
    places = [_locate(image, task, classifier.classes) for image in images]
    explained = [_explain(classifier, decisions, table, row, wanted, task) for table, row in places]
    with writing(out):
        write_atomically(out, render(explained))
    typer.echo(f"{sum(len(each.sightings) for each in explained)} labels in {len(images)} images, in {out}", err=True)


def _column(name: str, classes: Sequence[str]) -> int:
    if name not in classes:
        near = get_close_matches(name, classes, n=1)
        listed = ", ".join(classes[:5]) + (", …" if len(classes) > 5 else "")
        advice = f"did you mean {near[0]}?" if near else f"there are {listed}"
        raise UserError(f"the run has no label {name!r}; {advice}")
    return list(classes).index(name)


def _read_task(run: Path, classes: Sequence[str], *, needed: bool) -> "Task | None":
    """The run's dataset; where it is not at hand, an image is explained without it, unless it is an image of it."""
    from onepair.training.folder import RunFolder
    from onepair.training.task import prepare_task

    try:
        config = RunFolder(run).config().data
        task = prepare_task(config)
        if task.table.classes != tuple(classes):
            raise UserError(f"{config.source}: no longer has the classes of the run")
    except UserError as error:
        if needed:
            raise
        typer.echo(f"the dataset's labels are not shown: {error}", err=True)
        return None
    return task


def _is_row(image: str) -> bool:
    return image.isdecimal() and not Path(image).exists()


def _locate(image: str, task: "Task | None", classes: Sequence[str]) -> "tuple[LabelTable, int]":
    """An image as a row of the run's dataset, or else of a table of its own."""
    from onepair.training.prediction import table_of_files

    path = Path(image)
    if task and _is_row(image):
        if int(image) >= len(task.table):
            raise UserError(f"there is no row {image}; the run's dataset has rows 0 to {len(task.table) - 1}")
        return task.table, int(image)
    if task and task.table.pixels is None:
        for row, file in enumerate(task.table.files):
            if Path(file).name == path.name and task.table.path(row).resolve() == path.resolve():
                return task.table, row
    return table_of_files([path], classes), 0


def _explain(
    classifier: "Classifier",
    decisions: "Decisions",
    table: "LabelTable",
    row: int,
    wanted: Sequence[int],
    task: "Task | None",
) -> "Explained":
    """What the model sees in an image: the labels asked for, or those it predicts, or else the likeliest one."""
    import numpy as np

    from onepair.data.decoding import decode
    from onepair.finding.maps import suggestion_maps
    from onepair.finding.picture import Explained, Sighting
    from onepair.training.prediction import score_images

    scores = score_images(classifier, table, np.array([row]), workers=0)[0].astype(np.float64)
    predicted, probabilities = decisions.labels(scores), decisions.probabilities(scores[None])[0]
    likeliest = np.argsort(-scores, kind="stable")
    shown = np.array(wanted or likeliest[predicted[likeliest]][:MOST].tolist() or likeliest[:1])
    maps = suggestion_maps(classifier, table, np.full(len(shown), row), shown, workers=0)
    known, notes = _known(task, row) if task and table is task.table else ("", [""] * len(scores))
    return Explained(
        name=Path(table.files[row]).name,
        note=known,
        pixels=decode(table.path(row)) if table.pixels is None else table.pixels[row],
        sightings=[
            Sighting(
                label=classifier.classes[each],
                probability=float(probabilities[each]),
                note=" · ".join(filter(None, ["" if predicted[each] else "not predicted", notes[each]])),
                evidence=evidence,
            )
            for each, evidence in zip(shown.tolist(), maps, strict=True)
        ],
    )


def _known(task: "Task", row: int) -> tuple[str, list[str]]:
    """What the dataset says of an image, and of every label in it."""
    import numpy as np

    from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN

    labels = task.table.labels[row]
    words = {POSITIVE: "true", NEGATIVE: "labelled as absent", UNKNOWN: "unknown"}
    notes = [words[label] for label in labels.tolist()]
    split = "validation" if row in task.validation else str(task.table.split[row])
    if row in task.train:
        observed = task.observed[np.searchsorted(task.train, row)]
        for column in np.flatnonzero(labels == POSITIVE).tolist():
            notes[column] = "observed" if observed[column] == POSITIVE else "true, not observed"
    names = [task.table.classes[column] for column in np.flatnonzero(labels == POSITIVE)]
    return f"{split} · {', '.join(names) or 'no label'}", notes
