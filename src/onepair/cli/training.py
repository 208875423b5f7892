"""`onepair train`, `tune`, `config`, `methods`: a run, its settings, and better ones."""

import logging
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from onepair.cli.console import vague_line
from onepair.cli.interruption import on_interrupt
from onepair.cli.options import (
    DEFAULTS,
    Backbone,
    Cache,
    ConfigFile,
    Features,
    Method,
    Mode,
    Observe,
    Preset,
    ReadOptions,
    Settings,
    Strict,
    Weights,
    Workers,
    chosen_config,
    reads_data,
)
from onepair.errors import UserError, require_extra
from onepair.remote import is_url
from onepair.words import counted

if TYPE_CHECKING:
    from onepair.experiments.tuning import Trial
    from onepair.runs.config import Config
    from onepair.runs.folder import Results

_log = logging.getLogger(__name__)


@on_interrupt("what was saved is kept; the same command goes on")
@reads_data
def train(
    data: Annotated[
        str | None, typer.Argument(help="A dataset's folder or file, or 'digits'; may also come from the config.")
    ] = None,
    method: Method = None,
    preset: Preset = None,
    mode: Mode = None,
    backbone: Backbone = None,
    weights: Weights = None,
    observe: Observe = None,
    features: Features = None,
    reading: ReadOptions = DEFAULTS,
    config: ConfigFile = None,
    settings: Settings = None,
    out: Annotated[
        Path | None, typer.Option(help="The run's folder; by default in runs/, named by what it is.")
    ] = None,
    devices: Annotated[str, typer.Option(help="How many processes or GPUs on this machine.")] = "auto",
    nodes: Annotated[int, typer.Option(help="How many machines.")] = 1,
    accelerator: Annotated[str, typer.Option(help="cpu, cuda, mps, or auto.")] = "auto",
    strategy: Annotated[str, typer.Option(help="auto, ddp, or fsdp, which spreads the weights.")] = "auto",
    workers: Workers = None,
    cache: Cache = None,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write curves for TensorBoard, too.")] = False,
    strict: Strict = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Put the run that is there aside, with all answers to it, and begin anew.")
    ] = False,
) -> None:
    """Train a classifier. The same command again goes on where it stopped.

    Settings come from the preset, the config file, the options and --set, the later ones winning.
    """
    complete = chosen_config(
        preset=preset,
        file=config,
        settings=settings,
        data=data,
        method=method,
        mode=mode,
        backbone=backbone,
        weights=weights,
        observe=observe,
        features=features,
        reading=reading,
        strict=strict,
    )
    if not complete.data.source:
        raise UserError("name a dataset, as in: onepair train digits")
    complete = sound(complete)

    from onepair.cli.progress import ProgressCallback
    from onepair.files import cache_folder
    from onepair.runs.folder import RunFolder
    from onepair.training.callbacks import Callback, TensorBoardCallback
    from onepair.training.distributed import is_first
    from onepair.training.hardware import Hardware
    from onepair.training.run import train as run

    hardware = Hardware(
        accelerator=accelerator,
        devices=number_or_auto(devices),
        num_nodes=nodes,
        strategy=strategy,
        workers=workers,
        cache=cache or cache_folder(),
    )
    place = RunFolder(out or default_folder(complete))
    aside = place.put_aside() if restart and is_first() else None
    curves: list[Callback] = [TensorBoardCallback(place.path / "tensorboard")] if tensorboard else []
    with ProgressCallback() as progress:
        if aside:
            _log.info(f"what was in {place.path} is in {aside} now")
        results = run(complete, place, hardware=hardware, callbacks=[progress, *curves])
    if is_first():
        _print_results(results, place.path)


def sound(config: "Config") -> "Config":
    """The configuration with its network, or a sentence on a dataset or a method that there is not.

    It comes before training is imported, which takes many seconds.
    """
    from onepair.data.formats.read import recognise
    from onepair.remote import as_path

    recognise(as_path(config.data.source), config.data.format)

    from onepair.runs.auto_backbone import with_network
    from onepair.runs.method_factory import method_of  # and torch, but nothing else

    method_of(config)
    return with_network(config)


