"""`onepair config`: all settings of a run, to be read, kept and changed."""

import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from onepair.cli.reading import UNSAID, Reading, reads_data
from onepair.cli.settings import Backbone, ConfigFile, Method, Mode, Observe, Preset, Settings, Weights, chosen_config

if TYPE_CHECKING:
    from onepair.runs.config import Config


@reads_data
def config(
    preset: Preset = None,
    method: Method = None,
    mode: Mode = None,
    backbone: Backbone = None,
    weights: Weights = None,
    observe: Observe = None,
    reading: Reading = UNSAID,
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
