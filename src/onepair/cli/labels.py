"""`onepair labels`: the labels of a run's dataset, completed by what people decided."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from onepair.cli.interruption import NOTHING, on_interrupt
from onepair.cli.reading import say_how_to_train
from onepair.words import command


@on_interrupt(NOTHING)
def labels(
    run: Annotated[Path, typer.Argument(help="The folder of a run that was reviewed, or one that holds such a run.")],
    out: Annotated[Path, typer.Option(help="The file to write: .csv or .parquet; .json with a --format.")],
    format: Annotated[
        Literal["auto", "csv", "parquet", "coco", "label-studio", "fiftyone"],
        typer.Option(help="auto goes by the suffix; fiftyone keeps positive labels only."),
    ] = "auto",
) -> None:
    """Write the labels as they are after a review: yes is 1, no is 0, and what nobody answered stays as it was.

    Audited images have all of their labels. A class that was added on the page is unknown where nobody answered it.

    The table has a column per class with 1, 0 or blank for unknown, and all images of the dataset with their split,
    named relative to it, or by their URLs: onepair train takes it as it stands, or with --folder. A list of labels
    cannot say no, and the layouts of VOC, COCO and others cannot say unknown, so labels that came as those become such
    a table too; its column asked names the classes that were answered. Who answered what, and when, goes to a file
    beside it, as completed_decisions.csv.
    """
    from onepair.review.answers import Store
    from onepair.review.completion import write_completed
    from onepair.review.queue import ReviewError, answers_file, open_run

    opened = open_run(run)
    answers = answers_file(opened)
    if not answers.exists() and opened.audit is None:
        raise ReviewError(f"{opened.path}: nobody has reviewed it yet; run {command('review', run)} first")
    store = Store(answers) if answers.exists() else None
    entries, added = (store.entries(), store.classes()) if store else ([], [])
    found = write_completed(opened, entries, out, added=added, format=format)
    typer.echo(
        f"labels confirmed: {found.confirmed:,}, rejected: {found.rejected:,}, corrected: {found.corrected:,}, "
        f"still unknown: {found.unknown:,}"
    )
    if found.foreign:
        typer.echo(f"left out, as the dataset does not have their image or class: {found.foreign:,}")
    typer.echo(f"the labels are in {out}, who decided and when in {found.decisions}")
    say_how_to_train(out, opened.table)