def default_folder(config: "Config") -> Path:
    """Where a run goes that is not told where."""
    depth = [config.model.train_from] if config.model.train_from else []
    return folder_named(config.data.source, config.method.name, config.model.mode, config.model.backbone, *depth)


def folder_named(data: str, *rest: str) -> Path:
    """Where a run on some data goes, by what it is."""
    name = Path(data.partition("?")[0] if is_url(data) else data).stem.translate({ord("{"): None, ord("}"): None})
    return Path("runs") / "-".join([name, *rest]).replace("/", "-")


def number_or_auto(devices: str) -> int | Literal["auto"]:
    if devices == "auto":
        return "auto"
    if not devices.isdigit() or int(devices) == 0:
        raise UserError(f"--devices must be a number above 0, or auto, got {devices!r}")
    return int(devices)


def _print_results(results: "Results", folder: Path) -> None:
    """The outcome of a run, in three lines."""
    from onepair.probability.evaluation import Figure

    if results.best_epoch is None:
        best = f"penalty {results.penalty:g}, estimated mAP {100 * results.validation_map:.2f}"
    else:
        best = f"best epoch {results.best_epoch}, validation mAP {100 * results.validation_map:.2f}"
    typer.echo(f"{best} ({results.selected_on})")
    if results.test_map is not None:
        basis = f", {results.test_note}" if results.test_note and results.test_estimate is None else ""
        over = counted(results.test_classes or 0, "class")
        typer.echo(f"test mAP {100 * results.test_map:.2f} over {over}{basis}")
    if results.test_estimate is not None:
        figure = Figure(*results.test_estimate)
        value, low, high = (100 * each for each in figure)
        told = (
            f"estimated test mAP {value:.1f} ({low:.1f} to {high:.1f})"
            if figure.is_informative
            else vague_line(["test mAP"])
        )
        typer.echo(f"{told}, {results.test_note}")
    elif results.test_note and results.test_map is None:
        typer.echo(f"there is no test mAP: {results.test_note}")
    typer.echo(f"everything is in {folder}")


@on_interrupt("the runs that are done are kept; the same command goes on")
@reads_data
def tune(
    data: Annotated[
        str | None, typer.Argument(help="A dataset's folder or file, or 'digits'; may also come from the config.")
    ] = None,
    method: Method = None,
    trials: Annotated[int, typer.Option(min=1, help="Runs in all, those of an earlier command included.")] = 40,
    preset: Preset = None,
    mode: Mode = None,
    backbone: Backbone = None,
    weights: Weights = None,
    observe: Observe = None,
    features: Features = None,
    reading: ReadOptions = DEFAULTS,
    config: ConfigFile = None,
    settings: Settings = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder of the search; by default in runs/, named by what it is.")
    ] = None,
    workers: Workers = None,
    strict: Strict = False,
) -> None:
    """Search the options of a method, and in fine-tuning the learning rate, that give the best validation mAP.

    The first trial is the settings as they are; test images are never looked at. The same command again goes on where
    it stopped, with a larger --trials also further.
    """
    require_extra("tune")
    complete = chosen_config(
        preset=preset,
        file=config,
        settings=settings,
        data=data,
        method=method,
        mode=mode,
        backbone=backbone,
        weights=weights,
        observe=observe,
        features=features,
        reading=reading,
        strict=strict,
    )
    if not complete.data.source:
        raise UserError("name a dataset, as in: onepair tune digits")
    complete = sound(complete)

    from onepair.cli.progress import ProgressCallback
    from onepair.experiments.tuning import tune as search
    from onepair.experiments.tuning import write_history
    from onepair.files import writing
    from onepair.training.hardware import Hardware

    folder = out or Path("runs") / f"tune-{default_folder(complete).name}"
    with ProgressCallback(short_epochs=False) as progress:
        hardware = Hardware(devices=1, workers=workers)
        tried = search(folder, complete, trials=trials, hardware=hardware, callbacks=[progress])
    with writing(folder):
        files = write_history(folder, tried)
    _print_best(tried, folder, files)


