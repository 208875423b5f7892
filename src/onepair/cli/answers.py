"""`onepair answers`: what people answered, as a file for another machine, and from one."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onepair.cli.console import NOTHING, on_interrupt
from onepair.cli.options import Reviewer
from onepair.errors import UserError
from onepair.words import counted, listed

if TYPE_CHECKING:
    from onepair.review.image_answers import ImageAnswers
    from onepair.runs.project import Project

Folder = Annotated[
    Path | None,
    typer.Option("--project", help="The folder of the project; by default that of the current folder."),
]


def _opened(folder: Path | None) -> "tuple[Project, ImageAnswers]":
    from onepair.review.image_answers import project_answers
    from onepair.runs.project import project_here

    project = project_here(folder or Path())
    return project, project_answers(project)


@on_interrupt(NOTHING)
def export(
    out: Annotated[Path, typer.Argument(metavar="FILE", help="The .csv file to make.")],
    project: Folder = None,
) -> None:
    """Write all answers of a project as a table: file, label, answer, who, when, and what the image is known by."""
    from onepair.review.image_answers import export_answers
    from onepair.runs.finished import protect_inputs

    found, store = _opened(project)
    if out.suffix.lower() != ".csv":
        raise UserError(f"{out}: answers are written as .csv; name it so")
    protect_inputs(out, run=found.newest_run())
    typer.echo(f"{counted(export_answers(store, out), 'answer')} in {out}")


@on_interrupt(NOTHING)
def import_(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="A .csv or .xlsx file with file, label and answer.")],
    project: Folder = None,
    name: Reviewer = None,
) -> None:
    """Take the answers of a table into a project: yes, no, or not sure.

    Images are known by what their files hold if the table has a column image, else by their names. Where two answers
    differ, the later one counts; all that differ are listed. The same file a second time changes nothing.
    """
    from onepair.review.answers import login_name
    from onepair.review.image_answers import import_answers

    _, store = _opened(project)
    merged = import_answers(store, source, who=name or login_name())
    for conflict in merged.conflicts:
        typer.echo(f"differs: {conflict}")
    typer.echo(f"{counted(merged.added, 'answer')} taken in, {merged.known:,} known already")
    if merged.unplaced:
        names = listed(list(dict.fromkeys(each.file for each in merged.unplaced)))
        typer.echo(f"left out, as no photo here has their names: {len(merged.unplaced):,} ({names})")
