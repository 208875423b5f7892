"""`onepair evaluate`: how good a run's model is."""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from onepair.cli.figures import class_table, estimate_line
from onepair.cli.interruption import NOTHING, on_interrupt
from onepair.cli.reading import UNSAID, Features, Reading, Strict, reads_data
from onepair.errors import UserError
from onepair.words import counted, listed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from onepair.data.label_table import LabelTable
    from onepair.labels import Indices, Labels
    from onepair.metrics import Metric
    from onepair.probability.evaluation import Evaluation
    from onepair.probability.thresholds import Thresholds
    from onepair.runs.finished import FinishedRun
    from onepair.runs.task import Split


class Judged(NamedTuple):
    """What a model is judged by: N images, L classes."""

    scores: "NDArray[np.float32]"  # (N, L)
    labels: "Labels"  # (N, L)
    asked: "NDArray[np.bool_] | None"  # (N, L)
    decisions: "Thresholds"
    classes: tuple[str, ...]


@on_interrupt(NOTHING)
@reads_data
def evaluate(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    data: Annotated[
        str | None, typer.Option(help="Another dataset that has classes of the run; by default the run's own.")
    ] = None,
    split: Annotated[
        Literal["train", "validation", "test"],
        typer.Option(help="Which of its images; choose validation where it names no test images."),
    ] = "test",
    reading: Reading = UNSAID,
    features: Features = None,
    workers: Annotated[
        int | None, typer.Option(min=0, help="Threads that read images; by default one per core.")
    ] = None,
    strict: Strict = False,
    metric: Annotated[
        list[str] | None, typer.Option(help="One more metric by its name, of the known labels; may be repeated.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Score a run's model: average precision by class, and precision, recall and F1 at its thresholds.

    Where the split was audited, by the images that were drawn for it. Another dataset may have its classes in
    any order, lack some and have others: those that both have are judged. The options on how it is read go with it.
    """
    from onepair.probability.evaluation import evaluate as judge
    from onepair.runs.finished import FinishedRun

    opened = FinishedRun(run)
    chosen = {name: _metric(name) for name in metric or ()}
    if data is None:
        options = {"--features": features, "--strict": strict}
        if given := [*reading.given, *(option for option, value in options.items() if value)]:
            raise UserError(f"{given[0]} says how another dataset is read; name it with --data, or leave it out")
        found = _own(opened, split, workers)
    else:
        table = reading.noted_table(data, features=features, strict=strict)
        found = _other(opened, table, data, split, workers, strict)
    figures = judge(
        found.scores,
        found.labels,
        found.decisions,
        found.classes,
        process=opened.config.data.process,
        asked=found.asked,
    )
    others = {name: measure(found.scores, found.labels) for name, measure in chosen.items()}
    sampled = opened.sampled(split) if data is None else ""
    if as_json:
        told = figures.to_dict() | ({"sample": sampled} if sampled else {})
        told |= {"metrics": others} if others else {}
        typer.echo(json.dumps(told, indent=2, ensure_ascii=False, allow_nan=False))
    else:
        _print(figures)
        for name, value in others.items():
            typer.echo(f"{name} {value:.4f}")
        if sampled:
            typer.echo(f"these figures are {sampled}")


def _metric(name: str) -> "Metric":
    from onepair.metrics import METRICS
    from onepair.plugins import nearest

    if name not in METRICS:
        raise UserError(f"there is no metric {name!r}; {nearest(name, METRICS)}")
    return METRICS[name]


def _own(run: "FinishedRun", split: "Split", workers: int | None) -> Judged:
    """The run's own dataset."""
    rows, asked = run.judged(split), run.asked(split)
    scores = run.scores(split, workers=workers)
    return Judged(
        scores[rows], run.labels(split)[rows], None if asked is None else asked[rows], run.decisions, run.classes
    )


def _other(run: "FinishedRun", table: "LabelTable", data: str, split: str, workers: int | None, strict: bool) -> Judged:
    """Another dataset: of one split, the images that can be read and the classes that the run has too."""
    import numpy as np

    from onepair.data.problems import DataError, naming
    from onepair.label_matrix import too_many
    from onepair.runs.task import judged_places

    columns, places = _shared_classes(run, table, data)
    rows = table.rows(split)
    if len(rows) == 0:
        there = ", ".join(dict.fromkeys(table.split.tolist()))
        raise DataError(f"{data}: has no {split} images, but {there}; choose them with --split")

    if too_many(len(rows), len(run.classes)):
        some = rows[judged_places(len(rows), len(run.classes))]
        typer.echo(f"judged by a random sample of {len(some):,} of {counted(len(rows), f'{split} image')}", err=True)
        rows = some
    report = naming(lambda sentence: typer.echo(sentence, err=True), strict=strict)
    from onepair.inference.scoring import score_images

    precision = run.description.precision
    scores = score_images(run.classifier, table, rows, precision=precision, workers=workers, report=report)
    read = np.isfinite(scores).all(1)
    if not read.any():
        raise DataError(f"{data}: not one of its {counted(len(rows), f'{split} image')} can be read")
    rows, scores = rows[read], scores[read]
    return Judged(
        scores[:, columns],
        table.labels[np.ix_(rows, places)],
        None if table.asked is None else table.asked[np.ix_(rows, places)],
        run.decisions.of_classes(columns),
        tuple(run.classes[i] for i in columns),
    )


def _shared_classes(run: "FinishedRun", table: "LabelTable", data: str) -> "tuple[Indices, Indices]":
    """The classes that a run and a table share, as columns of the one and of the other; the rest is named."""
    import numpy as np

    from onepair.data.problems import DataError

    shared = [name for name in run.classes if name in table.classes]
    if not shared:
        raise DataError(
            f"{data}: has none of the run's classes; it has {listed(table.classes)}, the run {listed(run.classes)}"
        )
    alone = {
        "the run": [name for name in run.classes if name not in shared],
        data: [name for name in table.classes if name not in shared],
    }
    if told := [f"{who} alone has {listed(names)}" for who, names in alone.items() if names]:
        both = f"{counted(len(shared), 'class')} that both have, {listed(shared)}"
        typer.echo(f"judged by {both}; {', and '.join(told)}", err=True)
    return (
        np.array([run.classes.index(name) for name in shared]),
        np.array([table.classes.index(name) for name in shared]),
    )


def _print(found: "Evaluation") -> None:
    from rich.console import Console
    from rich.markup import escape

    from onepair.words import NOTHING, points

    console = Console(highlight=False, soft_wrap=True)
    table = class_table("AP", "precision", "recall", "F1")
    for name, figures in found.classes.items():
        table.add_row(escape(name), *map(points, figures))
    console.print(table)
    mean = NOTHING if math.isnan(found.map) else f"{100 * found.map:.2f}"
    console.print(f"mAP {mean} over {counted(found.averaged_classes, 'class')}, {counted(found.images, 'image')}")
    which = "all" if found.estimated is None else "known"
    console.print(
        f"{which} labels together: precision {points(found.precision)}, recall {points(found.recall)}, "
        f"F1 {points(found.f1)}"
    )
    ranking = NOTHING if math.isnan(found.ranking_loss) else f"{found.ranking_loss:.4f}"
    covered = NOTHING if math.isnan(found.coverage) else f"{found.coverage:.2f}"
    console.print(f"ranking loss {ranking}, coverage {covered} labels")
    if found.lacking:
        console.print(escape(found.lacking))
    if found.estimated is not None:
        console.print(escape(estimate_line(found.estimated)))