def _print_best(tried: "Sequence[Trial]", folder: Path, files: Sequence[Path]) -> None:
    """What was found, and what to do with it."""
    from onepair.experiments.records import values_text
    from onepair.experiments.tuning import best_of_trials

    best = best_of_trials(tried)
    if best is None or best.validation_map is None:
        raise UserError(f"not one of {counted(len(tried), 'trial')} could be trained; {folder / 'runs'} says why")
    first = tried[0].validation_map
    before = "the first one failed" if first is None else f"{100 * first:.2f} with the settings as they were"
    typer.echo(f"best of {counted(len(tried), 'trial')}: validation mAP {100 * best.validation_map:.2f} ({before})")
    typer.echo(values_text(best.values))
    typer.echo(f"wrote {', '.join(map(str, files))}")
    typer.echo(f"train with it: onepair train --config {folder / 'best.toml'}")


@reads_data
def config(
    preset: Preset = None,
    method: Method = None,
    mode: Mode = None,
    backbone: Backbone = None,
    weights: Weights = None,
    observe: Observe = None,
    reading: ReadOptions = DEFAULTS,
    config: ConfigFile = None,
    settings: Settings = None,
    explain: Annotated[bool, typer.Option("--explain", help="Say what every setting means instead.")] = False,
) -> None:
    """Print the complete settings of a run as TOML, for onepair train --config.

    It takes the options of onepair train, and trains nothing.
    """
    complete = chosen_config(
        preset=preset,
        file=config,
        settings=settings,
        method=method,
        mode=mode,
        backbone=backbone,
        weights=weights,
        observe=observe,
        reading=reading,
    )
    from onepair.runs.config import to_toml
    from onepair.runs.method_factory import method_of

    method_of(complete)  # refuses what cannot be
    if explain:
        _print_settings(complete)
        return
    options = {"preset": preset, "method": method, "mode": mode, "backbone": backbone, "weights": weights}
    given = {**options, "observe": observe, "config": config}
    parts = [part for name, value in given.items() if value is not None for part in (f"--{name}", str(value))]
    parts += reading.words
    parts += [part for setting in settings or [] for part in ("--set", setting)]
    typer.echo(
        f"# Train with it: onepair train DATA --config FILE, or {shlex.join(['onepair', 'train', 'DATA', *parts])}"
    )
    if preset is not None and len(parts) <= 4 and method is not None:  # nothing but the preset and the method
        _print_expectation(preset, method)
    typer.echo(f"\n{to_toml(complete)}", nl=False)


def _print_expectation(preset: str, method: str) -> None:
    from onepair.experiments.records import published

    if spread := published("single", method, preset):
        typer.echo(f"# The paper's test mAP is {spread}, mean (standard deviation) of 3 runs.")


def _print_settings(complete: "Config") -> None:
    """Every setting, its value and its meaning."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from onepair.runs.config import all_settings, flatten, value_text

    values = flatten(complete)
    table = Table(box=box.SIMPLE_HEAD)
    for title in ("setting", "value", "meaning"):
        table.add_column(title, overflow="fold")
    for setting in all_settings():
        value = values.get(setting.key, setting.default)
        usual = f" (default {value_text(setting.default)})" if value != setting.default else ""
        table.add_row(setting.key, f"{value_text(value)}{usual}", setting.meaning)
    Console(highlight=False).print(table)


def methods(
    name: Annotated[str | None, typer.Argument(help="Show one method's paper, equation and options.")] = None,
) -> None:
    """List the methods, or show one of them."""
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from onepair.methods import METHODS, find_method

    console = Console(highlight=False)
    if name is None:
        table = Table(box=box.SIMPLE_HEAD)
        for title in ("method", "in the papers", "what it does"):
            table.add_column(title)
        for info in METHODS.values():
            table.add_row(info.name, info.title, escape(info.description))
        console.print(table)
        return
    info = find_method(name)
    console.print(f"[bold]{info.name}[/bold]  {info.title}, {escape(info.paper)}")
    console.print(escape(info.description))
    console.print(escape(info.equation))
    for option in info.options:
        default = escape(str(info.defaults.get(option, "the number of epochs of the run")))
        console.print(f"  --set method.options.{option}=…  [dim]default {default}[/dim]")
