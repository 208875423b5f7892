"""`onepair decide`: from which score on a label is predicted, chosen anew without training."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from onepair.labels import Labels
    from onepair.probability.decisions import Decisions


def decide(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    rule: Annotated[
        Literal["f1", "precision", "count"],
        typer.Option(help="What to aim at: the best F1, a precision, or as many labels as there are."),
    ] = "f1",
    precision: Annotated[float, typer.Option(help="What rule precision keeps, in every class.")] = 0.9,
    calibration: Annotated[
        Literal["auto", "platt", "isotonic"],
        typer.Option(help="What makes scores probabilities: lines, rising curves, or whichever fits better."),
    ] = "auto",
) -> None:
    """Choose the thresholds and the calibration of a run anew.

    Training has chosen the best F1. What is chosen here, on the validation images too, is stored with the model, for
    evaluate, predict and export. Images that were audited have all of their labels, so after an audit these count.
    """
    from onepair.files import writing
    from onepair.probability import fit_decisions
    from onepair.runs.finished import FinishedRun

    opened = FinishedRun(run)
    scores, labels = opened.scores("validation"), opened.labels("validation")
    decisions = fit_decisions(scores, labels, calibration=calibration, rule=rule, precision=precision)
    with writing(run):
        opened.decide(decisions)
    judged = opened.judged("validation")
    _print(decisions, scores[judged], labels[judged], opened.classes)
    if opened.audit is not None and opened.audit.split == "validation":
        typer.echo(
            f"of {len(labels):,} validation images these are audited in full; calibration and thresholds use them"
        )


def _print(decisions: "Decisions", scores: "NDArray[np.float32]", labels: "Labels", classes: "Sequence[str]") -> None:
    import numpy as np
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from onepair.metrics import precision_recall_f1

    predicted = decisions.labels(scores)
    # The smallest probability that is predicted; thresholds are scores.
    least = np.where(predicted, decisions.probabilities(scores), np.inf).min(0)
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("class")
    for title in ("from probability", "predicted", "precision", "recall", "F1"):
        table.add_column(title, justify="right")
    for name, limit, number, *values in zip(
        classes, least, predicted.sum(0), *precision_recall_f1(predicted, labels), strict=True
    ):
        shares = ("–" if np.isnan(value) else f"{100 * value:.1f}" for value in values)
        table.add_row(escape(name), f"{limit:.2f}" if number else "never", f"{number:,}", *shares)
    console = Console(highlight=False)
    console.print(table)
    console.print(f"on the known labels of {len(labels):,} validation images, at thresholds for {decisions.rule}")
