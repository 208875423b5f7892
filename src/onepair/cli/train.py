"""`onepair train`: a run from a dataset and a method."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from onepair.cli.figures import vague_line
from onepair.cli.interruption import on_interrupt
from onepair.cli.reading import UNSAID, Features, Reading, Strict, reads_data
from onepair.cli.settings import (
    Backbone,
    Cache,
    ConfigFile,
    Method,
    Mode,
    Observe,
    Preset,
    Settings,
    Weights,
    Workers,
    chosen_config,
)
from onepair.errors import UserError
from onepair.remote import is_url
from onepair.words import counted

if TYPE_CHECKING:
    from onepair.runs.config import Config
    from onepair.runs.folder import Results


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
    reading: Reading = UNSAID,
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

    from onepair.cli.progress import Narration
    from onepair.files import cache_folder
    from onepair.runs.folder import RunFolder
    from onepair.training.distributed import is_first
    from onepair.training.hardware import Machine
    from onepair.training.run import TensorBoard
    from onepair.training.run import train as run

    machine = Machine(
        accelerator=accelerator,
        devices=number_or_auto(devices),
        num_nodes=nodes,
        strategy=strategy,
        workers=workers,
        cache=cache or cache_folder(),
    )
    place = RunFolder(out or default_folder(complete))
    aside = place.put_aside() if restart and is_first() else None
    curves = TensorBoard(place.path / "tensorboard") if tensorboard else None
    with Narration(tensorboard=curves) as narration:
        if aside:
            narration.say(f"what was in {place.path} is in {aside} now")
        results = run(complete, place, machine=machine, watch=narration)
    if is_first():
        _print(results, place.path)


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


def _print(results: "Results", folder: Path) -> None:
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
        told = f"estimated test mAP {value:.1f} ({low:.1f} to {high:.1f})" if figure.is_informative else vague_line(["test mAP"])
        typer.echo(f"{told}, {results.test_note}")
    elif results.test_note and results.test_map is None:
        typer.echo(f"there is no test mAP: {results.test_note}")
    typer.echo(f"everything is in {folder}")
