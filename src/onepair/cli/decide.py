"""`onepair decide`: from which score on a label is predicted, chosen anew without training."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from onepair.cli.figures import class_table, estimate_line
from onepair.cli.interruption import NOTHING, on_interrupt
from onepair.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from onepair.probability.evaluation import Evaluation
    from onepair.probability.thresholds import Thresholds


@on_interrupt(NOTHING)
def decide(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    rule: Annotated[
        Literal["f1", "precision", "count"],
        typer.Option(help="What to aim at: the best F1, a precision, or as many labels as there are."),
    ] = "f1",
    precision: Annotated[
        float | None, typer.Option(help="The precision that --rule precision keeps in every class.", show_default="0.9")
    ] = None,
    calibration: Annotated[
        Literal["auto", "platt", "isotonic"],
        typer.Option(help="What makes scores probabilities: lines, rising curves, or whichever fits better."),
    ] = "auto",
) -> None:
    """Choose the thresholds and the calibration of a run anew.

    Training has chosen the best F1. What is chosen here, by the validation images or by out-of-fold scores of the
    training images, is stored with the model, for evaluate, predict and export. Images that were audited have all of
    their labels, so after an audit these count.
    """
    from onepair.files import writing
    from onepair.probability import fit_decisions
    from onepair.probability.evaluation import evaluate as judge
    from onepair.runs.finished import FinishedRun
    from onepair.words import counted

    if precision is not None and rule != "precision":
        raise UserError(f"--precision belongs to --rule precision, and this is --rule {rule}; leave one of them out")
    opened = FinishedRun(run)
    sample, asked = opened.sample("validation"), opened.asked("validation")
    scores, labels = opened.scores("validation")[sample], opened.known[opened.rows("validation")[sample]]
    known_by: dict[str, Any] = {
        "process": opened.config.data.process,
        "asked": None if asked is None else asked[sample],
    }
    decisions = fit_decisions(
        scores,
        labels,
        calibration=calibration,
        rule=rule,
        precision=0.9 if precision is None else precision,
        **known_by,
    )
    with writing(run):
        opened.decide(decisions)
    rows = opened.judged("validation")[sample]
    known_by["asked"] = None if known_by["asked"] is None else known_by["asked"][rows]
    _print(decisions, scores[rows], judge(scores[rows], labels[rows], decisions, opened.classes, **known_by))
    if sampled := opened.sampled("validation"):
        typer.echo(f"calibration, thresholds and figures are {sampled}")
    if opened.audit is not None and opened.audit.split == "validation":
        images = counted(len(labels), "image")
        typer.echo(f"of {images} these are audited in full; calibration and thresholds use them")


def _print(decisions: "Thresholds", scores: "NDArray[np.float32]", found: "Evaluation") -> None:
    import numpy as np
    from rich.console import Console
    from rich.markup import escape

    from onepair.words import counted, points, roughly

    predicted = decisions.labels(scores)
    # The smallest probability that is predicted; thresholds are scores.
    least = np.where(predicted, decisions.probabilities(scores), np.inf).min(0)
    shown = found.classes if found.estimated is None else found.estimated.classes
    table = class_table("threshold", "predicted", "precision", "recall", "F1")
    for (name, figures), limit, number in zip(shown.items(), least, predicted.sum(0), strict=True):
        given = (figures.precision if number else math.nan, figures.recall, figures.f1)
        values = map(points, given) if found.estimated is None else map(roughly, given)
        table.add_row(escape(name), f"{limit:.2f}" if number else "never", f"{number:,}", *values)
    console = Console(highlight=False, soft_wrap=True)
    console.print(table)
    basis = "on the labels of" if found.estimated is None else f"≈ estimated, {found.estimated.assumption}, for"
    console.print(
        f"{basis} {counted(found.images, 'validation image')}, at thresholds for {decisions.rule}", markup=False
    )
    if found.estimated is not None:
        console.print(estimate_line(found.estimated), markup=False)
    pooled = [name for name, few in zip(shown, decisions.pooled, strict=False) if few]
    if pooled:
        console.print(f"with the threshold of all classes, for want of positives: {', '.join(pooled)}", markup=False)
