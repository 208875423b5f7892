"""`onepair audit`: all labels of a few images that were drawn at random, by a person."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from onepair.cli.figures import class_table
from onepair.cli.interruption import on_interrupt
from onepair.errors import require_extra
from onepair.words import command, counted

if TYPE_CHECKING:
    from onepair.review.audit_session import AuditDesk
    from onepair.runs.audit_results import AuditSummary

SHOWN = 40  # classes in the table, those that miss most


@on_interrupt("every answer that was stored is kept; the same command goes on")
def audit(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    images: Annotated[int, typer.Option(min=1, help="How many images; more than before extends the sample.")] = 100,
    split: Annotated[Literal["validation", "test"], typer.Option(help="Which images to draw from.")] = "validation",
    seed: Annotated[int, typer.Option(min=0, help="Of the draw.")] = 0,
    sheet: Annotated[Path | None, typer.Option(help="Write the images as a .csv or .parquet table to fill in.")] = None,
    answers: Annotated[Path | None, typer.Option(help="Take the answers of such a table, filled in.")] = None,
    summary: Annotated[bool, typer.Option("--summary", help="Say what the audited images tell, and end.")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where to listen; 0 takes any port that is free.")] = 8765,
    host: Annotated[
        str,
        typer.Option(help="The address to listen on. Beyond this machine, the page asks for the token it prints."),
    ] = "127.0.0.1",
    name: Annotated[str | None, typer.Option(help="Who answers; by default the name you are logged in with.")] = None,
    follow_links: Annotated[
        bool, typer.Option("--follow-links", help="Show images that are links to outside of the dataset, too.")
    ] = False,
) -> None:
    """Complete all labels of some images, drawn at random with equal chances, on a page in the browser.

    They tell how many labels are missing and how good the model is, with intervals, and decide, find and evaluate use
    them from then on. Every image is stored at once, in audit/ of the run's folder; stop and go on whenever you like.
    """
    from contextlib import ExitStack

    from onepair.cli.review import login_name, serve_pages
    from onepair.files import locked, writing
    from onepair.review.audit_session import AuditDesk, open_store
    from onepair.runs.audit import audit_folder, draw, read_audit, write_sheet
    from onepair.runs.finished import FinishedRun

    if sheet is None and answers is None and not summary:  # then it is a page
        require_extra("review")
    opened = FinishedRun(run)
    if summary:
        _say_what_it_tells(run)
        return
    folder = audit_folder(opened)
    with ExitStack() as held:
        with writing(folder):
            folder.mkdir(exist_ok=True)
            held.enter_context(locked(folder / ".lock"))
        drawn = draw(opened, split, images, seed)
        if sheet is not None:
            write_sheet(opened, drawn, sheet)
            typer.echo(f"{sheet} has {counted(len(drawn.files), 'image')}: write 1 or 0 where it is blank, then")
            typer.echo(command("audit", run, "--answers", sheet))
            return
        desk = AuditDesk(opened, drawn, open_store(opened))
        if answers is not None:
            _take(desk, answers, name or login_name())
        else:
            from onepair.review.app import create_audit_app

            serve_pages(
                lambda pictures, who: create_audit_app(desk, pictures, name=who),
                table=desk.table,
                words=f"{counted(len(desk), 'image')}, {int(desk.complete.sum()):,} complete",
                port=port,
                host=host,
                name=name,
                follow_links=follow_links,
            )
            desk.refresh()
            desk.write()
    if read_audit(opened) is not None:
        _say_what_it_tells(run)


def _take(desk: "AuditDesk", answers: Path, who: str) -> None:
    blank = desk.take_sheet(answers, who=who)
    if blank:
        more = f" and {len(blank) - 10:,} more" if len(blank) > 10 else ""
        typer.echo(f"left out, as they have blanks: {', '.join(blank[:10])}{more}")
    typer.echo(f"complete: {int(desk.complete.sum()):,} of {counted(len(desk), 'image')}")


def _say_what_it_tells(run: Path) -> None:
    from onepair.runs.audit_results import summarise_audit
    from onepair.runs.finished import FinishedRun

    told = summarise_audit(FinishedRun(run))
    print_summary(told)
    these = (("decide", run), ("find", run), ("evaluate", run, "--split", told.split))
    typer.echo(f"they count from now on: {', '.join(command(*words) for words in these)}")


def print_summary(told: "AuditSummary") -> None:
    """What audited images tell, class by class and in all."""
    from rich.console import Console
    from rich.markup import escape

    from onepair.words import points

    console = Console(highlight=False, soft_wrap=True)
    table = class_table("missing", "between")
    classes = sorted(told.classes.items(), key=lambda each: -each[1].value)
    for name, missing in classes[:SHOWN]:
        table.add_row(escape(name), f"{missing.value:,.0f}", f"{missing.low:,.0f} to {missing.high:,.0f}")
    console.print(table)
    if len(classes) > SHOWN:
        console.print(f"… and {len(classes) - SHOWN:,} more")
    value, low, high = told.missing
    console.print(
        f"audited: {told.images:,} of {counted(told.population, f'{told.split} image')}; beside "
        f"{counted(told.observed, 'positive')} "
        f"about {value:,.0f} are missing ({low:,.0f} to {high:,.0f}): {told.found:,} were found, {told.denied:,} denied"
    )
    if told.figures is not None:
        figures = zip(("mAP", "precision", "recall", "F1"), told.figures, strict=True)
        console.print(
            f"the model on {counted(told.images, 'audited image')}: "
            + ", ".join(
                f"{name} {points(each.value)} ({points(each.low)} to {points(each.high)})" for name, each in figures
            )
        )
    if told.more:
        console.print(f"intervals are of 95 %; {counted(told.more, 'further image')} would halve them")
    else:
        console.print("all images are audited, so what is missing is counted, not estimated")
