"""`onepair explain`: where in an image a run's model sees its labels."""

from pathlib import Path
from typing import Annotated

import typer

from onepair.cli.interruption import NOTHING, on_interrupt
from onepair.errors import UserError, require_extra
from onepair.words import counted


@on_interrupt(NOTHING)
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
    require_extra("report")
    from onepair.files import write_atomically, writing
    from onepair.runs.finished import FinishedRun

    if out.suffix.lower() != ".png":
        raise UserError(f"{out}: the picture is written as .png; name it so")
    opened = FinishedRun(run)

    from onepair.report.explain_images import Explainer, is_row, render

    wanted = [name.strip() for name in labels.split(",")] if labels else []
    explainer = Explainer(opened, labels=wanted, needs_dataset=any(map(is_row, images)))
    if explainer.missing:
        typer.echo(f"the dataset's labels are not shown: {explainer.missing}", err=True)
    explained = [explainer.explain(image) for image in images]
    with writing(out):
        write_atomically(out, render(explained))
    seen = counted(sum(len(each.sightings) for each in explained), "label")
    typer.echo(f"{seen} in {counted(len(images), 'image')}, in {out}", err=True)
