"""`onepair train`, `tune`, `config`, `methods`: a run, its settings, and better ones."""

import logging
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onepair.cli.console import make_table, on_interrupt, print_worth
from onepair.cli.options import (
    MACHINE,
    READ_DEFAULTS,
    RUN_DEFAULTS,
    Accelerator,
    Cache,
    Devices,
    ReadOptions,
    RunOptions,
    Workers,
    chosen_config,
    number_or_auto,
    with_options,
)
from onepair.errors import UserError, require_extra
from onepair.remote import is_url
from onepair.words import counted

if TYPE_CHECKING:
    from onepair.experiments.tuning import Tuned
    from onepair.runs.config import Config
    from onepair.runs.folder import Results
    from onepair.runs.task import RunCache

_log = logging.getLogger(__name__)


Dataset = Annotated[
    str | None, typer.Argument(help="A dataset's folder or file, or 'digits'; may also come from the config.")
]


@on_interrupt("what was saved is kept; the same command goes on")
@with_options
def train(
    data: Dataset = None,
    options: RunOptions = RUN_DEFAULTS,
    reading: ReadOptions = READ_DEFAULTS,
    out: Annotated[
        Path | None, typer.Option(help="The run's folder; by default in runs/, named by data, method and network.")
    ] = None,
    devices: Devices = "auto",
    nodes: Annotated[int, typer.Option(rich_help_panel=MACHINE, help="How many machines.")] = 1,
    accelerator: Accelerator = "auto",
    strategy: Annotated[
        str, typer.Option(rich_help_panel=MACHINE, help="auto, or a strategy of Lightning Fabric, for example ddp.")
    ] = "auto",
    workers: Workers = None,
    cache: Cache = None,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write curves for TensorBoard, too.")] = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Move an existing run aside, with all answers to it, and start again.")
    ] = False,
) -> None:
    """Train a classifier. Run the same command again to resume.

    Settings come from the preset, the config file, the options and --set; the later ones win.
    """
    from onepair.runs.task import RunCache

    shared = RunCache()
    complete = complete_config("train", data, options, reading, shared)

    from onepair.files import cache_folder
    from onepair.training.callbacks import Callback, ProgressCallback, TensorBoardCallback
    from onepair.training.hardware import Hardware, is_first
    from onepair.workflow import train as run

    hardware = Hardware(
        accelerator=accelerator,
        devices=number_or_auto(devices),
        num_nodes=nodes,
        strategy=strategy,
        workers=workers,
        cache=cache or cache_folder(),
        shared=shared,
    )
    place = out or default_folder(complete)
    curves: list[Callback] = [TensorBoardCallback(place / "tensorboard")] if tensorboard else []
    with ProgressCallback() as progress:
        done = run(
            complete, out=place, hardware=hardware, callbacks=[progress, *curves], progress=False, restart=restart
        )
    if is_first():
        _print_results(done.results, place)


def complete_config(
    command: str,
    data: str | None,
    options: RunOptions = RUN_DEFAULTS,
    reading: ReadOptions = READ_DEFAULTS,
    shared: "RunCache | None" = None,
) -> "Config":
    """The configuration with its network; what is wrong with it is said before training is imported, which is slow."""
    config = chosen_config(data, options, reading)
    if not config.data.source:
        raise UserError(f"name a dataset, as in: onepair {command} digits")
    from onepair.data.formats.read import recognise
    from onepair.remote import as_path

    recognise(as_path(config.data.source), config.data.format)

    from onepair.runs.task import RunCache, choose_backbone, make_method

    make_method(config)
    return choose_backbone(config, shared or RunCache())


def default_folder(config: "Config") -> Path:
    """The folder of a run that is not told where: runs/ and what it is."""
    data, model = config.data.source, config.model
    name = Path(data.partition("?")[0] if is_url(data) else data).stem.translate({ord("{"): None, ord("}"): None})
    parts = [name, config.method.name, model.mode, model.backbone, *([model.train_from] if model.train_from else [])]
    parts += [config.linear.head] if config.linear.head != "linear" else []
    return Path("runs") / "-".join(parts).replace("/", "-")


def _print_results(results: "Results", folder: Path) -> None:
    """The outcome of a run: how it was chosen, and what its labels are worth."""
    chosen = f"best epoch {results.best_epoch}" if results.penalty is None else f"penalty {results.penalty:g}"
    typer.echo(f"{chosen}, selection score {100 * results.validation_map:.2f} ({results.selected_on})")
    for split, worth in results.worth.items():
        print_worth(worth.precision_recall)
        if worth.line:
            typer.echo(f"{split}: {worth.line}")
    if results.test_note and "test" not in results.worth:
        typer.echo(f"there are no test figures: {results.test_note}")
    typer.echo(f"everything is in {folder}")


