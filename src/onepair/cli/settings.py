"""The settings of a run as a user gives them: a preset, a file, options, and any others."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from onepair.runs.config import Config

Preset = Annotated[
    str | None,
    typer.Option(help="Settings that are known to work: voc2012, coco2014, nuswide, cub (the paper's) or digits."),
]
Method = Annotated[str | None, typer.Option(help="See onepair methods.")]
Mode = Annotated[
    Literal["linear", "finetune", "linear-init"] | None,
    typer.Option(help="Train the classifier on fixed features, the whole network, or one after the other."),
]
Backbone = Annotated[str | None, typer.Option(help="A network of timm's, by name, or small-cnn.")]
Weights = Annotated[str | None, typer.Option(help="A file of weights, 'pretrained', 'none' (random ones) or 'auto'.")]
Observe = Annotated[
    Literal["given", "single-positive", "few-positives", "fraction", "most-frequent", "largest-object"] | None,
    typer.Option(
        help="Hide labels of fully labelled training images: keep one positive of each, by the published seed; up to "
        "data.positives of them; the share data.known of all labels; or the positive of the most frequent class or the "
        "largest object."
    ),
]
Format = Annotated[
    str | None, typer.Option(help="The dataset's format, see onepair datasets; auto goes by the layout.")
]
Folder = Annotated[
    Path | None, typer.Option(help="The folder that file names are relative to, if not the table's own.")
]
Unlisted = Annotated[
    Literal["unknown", "negative"] | None,
    typer.Option(help="What a class is that a row's list of labels leaves out; by default unknown."),
]
LabelColumns = Annotated[
    str | None, typer.Option(metavar="NAMES", help="The columns of a table that hold labels, as cat,dog.")
]
CompleteSplit = Annotated[
    str | None,
    typer.Option(metavar="SPLITS", help="Splits labelled in full, as test: what a row leaves out is negative."),
]
ConfigFile = Annotated[Path | None, typer.Option(help="A TOML file of settings; onepair config prints one.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any setting, as linear.optimiser.lr=0.01; 'none' is no value."),
]


def chosen_config(
    *,
    preset: str | None,
    file: Path | None,
    settings: Sequence[str] | None,
    data: str | None = None,
    method: str | None = None,
    mode: str | None = None,
    backbone: str | None = None,
    weights: str | None = None,
    observe: str | None = None,
    format: str | None = None,
    folder: Path | None = None,
    unlisted: str | None = None,
    label_columns: str | None = None,
    complete_split: str | None = None,
    strict: bool = False,
) -> "Config":
    """The configuration that a command line asks for; the later of preset, file, options and --set wins."""
    from onepair.runs.config import merge, parse_setting, read_config, resolve_config
    from onepair.runs.presets import with_preset

    options: dict[str, Any] = {
        "data": {
            "source": data,
            "observe": observe,
            "format": format,
            "images": None if folder is None else str(folder),
            "unlisted": unlisted,
            "label_columns": label_columns,
            "complete_splits": complete_split,
            "on_error": "raise" if strict else None,
        },
        "model": {"mode": mode, "backbone": backbone, "weights": weights},
        "method": {"name": method},
    }
    given = {section: {k: v for k, v in values.items() if v is not None} for section, values in options.items()}
    command_line = merge([given, *map(parse_setting, settings or [])])
    return resolve_config(*with_preset(preset, read_config(file) if file else {}, command_line))
