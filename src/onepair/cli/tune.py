"""`onepair tune`: better settings than the ones given, by validation mAP."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onepair.cli.interruption import on_interrupt
from onepair.cli.reading import UNSAID, Features, Reading, Strict, reads_data
from onepair.cli.settings import (
    Backbone,
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
from onepair.cli.train import default_folder, sound
from onepair.errors import UserError, require_extra
from onepair.words import counted

if TYPE_CHECKING:
    from onepair.experiments.tuning import Tried


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
    reading: Reading = UNSAID,
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
    it stopped, with --trials also further. Several processes, also on machines with a common folder, may run the
    command at once and share the trials; with several GPUs, give each process one by CUDA_VISIBLE_DEVICES.
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

    from onepair.cli.study import StudyNarration
    from onepair.experiments.tuning import Tuning, write_history
    from onepair.files import writing
    from onepair.training.hardware import Machine

    folder = out or Path("runs") / f"tune-{default_folder(complete).name}"
    with StudyNarration() as narration:
        machine = Machine(devices=1, workers=workers)
        tried = Tuning(folder, complete, trials=trials, machine=machine, watch=narration).run()
    with writing(folder):
        files = write_history(folder, tried)
    _print(tried, folder, files)


def _print(tried: "Sequence[Tried]", folder: Path, files: Sequence[Path]) -> None:
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
