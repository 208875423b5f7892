"""`onepair start` and `onepair demo`: all steps by one command, on your data or on the embedded digits."""

import glob
import logging
import os
import shlex
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from onepair.cli.console import make_table
from onepair.cli.interruption import on_interrupt
from onepair.cli.options import (
    READ_DEFAULTS,
    Accelerator,
    Backbone,
    Devices,
    Features,
    Port,
    ReadOptions,
    RunOptions,
    number_or_auto,
    with_options,
)
from onepair.errors import require_extra
from onepair.remote import is_url
from onepair.words import command, counted

if TYPE_CHECKING:
    from onepair.report import RunSummary
    from onepair.runs.config import Config
    from onepair.runs.task import RunCache

_log = logging.getLogger(__name__)


METHOD = "opml-plus"


@on_interrupt("the same command goes on")
@with_options
def start(
    data: Annotated[str, typer.Argument(help="Your table of labels, or the folder of a dataset.")],
    backbone: Backbone = None,
    reading: ReadOptions = READ_DEFAULTS,
    features: Features = None,
    out: Annotated[
        Path | None, typer.Option(help="The project's folder; by default beside the table, named after it.")
    ] = None,
    new_photos: Annotated[
        bool | None,
        typer.Option(
            "--new-photos/--no-new-photos",
            help="Take in photos that the table lacks, as untagged; by default as the project did before.",
        ),
    ] = None,
    port: Port = 8765,
    restart: Annotated[
        bool, typer.Option("--restart", help="Move an existing project aside, with all answers, and start again.")
    ] = False,
    page: Annotated[bool, typer.Option("--page/--no-page", help="Open the page at the end.")] = True,
) -> None:
    """Check a dataset, train on it, find the labels that are missing, and open a page to confirm them.

    Answers and runs are kept in a project, for example labels.onepair beside labels.csv. Run the same command again to
    resume, also after the table or the photos have changed: answers stay, and count as known labels. Every step is a
    command of its own, which is printed.
    """
    require_extra("review")
    from onepair.cli.data import check
    from onepair.cli.finding import find, review
    from onepair.cli.training import complete_config, default_folder, train
    from onepair.files import locked, writing
    from onepair.runs.folder import RunFolder
    from onepair.runs.project import Project, project_folder
    from onepair.runs.task import RunCache, dataset_of

    given, shared = RunOptions(method=METHOD, mode="linear", backbone=backbone, features=features), RunCache()
    complete = complete_config("start", data, given, reading, shared)
    earlier = earlier_runs(out or default_folder(complete), data if out is None else None)
    project = Project(project_folder(str(out)) if earlier and out else out or project_folder(data))
    project.require_usable()
    record = project.record()
    words = [*reading.words, *(["--features", features] if features is not None else [])]

    _say("check", data, *words)
    try:
        check(data, **asdict(reading), features=features)
    except typer.Exit as end:
        if end.exit_code:
            fix = shlex.join(["onepair", "check", data, *words, "--fix", "clean.csv"])
            typer.echo(f"\nwhat cannot be used is left out; {fix} writes a table without it")

    from onepair.review.next_run import carry_audit, photos_without_rows, prepare_run, with_photos  # and torch

    table = dataset_of(complete.data, shared)
    more = photos_without_rows(table)
    wanted = new_photos if new_photos is not None else record is not None and record.new_photos and not restart
    if more:
        without = f"{counted(len(more), 'photo')} without a row in {data}"
        typer.echo(
            f"{without}, taken in as untagged" if wanted else f"{without}: --new-photos takes them in as untagged"
        )
    if restart and (aside := RunFolder(project.path).put_aside()):
        typer.echo(f"what was in {project.path} is in {aside} now")
    with writing(project.path):
        project.path.mkdir(parents=True, exist_ok=True)
    with locked(project.path / ".lock"):
        prepared = prepare_run(
            project,
            with_photos(table, more) if wanted else table,
            source=data,
            settings=settings_text(complete),
            new_photos=wanted,
            earlier=earlier,
        )
        if prepared.change is not None and str(prepared.change):
            typer.echo(f"since the last time: {prepared.change}")
        if prepared.answers:
            counts = "counts as a known label" if prepared.answers == 1 else "count as known labels"
            typer.echo(f"{counted(prepared.answers, 'answer')} of before {counts}")
        run, vectors = prepared.path, absolute(features)
        newest = project.newest_run() if RunFolder(run).finished else run
        suggested = 1
        if newest == run:
            network = complete.model.backbone
            options = {"folder": prepared.folder, "features": vectors}
            given_words = [word for name, value in options.items() if value for word in (f"--{name}", value)]
            words = ["--method", METHOD, "--mode", "linear", "--backbone", network, *given_words, "--out", str(run)]
            _say("train", prepared.source, *words)
            train(prepared.source, method=METHOD, mode="linear", backbone=network, out=run, **options)
            carry_audit(project, run)
            _say("find", run)
            suggested = find(run)
    if not suggested:
        typer.echo(f"there is nothing to confirm; to count what is missing on random images: {command('audit', run)}")
    elif page:
        _say("review", newest, "--port", port, "--open")
        review(newest, port=port, browse=True)


def earlier_runs(folder: Path, source: str | None) -> list[Path]:
    """The finished runs of no project at a folder, the one in it and those that were trained again beside it.

    Args:
        folder: of the first of them.
        source: the dataset that it must be of; None: any.
    """
    from onepair.runs.folder import RunFolder

    if not (folder / "config.toml").exists() or not RunFolder(folder).finished:
        return []
    if source is not None and Path(RunFolder(folder).config().data.source).resolve() != Path(source).resolve():
        return []
    others = sorted(each for each in folder.parent.glob(f"{glob.escape(folder.name)}-[0-9]*") if each.is_dir())
    return [*(each for each in reversed(others) if RunFolder(each).finished), folder]


