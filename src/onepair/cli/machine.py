"""`onepair doctor`, `runs`, `cache`: what is on this machine. None of them imports torch where there is no GPU."""

import os
import platform
import shutil
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onepair import __version__
from onepair.cli.console import make_table
from onepair.cli.options import newest_run
from onepair.errors import EXTRAS, UserError
from onepair.words import command, counted, listed

if TYPE_CHECKING:
    from rich.table import Table

    from onepair.runs.folder import RunFolder

PACKAGES = ("torch", "torchvision", "timm", "numpy", "scikit-learn", "onnxruntime", "ray")  # worth a line in a report
CACHED = {  # what the cache holds, by the names of its folders and files
    "features": "features of images",
    "graphs": "networks as compiled for this machine",
    "thumbnails": "small photos for the review page",
    "copies": "copies of vectors at URLs",
    "shards": "contents of tar files",
    "contents.sqlite": "checksums of images",
}


def doctor() -> None:
    """Show what onepair finds on this machine: versions, extras, devices, pretrained networks and the cache.

    Paste its output into a report of a problem: it names no file of yours but the folder of the cache.
    """
    from onepair.files import cache_folder

    rows = [
        ("onepair", f"{__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}"),
        ("packages", ", ".join(f"{name} {_version(name)}" for name in PACKAGES)),
        *(("extras" if first else "", line) for first, line in _extras()),
        ("devices", _devices()),
        ("networks", _networks()),
        ("cache", f"{_bytes(sum(map(_size, _cached(cache_folder()))))} in {cache_folder()}"),
    ]
    _print(make_table("", "found"), rows)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "missing"


def _extras() -> Iterator[tuple[bool, str]]:
    missing = [name for name, modules in EXTRAS.items() if any(find_spec(module) is None for module in modules)]
    there = [name for name in EXTRAS if name not in missing]
    yield True, ", ".join(there) or "none"
    if missing:
        yield False, f"missing: {', '.join(missing)}; install with: pip install 'onepair[{','.join(missing)}]'"


def _devices() -> str:
    cores = counted(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, "core")
    if sys.platform == "darwin" and platform.machine() == "arm64":
        return f"{cores}, GPU of Apple (mps)"
    if shutil.which("nvidia-smi") is None and not Path("/dev/kfd").exists():
        return f"{cores}, no GPU"
    import torch

    names = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    return f"{cores}, {', '.join(names) or 'a GPU that torch cannot use: its driver or this torch is too old'}"


def _networks() -> str:
    from onepair.models import INSTALL, backbones_at_hand

    return f"pretrained: {', '.join(backbones_at_hand())}" if backbones_at_hand() else f"none is pretrained; {INSTALL}"


def list_runs(
    folder: Annotated[Path, typer.Argument(help="Where to look, in the folders below too.")] = Path(),
) -> None:
    """List the runs in a folder and in its projects, the newest first."""
    found = sorted(_runs_below(folder), key=lambda run: -(run.path / "config.toml").stat().st_mtime)
    if not found:
        raise UserError(f"{folder}: there are no runs here; onepair start or onepair train makes one")
    rows = [(str(run.path), *_described(run)) for run in found]
    _print(make_table("run", "method", "network", "state", ">mAP"), rows)


def _runs_below(folder: Path) -> "Iterator[RunFolder]":
    """The runs of a folder, but not the models for each fold that are inside them."""
    from onepair.runs.folder import RunFolder

    for place, folders, files in os.walk(folder):
        if "config.toml" in files and RunFolder(Path(place)).begun:
            yield RunFolder(Path(place))
            folders.clear()
        folders[:] = sorted(name for name in folders if not name.startswith("."))


