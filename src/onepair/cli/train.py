"""`onepair train`: a run from a dataset and a method."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from onepair.errors import UserError

if TYPE_CHECKING:
    from onepair.runs.folder import Results


def train(
    data: Annotated[
        str | None, typer.Argument(help="A dataset's folder or file, or 'digits'; may also come from the config.")
    ] = None,
    method: Annotated[str | None, typer.Option(help="See onepair methods.")] = None,
    mode: Annotated[
        Literal["linear", "finetune", "linear-init"] | None,
        typer.Option(help="Train the classifier on fixed features, the whole network, or one after the other."),
    ] = None,
    backbone: Annotated[str | None, typer.Option(help="A network of timm's, by name, or small-cnn.")] = None,
    weights: Annotated[str | None, typer.Option(help="A file of weights, 'pretrained' or 'none'.")] = None,
    observe: Annotated[
        Literal["given", "single-positive"] | None,
        typer.Option(help="Hide all but one positive of each training image, by the published seed."),
    ] = None,
    config: Annotated[Path | None, typer.Option(help="A TOML file of settings.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any setting, as optimiser.lr=0.01.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The run's folder; by default in runs/, named by what it is.")
    ] = None,
    devices: Annotated[str, typer.Option(help="How many processes or GPUs on this machine.")] = "auto",
    nodes: Annotated[int, typer.Option(help="How many machines.")] = 1,
    accelerator: Annotated[str, typer.Option(help="cpu, cuda, mps, or auto.")] = "auto",
    strategy: Annotated[str, typer.Option(help="auto, ddp, or fsdp, which spreads the weights.")] = "auto",
    workers: Annotated[int | None, typer.Option(help="Processes that read images.")] = None,
    cache: Annotated[Path | None, typer.Option(help="The folder that features are kept in.")] = None,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write curves for TensorBoard, too.")] = False,
) -> None:
    """Train a classifier. The same command again goes on where it stopped.

    Settings come from the config file, then from the options, then from --set, the later ones winning.
    """
    from onepair.cli.progress import Narration
    from onepair.files import cache_folder
    from onepair.runs.config import parse_setting, read_config, resolve_config
    from onepair.runs.folder import RunFolder
    from onepair.training.machine import Machine
    from onepair.training.processes import is_first
    from onepair.training.run import train as run
    from onepair.training.tensorboard import TensorBoard

    options: dict[str, Any] = {
        "data": {"source": data, "observe": observe},
        "model": {"mode": mode, "backbone": backbone, "weights": weights},
        "method": {"name": method},
    }
    given = {section: {k: v for k, v in values.items() if v is not None} for section, values in options.items()}
    complete = resolve_config(read_config(config) if config else {}, given, *map(parse_setting, settings or []))
    if not complete.data.source:
        raise UserError("name a dataset, as in: onepair train digits")
    machine = Machine(
        accelerator=accelerator,
        devices=number_or_auto(devices),
        num_nodes=nodes,
        strategy=strategy,
        workers=workers,
        cache=cache or cache_folder(),
    )
    name = "-".join([Path(complete.data.source).stem, complete.method.name, complete.model.mode])
    folder = RunFolder(out or Path("runs") / name)
    curves = TensorBoard(folder.path / "tensorboard") if tensorboard else None
    with Narration(tensorboard=curves) as narration:
        results = run(complete, folder, machine=machine, watch=narration)
    if is_first():
        _print(results, folder.path)


def number_or_auto(devices: str) -> int | Literal["auto"]:
    if devices == "auto":
        return "auto"
    if not devices.isdigit() or int(devices) == 0:
        raise UserError(f"--devices must be a number above 0, or auto, got {devices!r}")
    return int(devices)


def _print(results: "Results", folder: Path) -> None:
    """The outcome of a run, in three lines."""
    best = f"best epoch {results.best_epoch}, validation mAP {100 * results.validation_map:.2f}"
    typer.echo(f"{best} ({results.selected_on})")
    if results.test_map is not None:
        typer.echo(f"test mAP {100 * results.test_map:.2f} over {results.test_classes} classes")
    typer.echo(f"everything is in {folder}")
