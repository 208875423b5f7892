"""`onepair find`, `review`, `labels`, `answers`, `audit`: missing and wrong labels, and what people say of them."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from onepair.cli.console import NOTHING, make_table, on_interrupt
from onepair.cli.options import (
    Accelerator,
    Address,
    Cache,
    CurrentRun,
    Devices,
    Engine,
    FollowLinks,
    Host,
    Port,
    Reviewer,
    Workers,
    computed,
    newest_run,
    number_or_auto,
    open_run,
    say_how_to_train,
    say_where_images_are,
)
from onepair.errors import require_extra
from onepair.words import NUMBERS, command, counted, itemised, listed

if TYPE_CHECKING:
    from onepair.finding.suggestions import Finding
    from onepair.review.server import Page
    from onepair.runs.audit import AuditSummary
    from onepair.workflow import Run


SHOWN_CLASSES = 40  # classes in the table, those that miss most; the json has them all


@on_interrupt("the models that are trained are kept; the same command goes on")
def find(
    run: CurrentRun = None,
    folds: Annotated[
        int | None,
        typer.Option(
            min=2,
            help="Cross-validation folds of a fine-tuned network; on fixed features a run has its own.",
            show_default="5",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Also write the suggestions to this .csv or .parquet file."),
    ] = None,
    top: Annotated[
        int | None,
        typer.Option(min=1, help="Keep at most this many suggestions, the most probable; by default 100,000."),
    ] = None,
    min_probability: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="Keep suggestions of at least this probability.",
            show_default="0.3 for missing labels, 0.05 for wrong ones",
        ),
    ] = None,
    maps: Annotated[bool, typer.Option("--maps/--no-maps", help="Compute a heat map for every suggestion.")] = True,
    devices: Devices = "auto",
    accelerator: Accelerator = "auto",
    workers: Workers = None,
    cache: Cache = None,
    engine: Engine = "auto",
    address: Address = None,
) -> int:
    """Find labels that are probably missing, and observed ones that are probably wrong.

    Scores are out-of-fold: no image is scored by a model that was fitted to it. On fixed features a run has such
    scores already; a fine-tuned network is trained once more for each fold. Run the same command again to resume.
    """
    from onepair.runs.finished import protect_inputs
    from onepair.runs.folder import RunFolder

    run = newest_run(run)
    place = computed(engine, address)
    RunFolder(run).results()  # or a sentence that there is no finished run, before torch is imported
    protect_inputs(out, run=run)

    from onepair.files import cache_folder
    from onepair.finding.suggestions import require_writable
    from onepair.training.callbacks import ProgressCallback
    from onepair.training.hardware import Hardware

    if out is not None:
        require_writable(out)
    with ProgressCallback(short_epochs=False) as progress, place as executor:
        hardware = Hardware(
            accelerator=accelerator,
            devices=number_or_auto(devices),
            workers=workers,
            cache=cache or cache_folder(),
            executor=executor,
        )
        found = open_run(run, hardware).find(
            folds=folds, top=top, min_probability=min_probability, maps=maps, callbacks=[progress], progress=False
        )
    if out is not None:
        found.write(out)
    print_finding(found.finding)
    if len(found):
        file = out or run / "finding" / "suggestions.csv"
        typer.echo(f"they are in {file}; to confirm them: {command('review', run)}")
    return len(found)


def print_finding(found: "Finding") -> None:
    """What was found, class by class."""
    from rich.console import Console
    from rich.markup import escape

    from onepair.finding.suggestions import LIKELY

    console = Console(highlight=False)
    table = make_table("class", ">observed", ">missing", ">share", ">threshold", ">reach it")
    classes = sorted(found.classes, key=lambda each: -each.missing)
    for each in classes[:SHOWN_CLASSES]:
        table.add_row(
            escape(each.name),
            f"{each.observed:,}",
            each.interval.in_words,
            "" if each.interval.is_wide else f"{100 * each.prior:.1f} %",
            f"{each.threshold:.2f}" if each.suggested else "–",
            f"{each.suggested:,}",
        )
    console.print(table)
    if len(classes) > SHOWN_CLASSES:
        console.print(f"… and {len(classes) - SHOWN_CLASSES:,} more, in summary.json")
    observed, kinds = sum(each.observed for each in classes), found.suggestions.kind
    beside = f"{counted(observed, 'observed positive')} in {counted(len(found.files), 'image')}"
    if any(each.unknown for each in classes):
        count = f"{found.basis} ({NUMBERS}), {found.missing.are_missing}"
    else:
        count = "none can be missing: all labels are known"
    console.print(f"beside {beside}, {count}", soft_wrap=True)
    missing, wrong = (int((kinds == kind).sum()) for kind in ("missing", "wrong"))
    likely = int((found.suggestions.probability >= LIKELY).sum())
    first = f"; more likely right than not, and first, {'is' if likely == 1 else 'are'} {likely:,}" if likely else ""
    console.print(f"{counted(missing, 'suggestion')} of missing labels, {wrong:,} of wrong ones{first}", soft_wrap=True)
    if missing:
        console.print(found.are_right, soft_wrap=True)


def review(
    run: CurrentRun = None,
    port: Port = 8765,
    host: Host = "127.0.0.1",
    name: Reviewer = None,
    follow_links: FollowLinks = False,
    browse: Annotated[bool, typer.Option("--open", help="Open the page in your browser, if there is one.")] = False,
) -> None:
    """Review suggestions on a page in the browser: yes, no, next.

    Every answer is stored at once, in the project, or in finding/review.sqlite of a run without one; stop and resume
    whenever you like. Then onepair labels writes the completed labels.
    """
    require_extra("review")
    from onepair.review.queue import folder_to_review

    run = newest_run(run)
    page = open_run(folder_to_review(run)).review(port=port, host=host, name=name, follow_links=follow_links)
    total = page.session.total
    serve_page(page, f"{counted(total, 'suggestion')}, {total - page.left:,} answered", browse=browse)
    writes = command("labels", run, "--out", "completed.csv")
    typer.echo(f"\n{total - page.left:,} of {total:,} answered; {writes} writes the labels")


def serve_page(page: "Page", words: str, *, browse: bool = False) -> None:
    """Say where a review or an audit is served, until Ctrl-C."""
    typer.echo(words)
    typer.echo(f"Open {page.url} in a browser. Ctrl-C ends; every answer is stored at once.")
    if browse and has_screen():
        import webbrowser

        webbrowser.open(page.url)
    page.wait()


def has_screen() -> bool:
    """Whether a browser would open in a window: in a terminal, or over a bare connection, it would be in the way."""
    windows = sys.platform in ("darwin", "win32") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
    return windows and sys.stdout.isatty()


@on_interrupt(NOTHING)
def labels(
    out: Annotated[
        Path,
        typer.Option(
            help="The file to write: named as your table, .csv or .parquet; .json with --as, a folder for keywords."
        ),
    ],
    form: Annotated[
        Literal["auto", "same", "csv", "parquet", "coco", "label-studio", "fiftyone", "xmp", "jpeg", "in-place"],
        typer.Option(
            "--as",
            metavar="FORM",
            help="same: your own table with what was answered; csv and parquet: a table of all labels with a column "
            "per class; auto: same if the file ends as your table does, else by the suffix; coco, label-studio and "
            "fiftyone: for those programs, the last with positive labels only; xmp: keywords in .xmp files, named as "
            "your photos; jpeg: copies of photos with keywords; in-place: keywords in the photos themselves, which go "
            "to --out as they were.",
        ),
    ] = "auto",
    run: CurrentRun = None,
) -> None:
    """Write the labels as they are after a review: yes is 1, no is 0, and what nobody answered stays as it was.

    Audited images have all of their labels. A class that was added on the page is unknown where nobody answered it.

    Labels that came as a table go back in its own form: columns, order, file names, separators and encoding stay, and
    nothing changes but what was answered. A list of labels cannot say no; --as csv writes a table that can.

    That table has a column per class with 1, 0 or blank for unknown, and all images of the dataset with their split,
    named relative to it, or by their URLs: onepair train takes it as it stands, or with --folder. The layouts of VOC,
    COCO and others cannot say unknown, so labels that came as those become such a table, too; its column asked names
    the classes that were answered. Who answered what, and when, goes to a file beside it, for example
    completed_decisions.csv.
    """
    from onepair.review.queue import folder_to_review
    from onepair.runs.finished import protect_inputs

    run = folder_to_review(newest_run(run))
    if form in ("xmp", "jpeg", "in-place"):
        written = open_run(run).write_keywords(out, form=form)
        what = "what was before" if form == "in-place" else "keywords"
        typer.echo(f"{out}: {what} of {counted(written.changed, 'photo')}; {written.same:,} say all of it already")
        if written.left_out:
            typer.echo(itemised(f"{len(written.left_out):,} left out:", written.left_out, rest="mend them"), err=True)
        return
    protect_inputs(out, run=run)
    opened = open_run(run)
    found = opened.write_labels(out, form=form)
    typer.echo(
        f"labels confirmed: {found.confirmed:,}, rejected: {found.rejected:,}, corrected: {found.corrected:,}, "
        f"still unknown: {found.unknown:,}"
    )
    if found.foreign:
        typer.echo(f"left out, as the dataset does not have their image or class: {found.foreign:,}")
    if found.unsaid:
        full = command("labels", run, "--out", out.with_name(f"{out.stem}_all.csv"), "--as", "csv")
        typer.echo(f"a list cannot say no, so that {found.unsaid:,} of the rejected are not in it; {full} writes them")
    typer.echo(f"the labels are in {out}, who decided and when in {found.decisions}")
    if found.form == "same":
        say_where_images_are(out, found.source, opened.data.table)
    else:
        say_how_to_train(out, opened.data.table)


@on_interrupt("what was saved is kept; the same command goes on")
def retrain(context: typer.Context, run: CurrentRun = None) -> None:
    """Train again with what people answered, and find what is still missing; the new run is beside the old one.

    It does by one command what labels, train and find do, and names them. Run the same command again to resume.
    """
    from onepair.review.image_answers import open_answers
    from onepair.review.queue import open_run
    from onepair.review.retraining import Retraining

    opened = open_run(newest_run(run))
    for each in Retraining(opened, open_answers(opened)).remaining():
        typer.secho(f"\n$ {each.text}", bold=True, err=True)
        context.find_root().command.main(each.words, prog_name="onepair", standalone_mode=False)


@on_interrupt("every answer that was stored is kept; the same command goes on")
def audit(
    run: CurrentRun = None,
    images: Annotated[
        int, typer.Option(min=1, help="How many images to audit; more than before extends the sample.")
    ] = 100,
    split: Annotated[Literal["validation", "test"], typer.Option(help="Which images to draw from.")] = "validation",
    seed: Annotated[int, typer.Option(min=0, help="The random seed of the sample.")] = 0,
    sheet: Annotated[Path | None, typer.Option(help="Write the images as a .csv or .parquet table to fill in.")] = None,
    answers: Annotated[Path | None, typer.Option(help="Import the answers of such a table, filled in.")] = None,
    summary: Annotated[bool, typer.Option("--summary", help="Print what the audited images tell, and exit.")] = False,
    port: Port = 8765,
    host: Host = "127.0.0.1",
    name: Reviewer = None,
    follow_links: FollowLinks = False,
) -> None:
    """Complete all labels of some images, drawn at random with equal chances, on a page in the browser.

    They tell how many labels are missing and how good the model is, with confidence intervals; decide, find and
    evaluate use them from then on. Every image is stored at once, in audit/ of the run's folder; stop and resume
    whenever you like.
    """
    if sheet is None and answers is None and not summary:  # then it is a page
        require_extra("review")
    opened = open_run(run)
    if not summary:
        session = opened.audit(images, split=split, seed=seed)
        if sheet is not None:
            session.write_sheet(sheet)
            typer.echo(f"{sheet} has {counted(len(session), 'image')}: write 1 or 0 where it is blank, then")
            typer.echo(command("audit", opened.path, "--answers", sheet))
            return
        if answers is not None:
            if blank := session.take_sheet(answers, who=name):
                more = f" and {len(blank) - 10:,} more" if len(blank) > 10 else ""
                typer.echo(f"left out, as they have blanks: {', '.join(blank[:10])}{more}")
            typer.echo(f"complete: {len(session) - session.left:,} of {counted(len(session), 'image')}")
        else:
            page = session.serve(port=port, host=host, name=name, follow_links=follow_links)
            serve_page(page, f"{counted(len(session), 'image')}, {len(session) - session.left:,} complete")
            session.refresh()
    if summary or opened.audited:
        audited = opened.audit_summary()
        print_summary(audited)
        these = (("decide", opened.path), ("find", opened.path), ("evaluate", opened.path, "--split", audited.split))
        typer.echo(f"they count from now on: {', '.join(command(*words) for words in these)}")


def print_summary(summary: "AuditSummary") -> None:
    """What audited images tell, class by class and in all."""
    from rich.console import Console
    from rich.markup import escape

    from onepair.words import points

    console = Console(highlight=False, soft_wrap=True)
    table = make_table("class", ">missing")
    classes = sorted(summary.classes.items(), key=lambda each: -each[1].value)
    for name, missing in classes[:SHOWN_CLASSES]:
        table.add_row(escape(name), missing.in_words)
    console.print(table)
    if len(classes) > SHOWN_CLASSES:
        console.print(f"… and {len(classes) - SHOWN_CLASSES:,} more")
    console.print(
        f"audited: {summary.images:,} of {counted(summary.population, f'{summary.split} image')}, "
        f"{summary.found:,} missing labels found, {summary.denied:,} denied; "
        f"beside {counted(summary.observed, 'positive')} {summary.missing.are_missing}"
    )
    if summary.figures is not None:
        figures = zip(("mAP", "precision", "recall", "F1"), summary.figures, strict=True)
        console.print(
            f"the model on {counted(summary.images, 'audited image')}: "
            + ", ".join(
                f"{name} {points(each.value)} ({points(each.low)} to {points(each.high)})" for name, each in figures
            )
        )
    if summary.more:
        console.print(f"intervals are of 95 %; {counted(summary.more, 'further image')} would halve them")
    else:
        console.print("all images are audited, so what is missing is counted, not estimated")


ProjectFolder = Annotated[
    Path | None,
    typer.Option("--project", help="The folder of the project; by default that of the current folder."),
]


def _run_of(project: Path | None) -> "Run":
    from onepair.runs.project import project_here
    from onepair.workflow import Run

    return Run(project_here(project or Path()).newest_run())


@on_interrupt(NOTHING)
def export_answers(
    out: Annotated[Path, typer.Argument(metavar="FILE", help="The .csv file to make.")],
    project: ProjectFolder = None,
) -> None:
    """Write all answers of a project as a table: file, label, answer, who, when, and what the image is known by."""
    typer.echo(f"{counted(_run_of(project).write_answers(out), 'answer')} in {out}")


@on_interrupt(NOTHING)
def import_answers(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="A .csv or .xlsx file with file, label and answer.")],
    project: ProjectFolder = None,
    name: Reviewer = None,
) -> None:
    """Take the answers of a table into a project: yes, no, or not sure.

    Images are known by what their files hold if the table has a column image, else by their names. Where two answers
    differ, the later one counts; all that differ are listed. The same file a second time changes nothing.
    """
    merged = _run_of(project).take_answers(source, who=name)
    for conflict in merged.conflicts:
        typer.echo(f"differs: {conflict}")
    typer.echo(f"{counted(merged.added, 'answer')} taken in, {merged.known:,} known already")
    if merged.unplaced:
        names = listed(list(dict.fromkeys(each.file for each in merged.unplaced)))
        typer.echo(f"left out, as no photo here has their names: {len(merged.unplaced):,} ({names})")