@on_interrupt("the runs that are done are kept; the same command goes on")
@with_options
def tune(
    data: Dataset = None,
    options: RunOptions = RUN_DEFAULTS,
    trials: Annotated[int, typer.Option(min=1, help="Runs in all, those of an earlier command included.")] = 40,
    reading: ReadOptions = READ_DEFAULTS,
    out: Annotated[
        Path | None,
        typer.Option(help="The folder of the search; by default in runs/, named by data, method and network."),
    ] = None,
    workers: Workers = None,
) -> None:
    """Search for the options of a method, and in fine-tuning the learning rate, with the best validation mAP.

    The first trial uses the settings as they are; test images are never used. Run the same command again to resume, or
    with a larger --trials to go further.
    """
    require_extra("tune")
    complete = complete_config("tune", data, options, reading)

    from onepair.training.callbacks import ProgressCallback
    from onepair.training.hardware import Hardware
    from onepair.workflow import tune as search

    folder = out or Path("runs") / f"tune-{default_folder(complete).name}"
    with ProgressCallback(short_epochs=False) as progress:
        hardware = Hardware(devices=1, workers=workers)
        found = search(complete, out=folder, trials=trials, hardware=hardware, callbacks=[progress], progress=False)
    _print_best(found)


def _print_best(found: "Tuned") -> None:
    """What was found, and what to do with it."""
    from onepair.experiments.records import values_text

    best, first = found.best, found.trials[0].validation_map
    before = "the first one failed" if first is None else f"{100 * first:.2f} with the settings as they were"
    reached = 100 * (best.validation_map or 0.0)
    typer.echo(f"best of {counted(len(found.trials), 'trial')}: validation mAP {reached:.2f} ({before})")
    typer.echo(values_text(best.values))
    typer.echo(f"wrote {', '.join(map(str, found.files))}")
    typer.echo(f"train with it: onepair train --config {found.path / 'best.toml'}")


@with_options
def config(
    options: RunOptions = RUN_DEFAULTS,
    reading: ReadOptions = READ_DEFAULTS,
    explain: Annotated[bool, typer.Option("--explain", help="Explain every setting instead.")] = False,
) -> None:
    """Print the complete settings of a run as TOML, for onepair train --config.

    It takes the options of onepair train, and trains nothing.
    """
    complete = chosen_config(None, options, reading)
    from onepair.runs.config import to_toml
    from onepair.runs.task import make_method

    make_method(complete)  # refuses what cannot be
    if explain:
        _print_settings(complete)
        return
    words = [*options.words, *reading.words]
    typer.echo(
        f"# Train with it: onepair train DATA --config FILE, or {shlex.join(['onepair', 'train', 'DATA', *words])}"
    )
    if options.preset and options.method and len(words) == 4:  # nothing but the preset and the method
        from onepair.experiments.records import published

        if spread := published("single", options.method, options.preset):
            typer.echo(f"# The paper's test mAP is {spread}, mean (standard deviation) of 3 runs.")
    typer.echo(f"\n{to_toml(complete)}", nl=False)


def _print_settings(complete: "Config") -> None:
    """Every setting, its value and its meaning."""
    from rich.console import Console

    from onepair.runs.config import all_settings, flatten, value_text

    values = flatten(complete)
    table = make_table("setting", "value", "meaning")
    for setting in all_settings():
        value = values.get(setting.key, setting.default)
        usual = f" (default {value_text(setting.default)})" if value != setting.default else ""
        table.add_row(setting.key, f"{value_text(value)}{usual}", setting.meaning)
    Console(highlight=False).print(table)


def methods(
    name: Annotated[str | None, typer.Argument(help="Show one method's paper, equation and options.")] = None,
) -> None:
    """List the methods, or show one of them."""
    from rich.console import Console
    from rich.markup import escape

    from onepair.methods import METHODS, find_method
    from onepair.runs.config import MethodConfig

    console = Console(highlight=False)
    if name is None:
        table = make_table("method", "in the papers", "what it does")
        usual = MethodConfig().name
        for info in sorted(METHODS.values(), key=lambda info: info.name != usual):  # the default first
            is_default = " (the default)" if info.name == usual else ""
            table.add_row(f"{info.name}{is_default}", info.title, escape(info.description))
        console.print(table)
        return
    info = find_method(name)
    console.print(f"[bold]{info.name}[/bold]  {info.title}, {escape(info.paper)}")
    console.print(escape(info.description))
    console.print(escape(info.equation))
    for option in info.options:
        default = escape(str(info.defaults.get(option, "the number of epochs of the run")))
        console.print(f"  --set method.options.{option}=…  [dim]default {default}[/dim]")