def _described(run: "RunFolder") -> tuple[str, str, str, str]:
    try:
        config = run.config()
        results = run.results() if run.finished else None
    except UserError:
        return "–", "–", "cannot be read", "–"
    if results is None:
        return config.method.name, config.model.backbone, f"stopped, {counted(len(_epochs(run)), 'epoch')} done", "–"
    judged = ((results.test_map, "test"), ((results.test_estimate or (None,))[0], "test, estimated"))
    value, on = next((each for each in judged if each[0] is not None), (results.validation_map, "validation"))
    return config.method.name, config.model.backbone, "finished", f"{100 * (value or 0):.2f} ({on})"


def _epochs(run: "RunFolder") -> list[object]:
    return [record for record in run.metrics() if "epoch" in record]


def status(
    run: Annotated[
        Path | None,
        typer.Argument(help="The folder of a run or a project; by default the project of the current folder."),
    ] = None,
) -> None:
    """Show how far a run is: its training, its suggestions, what people answered, and what comes next."""
    from onepair.runs.folder import RunFolder

    folder = RunFolder(newest_run(run))
    config = folder.config()
    method, network, state, figure = _described(folder)
    rows = [("run", str(folder.path)), ("data", config.data.source), ("method", f"{method} on {network}")]
    rows += [("training", state), ("mAP", figure)]
    steps = [
        ("suggestions", "finding/suggestions.csv", "find"),
        ("answers", "finding/review.sqlite", "review"),
        ("audit", "audit/audited.csv", "audit"),
    ]
    there = {title: (folder.path / file).exists() for title, file, _ in steps}
    if (project := _answered(folder.path)) is not None:
        there["answers"] = project
    rows += [(title, "yes" if there[title] else "none yet") for title, *_ in steps]
    _print(make_table("", "so far"), rows)
    words = next((word for title, _, word in steps[:2] if not there[title]), "labels")
    again = command("train", "--config", folder.path / "config.toml", "--out", folder.path)
    typer.echo(f"next: {command(words, folder.path) if folder.finished else again}")


def _answered(run: Path) -> bool | None:
    """Whether a project has answers; None for a run that is in none."""
    from onepair.runs.project import project_of

    project = project_of(run)
    return None if project is None else project.answers.exists()


def size() -> None:
    """Show how much disk space the cache takes, part by part."""
    from onepair.files import cache_folder

    folder = cache_folder()
    rows = [(part.name, _bytes(_size(part)), CACHED[part.name]) for part in _cached(folder)]
    _print(make_table("part", ">size", "what it holds"), rows)
    typer.echo(f"{_bytes(sum(map(_size, _cached(folder))))} in {folder}; all of it can be computed again")


def clean(
    parts: Annotated[
        list[str] | None, typer.Argument(metavar="PART", help="Parts, for example features; by default all.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete what the cache holds. Runs, answers and tables are elsewhere, and stay."""
    from onepair.files import cache_folder, writing

    if unknown := [part for part in parts or [] if part not in CACHED]:
        raise UserError(f"the cache has no part {unknown[0]!r}; it has {listed(list(CACHED))}")
    chosen = [part for part in _cached(cache_folder()) if not parts or part.name in parts]
    freed = _bytes(sum(map(_size, chosen)))
    if chosen and not yes and not typer.confirm(f"Delete {freed} in {cache_folder()}?", default=False):
        raise typer.Exit(0)
    for part in chosen:
        with writing(part):
            shutil.rmtree(part) if part.is_dir() else part.unlink()
    typer.echo(f"{freed} freed")


def _cached(folder: Path) -> list[Path]:
    return [folder / name for name in CACHED if (folder / name).exists()]


def _size(path: Path) -> int:
    return sum(each.stat().st_size for each in ([path] if path.is_file() else path.rglob("*")) if each.is_file())


def _bytes(number: int) -> str:
    return f"{number / 1e9:,.1f} GB" if number >= 1e9 else f"{number / 1e6:,.1f} MB"


def _print(table: "Table", rows: Sequence[tuple[str, ...]]) -> None:
    from rich.console import Console
    from rich.markup import escape

    for row in rows:
        table.add_row(*map(escape, row))
    Console(highlight=False).print(table)
