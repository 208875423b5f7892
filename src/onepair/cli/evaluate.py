"""`onepair evaluate`: how good a run's model is."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from onepair.labels import Labels


def evaluate(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    data: Annotated[
        str | None, typer.Option(help="Another dataset with the same classes; by default the run's own.")
    ] = None,
    split: Annotated[Literal["train", "validation", "test"], typer.Option(help="Which of its images.")] = "test",
    format: Annotated[str, typer.Option(help="The dataset's format; auto goes by the layout.")] = "auto",
    workers: Annotated[int | None, typer.Option(help="Processes that read images.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Score a run's model: average precision by class, and precision, recall and F1 at its thresholds."""
    from onepair.decisions import Decisions
    from onepair.metrics import average_precision, coverage, mean_average_precision, precision_recall_f1, ranking_loss
    from onepair.models import read_description

    description = read_description(run)
    scores, labels = _scores(run, data, split, format, workers)
    predicted = Decisions.from_dict(description["decisions"]).labels(scores)
    by_class = precision_recall_f1(predicted, labels)
    overall = precision_recall_f1(predicted, labels, average="overall")
    mean_ap = mean_average_precision(scores, labels)
    found: dict[str, Any] = {
        "images": len(labels),
        "map": mean_ap.value,
        "averaged_classes": mean_ap.classes,
        **overall._asdict(),
        "ranking_loss": ranking_loss(scores, labels),
        "coverage": coverage(scores, labels),
        "classes": {
            name: dict(zip(("ap", "precision", "recall", "f1"), map(float, values), strict=True))
            for name, *values in zip(description["classes"], average_precision(scores, labels), *by_class, strict=True)
        },
    }
    if as_json:
        typer.echo(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        _print(found)


def _scores(
    run: Path, data: str | None, split: str, format: str, workers: int | None
) -> "tuple[NDArray[np.float32], Labels]":
    """The scores and the labels to judge them by: those kept by the run where they are what is asked for."""
    from onepair.data.problems import DataError
    from onepair.data.reading import read_dataset
    from onepair.models import load_classifier
    from onepair.training.folder import RunFolder
    from onepair.training.prediction import score_images
    from onepair.training.task import prepare_task

    folder = RunFolder(run)
    if data is None and split != "train":
        task = prepare_task(folder.config().data)
        rows = task.test if split == "test" else task.validation
        if len(rows) == 0:
            raise DataError(f"{run}: its dataset has no {split} images")
        return folder.scores(split), task.table.labels[rows]
    table = read_dataset(data or folder.config().data.source, format=format)
    classifier, _ = load_classifier(run)
    if table.classes != classifier.classes:
        raise DataError(f"{data}: its classes are not those of the run, {', '.join(classifier.classes[:5])}, …")
    rows = table.rows(split)
    if len(rows) == 0:
        raise DataError(f"{data}: has no {split} images; choose others with --split")
    return score_images(classifier, table, rows, workers=workers), table.labels[rows]


def _print(found: dict[str, Any]) -> None:
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(highlight=False)
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("class")
    for title in ("AP", "precision", "recall", "F1"):
        table.add_column(title, justify="right")
    for name, values in found["classes"].items():
        table.add_row(escape(name), *(f"{100 * value:.1f}" for value in values.values()))
    console.print(table)
    console.print(f"mAP {100 * found['map']:.2f} over {found['averaged_classes']} classes, {found['images']:,} images")
    console.print(
        f"all labels together: precision {100 * found['precision']:.1f}, recall {100 * found['recall']:.1f}, "
        f"F1 {100 * found['f1']:.1f}"
    )
    console.print(f"ranking loss {found['ranking_loss']:.4f}, coverage {found['coverage']:.2f} labels")
