"""`onepair evaluate`: how good a run's model is."""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from onepair.data.labeltable import LabelTable
    from onepair.data.table import Unlisted
    from onepair.labels import Indices
    from onepair.probability.evaluation import Evaluation
    from onepair.runs.finished import FinishedRun


def evaluate(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    data: Annotated[
        str | None, typer.Option(help="Another dataset with the same classes; by default the run's own.")
    ] = None,
    split: Annotated[Literal["train", "validation", "test"], typer.Option(help="Which of its images.")] = "test",
    format: Annotated[str, typer.Option(help="The other dataset's format; auto goes by the layout.")] = "auto",
    unlisted: Annotated[
        Literal["unknown", "negative"], typer.Option(help="What a class is that its lists of labels leave out.")
    ] = "unknown",
    folder: Annotated[
        Path | None, typer.Option(help="The folder that its file names are relative to, if not its own.")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Threads that read images.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Score a run's model: average precision by class, and precision, recall and F1 at its thresholds.

    Where the split was audited, by the images that have all of their labels.
    """
    import numpy as np

    from onepair.inference.scoring import score_images
    from onepair.probability.evaluation import evaluate as judge
    from onepair.runs.finished import FinishedRun

    opened = FinishedRun(run)
    if data is None:
        scores, labels, asked = opened.scores(split, workers=workers), opened.labels(split), opened.asked(split)
        judged = opened.judged(split)
    else:
        table, rows = _other_dataset(opened, data, split, format, unlisted, folder)
        scores = score_images(
            opened.classifier,
            table,
            rows,
            precision=opened.description.precision,
            workers=workers,
            report=lambda problem: typer.echo(f"left out: {problem}", err=True),
        )
        labels, asked = table.labels[rows], None if table.asked is None else table.asked[rows]
        judged = np.asarray(np.isfinite(scores).all(1))
    found = judge(
        scores[judged],
        labels[judged],
        opened.decisions,
        opened.classes,
        process=opened.config.data.process,
        asked=None if asked is None else asked[judged],
    )
    if as_json:
        typer.echo(json.dumps(found.to_dict(), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        _print(found)


def _other_dataset(
    run: "FinishedRun", data: str, split: str, format: str, unlisted: "Unlisted", folder: Path | None
) -> "tuple[LabelTable, Indices]":
    """Another dataset with the run's classes, and its rows of a split."""
    from onepair.data.problems import DataError
    from onepair.data.reading import read_dataset

    table = read_dataset(data, format=format, unlisted=unlisted, images=folder)
    if table.classes != run.classes:
        raise DataError(f"{data}: its classes are not those of the run, {', '.join(run.classes[:5])}, …")
    rows = table.rows(split)
    if len(rows) == 0:
        raise DataError(f"{data}: has no {split} images; choose others with --split")
    return table, rows


def _print(found: "Evaluation") -> None:
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from onepair.report.wording import NOTHING, points

    console = Console(highlight=False)
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("class")
    for title in ("AP", "precision", "recall", "F1"):
        table.add_column(title, justify="right")
    for name, figures in found.classes.items():
        table.add_row(escape(name), *map(points, figures))
    console.print(table)
    mean = NOTHING if math.isnan(found.map) else f"{100 * found.map:.2f}"
    console.print(f"mAP {mean} over {found.averaged_classes} classes, {found.images:,} images")
    console.print(
        f"all labels together: precision {points(found.precision)}, recall {points(found.recall)}, "
        f"F1 {points(found.f1)}"
    )
    ranking = NOTHING if math.isnan(found.ranking_loss) else f"{found.ranking_loss:.4f}"
    covered = NOTHING if math.isnan(found.coverage) else f"{found.coverage:.2f}"
    console.print(f"ranking loss {ranking}, coverage {covered} labels")
    if found.lacking:
        console.print(escape(found.lacking))
    if found.estimated is not None:
        shown = (
            f"{words} {points(each.value)} ({points(each.low)} to {points(each.high)})"
            for words, each in zip(("mAP", "precision", "recall", "F1"), found.estimated[1:5], strict=True)
        )
        console.print(f"estimated for all labels, {found.estimated.assumption}: {', '.join(shown)}")