def settings_text(config: "Config") -> str:
    """All that decides a run beside its dataset."""
    from onepair.runs.config import DataConfig, to_toml

    return to_toml(replace(config, data=DataConfig(features=absolute(config.data.features))))


def absolute(path: str | None) -> str | None:
    """A path that does not depend on the current folder."""
    return path if path is None or is_url(path) else os.path.abspath(path)  # noqa: PTH100 (no links)


def _say(*words: object) -> None:
    """Name the command that comes now."""
    typer.secho(f"\n$ {shlex.join(['onepair', *map(str, words)])}", bold=True, err=True)


FINDER, FOLDS = "opml-plus", 2  # the run that missing labels are found with
INTRODUCTION = """Scenes of one to five handwritten digits; the labels say which digits appear.

Every training scene keeps only one of its labels. Three methods learn from these single positives, and a fourth run is
given all labels, to show how far one could get."""


class DemoRun(NamedTuple):
    name: str
    title: str
    method: str
    observe: Literal["single-positive", "given"]

    @property
    def labels(self) -> str:
        return "full labels" if self.observe == "given" else "single positives"


RUNS = (
    DemoRun("bce", "BCE", "bce", "single-positive"),
    DemoRun("opml-sp", "OPML-SP", "opml-sp", "single-positive"),
    DemoRun("opml-plus", "OPML+", "opml-plus", "single-positive"),
    DemoRun("bce-full", "BCE", "bce", "given"),
)


@on_interrupt("the runs that are done are kept; the same command goes on")
def demo(
    out: Annotated[Path, typer.Option(help="The folder for the runs and the report.")] = Path("runs/demo"),
    epochs: Annotated[int, typer.Option(help="Epochs of each run.")] = 20,
    devices: Devices = "auto",
    accelerator: Accelerator = "auto",
) -> None:
    """Learn all labels from one, on data inside the package.

    Trains BCE, OPML-SP and OPML+ from single positives and BCE from full labels, prints how much of the gap between the
    two is closed, writes a report with charts, and finds the labels that are missing. Run the same command again to
    resume.
    """
    require_extra("report")
    from onepair.cli.finding import print_finding
    from onepair.finding.find import find_labels
    from onepair.runs.finished import FinishedRun
    from onepair.runs.folder import RunFolder
    from onepair.training.distributed import is_first
    from onepair.training.hardware import Hardware
    from onepair.training.progress import ProgressCallback
    from onepair.training.run import train

    hardware = Hardware(accelerator=accelerator, devices=number_or_auto(devices))
    with ProgressCallback(quiet=not is_first()) as progress:
        for each in RUNS:
            _log.info(f"\n{each.title} from {each.labels}")
            train(demo_config(each, epochs), RunFolder(out / each.name), hardware=hardware, callbacks=[progress])
    if is_first():
        _print_runs(_summaries(out, hardware.shared))
    with ProgressCallback(quiet=not is_first()) as progress:
        _log.info(f"\nWhich labels are missing? {FOLDS} models, each trained without the scenes it is asked about")
        finder = FinishedRun(out / FINDER, shared=hardware.shared)
        found = find_labels(finder, folds=FOLDS, hardware=hardware, callbacks=[progress])
    print_finding(found)
    _report(out, hardware.shared)
    typer.echo(f"To confirm them on a page: {command('review', out)}")


def _summaries(out: Path, shared: "RunCache") -> "list[RunSummary]":
    from onepair.report import RunSummary
    from onepair.runs.finished import FinishedRun

    runs = ((each, FinishedRun(out / each.name, shared=shared)) for each in RUNS)
    return [RunSummary.of(run, name=each.name, title=each.title, labels=each.labels) for each, run in runs]


def _report(out: Path, shared: "RunCache") -> None:
    """Tell on a page what came of the runs."""
    from onepair.report import write_report
    from onepair.report.explain_images import choose_examples
    from onepair.runs.finished import FinishedRun

    write_report(
        out / "report.html",
        _summaries(out, shared),
        title="Learning all labels from one",
        introduction=INTRODUCTION,
        ceiling="bce-full",
        examples=choose_examples(FinishedRun(out / RUNS[-1].name, shared=shared)),
    )
    typer.echo(f"The report with charts and examples is {out / 'report.html'}")


def demo_config(run: DemoRun, epochs: int) -> "Config":
    from onepair.runs.config import resolve_config
    from onepair.runs.presets import preset

    data = {"source": "digits", "format": "digits", "observe": run.observe}
    return resolve_config(preset("digits", run.method), {"data": data, "finetune": {"epochs": epochs}})


def _print_runs(summaries: "list[RunSummary]") -> None:
    from rich.console import Console

    from onepair.report import gap_closed
    from onepair.words import duration, percent, points, signed

    baseline, ceiling = summaries[0].test_map, summaries[-1].test_map
    table = make_table("method", "trained on", ">test mAP", ">against BCE", ">gap closed", ">time")
    for run in summaries:
        table.add_row(
            run.title,
            run.labels,
            points(run.test_map),
            signed(run.test_map - baseline),
            percent(gap_closed(run.test_map, baseline, ceiling)),
            duration(run.seconds),
        )
    Console().print(table)
