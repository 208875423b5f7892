"""`onepair start` and `onepair demo`: all steps by one command, with labels of one's own or on drawn scenes."""

import glob
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from onepair.cli.console import make_table, on_interrupt
from onepair.cli.options import (
    READ_DEFAULTS,
    Backbone,
    Features,
    Port,
    ReadOptions,
    RunOptions,
    with_options,
)
from onepair.errors import UserError, require_extra
from onepair.remote import is_url
from onepair.words import command, counted, listed, percent

if TYPE_CHECKING:
    from onepair.data.label_table import LabelTable
    from onepair.dataset import Dataset
    from onepair.finding.suggestions import Finding
    from onepair.runs.config import Config


METHOD = "opml-plus"


@on_interrupt("the same command goes on")
@with_options
def start(
    data: Annotated[
        str | None,
        typer.Argument(
            help="Your table of labels, or the folder of a dataset; by default that of the current folder's project."
        ),
    ] = None,
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
    from onepair.data.class_rules import with_same
    from onepair.data.images.image_files import skipped_files
    from onepair.data.tables.cell_values import names_in
    from onepair.files import locked, writing
    from onepair.runs.folder import RunFolder
    from onepair.runs.project import Project, project_folder, project_here, projects_beside
    from onepair.runs.task import RunCache, dataset_of

    earlier = [] if out is None else earlier_runs(out, None)
    if data is None:
        project = Project(out) if out else project_here(Path())
        record = project.record()
        if record is None:
            raise UserError(f"{project.path}: holds no project; name a table, as in: onepair start labels.csv")
        data = project.source_of(record)
        if project.is_about_nothing():
            go = f"bring it back, or name the table: {command('start', 'TABLE', '--out', project.path)}"
            raise UserError(f"{data}: is gone, and {project.path} was about it; {go}")
    else:
        project = Project(project_folder(str(out)) if earlier else out or project_folder(data))
        others = projects_beside(project) if out is None and project.record() is None else []
        if len(gone := [each for each in others if each.is_about_nothing()]) == 1:
            project = gone[0]
            typer.echo(f"{project.path} goes on with {data}, since its own table is gone")
        elif len(others) == 1:
            typer.echo(f"this is a new project; to go on with the answers of another: --out {others[0].path}")
        record = project.record()
    if record is not None and not restart:
        kept = project.reading(record)
        synonyms = with_same(kept.get("same"), names_in(reading.same) or ())
        reading, features = replace(reading.over(kept), same=synonyms), features or kept.get("features")
        backbone = backbone or record.backbone
    given, shared = RunOptions(method=METHOD, mode="linear", backbone=backbone, features=features), RunCache()
    complete = complete_config("start", data, given, reading, shared)
    earlier = earlier or (earlier_runs(default_folder(complete), data) if out is None else [])
    project.require_usable()
    words = [*reading.words, *(["--features", features] if features is not None else [])]

    say_command("check", data, *words)
    try:
        check(data, **asdict(reading), features=features)
    except typer.Exit as end:
        if end.exit_code:
            fix = shlex.join(["onepair", "check", data, *words, "--fix", "clean.csv"])
            typer.echo(f"\nwhat cannot be used is left out; {fix} writes a table without it")

    from onepair.review.next_run import carry_audit, photos_without_rows, prepare_run, with_photos  # and torch

    table = dataset_of(complete.data, shared)
    same, different = ask_of_names(table.classes, () if record is None or restart else record.different)
    if same:
        reading = replace(reading, same=with_same(reading.same, same))
        complete = complete_config("start", data, given, reading, shared)
        table = dataset_of(complete.data, shared)
    if not (table.ids or table.pixels is not None or is_url(str(table.root))) and (left := skipped_files(table.root)):
        typer.echo(left)
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
    settings = {**reading.settings, "features": features}
    with locked(project.path / ".lock"):
        prepared = prepare_run(
            project,
            with_photos(table, more) if wanted else table,
            source=data,
            reading={name: value for name, value in settings.items() if value is not None},
            settings=settings_text(complete),
            new_photos=wanted,
            backbone=backbone,
            earlier=earlier,
            find_alike=lambda table: find_alike(table, complete),
        )
        project.keep_apart(different)
        if prepared.change is not None and str(prepared.change):
            typer.echo(f"since the last time: {prepared.change}")
        if prepared.answers:
            counts = "counts as a known label" if prepared.answers == 1 else "count as known labels"
            typer.echo(f"{counted(prepared.answers, 'answer')} of before {counts}")
        if prepared.bursts:
            number = counted(sum(map(len, prepared.bursts)), "photo")
            groups, first = counted(len(prepared.bursts), "group"), listed(prepared.bursts[0])
            typer.echo(f"{number} look nearly the same, in {groups} ({first}): each is kept in one fold")
        run, vectors = prepared.path, absolute(features)
        newest = project.newest_run() if RunFolder(run).finished else run
        suggested = 1
        if newest == run:
            network = complete.model.backbone
            options = {"folder": prepared.folder, "features": vectors}
            given_words = [word for name, value in options.items() if value for word in (f"--{name}", value)]
            words = ["--method", METHOD, "--mode", "linear", "--backbone", network, *given_words, "--out", str(run)]
            say_command("train", prepared.source, *words)
            train(prepared.source, method=METHOD, mode="linear", backbone=network, out=run, **options)
            carry_audit(project, run)
            say_command("find", run)
            suggested = find(run)
    if not suggested:
        typer.echo(f"there is nothing to confirm; to count what is missing on random images: {command('audit', run)}")
    elif page:
        say_command("review", newest, "--port", port, "--open")
        review(newest, port=port, browse=True)


def ask_of_names(
    classes: Sequence[str], different: Sequence[tuple[str, str]]
) -> tuple[list[str], tuple[tuple[str, str], ...]]:
    """Ask on a terminal of classes with much the same name whether they are one.

    Args:
        classes: the names.
        different: pairs that are two, by an earlier answer.

    Returns:
        Those that are one, as words of --same, and all that are two.
    """
    from onepair.data.quality import near_names

    same: list[str] = []
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return same, tuple(different)
    apart = list(different)
    for one, other in near_names(classes):
        if {(one, other), (other, one)} & set(apart) or any(set("=,;") & set(name) for name in (one, other)):
            continue
        if typer.confirm(f"Are {one} and {other} the same class?", default=False):
            same.append(f"{other}={one}")
        else:
            apart.append((one, other))
    return same, tuple(apart)


def find_alike(table: "LabelTable", config: "Config") -> list[list[int]]:
    """Rows of photos on this machine that look nearly the same, by their pixels and by the features of the network."""
    from onepair.cli.data import with_bar
    from onepair.data.images.image_files import image_hashes, near_duplicates
    from onepair.data.quality import photos_here
    from onepair.features import extract_features
    from onepair.files import cache_folder
    from onepair.inference.engine_selector import EngineSelector
    from onepair.models import create_backbone, parse_weights
    from onepair.training.callbacks import ProgressCallback, progress_of

    cache, photos = cache_folder(), photos_here(table)
    if len(photos) < 2:
        return []
    hashes = image_hashes(photos, memory=cache / "contents.sqlite", progress=with_bar)
    network = create_backbone(config.model.backbone, weights=parse_weights(config.model.weights))
    with ProgressCallback() as progress:
        found = extract_features(
            table,
            network,
            network.preprocessing,
            EngineSelector(network, cache=cache),
            folder=cache / "features",
            report=lambda problem: None,  # which training says
            on_progress=progress_of([progress], "extracting features"),
        )
    return near_duplicates(dict(enumerate(hashes)), found.features)


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


def say_command(*words: object) -> None:
    """Name the command that comes now."""
    typer.secho(f"\n$ {shlex.join(['onepair', *map(str, words)])}", bold=True, err=True)


FIRST = 100  # suggestions, which nearly everybody will look at


class Verdict(NamedTuple):
    """How suggestions of missing labels compare with the truth."""

    suggested: int
    right: int
    first_stated: float  # of the first ones, the share that probabilities promise to be right
    first_right: float  # and the share that is


@on_interrupt("what was saved is kept; the same command goes on")
def demo(
    out: Annotated[Path, typer.Option(help="The folder for the scenes and the runs.")] = Path("runs/demo"),
    scenes: Annotated[int, typer.Option(min=50, help="How many scenes to draw.")] = 400,
    backbone: Backbone = None,
) -> None:
    """Find missing labels in scenes that are drawn here, and compare what was found with the truth.

    Draws picture-book scenes and tags them as people do: what is large first, most labels missing, some spelt
    otherwise, some wrong. Then it checks the table, trains and finds, and does so again with BCE, the usual loss. Run
    the same command again to resume.
    """
    from onepair.data.formats.scenes import write_scenes
    from onepair.dataset import Dataset
    from onepair.models import INSTALL, backbones_at_hand

    network = backbone or next(iter(backbones_at_hand()), "small-cnn")
    if network == "small-cnn":
        typer.echo(f"a network that was never trained finds little; {INSTALL}, which finds far more", err=True)
    labels = write_scenes(out / "scenes", number=scenes)
    say_command("check", labels)
    tagged, truth = Dataset.read(labels), Dataset.read(labels.with_name("truth.csv"))
    typer.echo("\n".join(map(str, [tagged, *tagged.check()])))
    missing = _positives(truth) - _positives(tagged)
    verdicts = [
        judge(_train_and_find(method, labels, network, out / run), missing)
        for method, run in ((METHOD, "run"), ("bce", "run-bce"))
    ]
    _print(verdicts, len(missing))
    typer.echo(f"To confirm the suggestions on a page: {command('review', out / 'run')}")


def _print(verdicts: list[Verdict], missing: int) -> None:
    from rich.console import Console

    table = make_table("method", ">suggested", ">right", ">of the missing", f">first {FIRST}: stated", ">right")
    for title, each in zip(("OPML+", "BCE"), verdicts, strict=True):
        shares = (each.right / max(missing, 1), each.first_stated, each.first_right)
        table.add_row(title, f"{each.suggested:,}", f"{each.right:,}", *map(percent, shares))
    Console(highlight=False).print(table)
    ours, usual = verdicts
    first = f"the first {FIRST}"
    typer.echo(
        f"The scenes really miss {counted(missing, 'label')}. onepair finds {ours.right:,} of them; of {first} that it "
        f"suggests, {percent(ours.first_right)} are right, where it stated {percent(ours.first_stated)}. BCE, the "
        f"usual loss, finds {usual.right:,}; of {first}, {percent(usual.first_right)} are right."
    )


def judge(found: "Finding", missing: set[tuple[str, str]]) -> Verdict:
    """Compare suggestions of missing labels with the labels really missing, by file and class in lower case."""
    suggestions = found.suggestions[found.suggestions.kind == "missing"]
    cells = zip(suggestions.row.tolist(), suggestions.label.tolist(), strict=True)
    right = [(found.files[row], found.classes[label].name.lower()) in missing for row, label in cells]
    first = max(len(right[:FIRST]), 1)
    stated = float(suggestions.probability[:FIRST].sum())
    return Verdict(len(right), sum(right), stated / first, sum(right[:FIRST]) / first)


def _positives(dataset: "Dataset") -> set[tuple[str, str]]:
    """The labels that a dataset has, by file and class."""
    rows, columns = (dataset.labels == 1).nonzero()
    cells = zip(rows.tolist(), columns.tolist(), strict=True)
    return {(dataset.files[row], dataset.classes[column].lower()) for row, column in cells}


def _train_and_find(method: str, table: Path, network: str, run: Path) -> "Finding":
    """Do what `onepair train` and `onepair find` do, and name them."""
    from onepair.training.callbacks import ProgressCallback
    from onepair.training.hardware import Hardware
    from onepair.workflow import train

    with ProgressCallback() as shown:
        say_command("train", table, "--method", method, "--backbone", network, "--out", run)
        hardware = Hardware(devices=1)
        done = train(table, method=method, backbone=network, out=run, hardware=hardware, callbacks=[shown])
        say_command("find", run, "--no-maps")
        return done.find(callbacks=[shown]).finding
