"""The settings of a run as a user gives them: a preset, a file, options, and any others."""

import shlex
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from onepair.errors import UserError

if TYPE_CHECKING:
    from onepair.data.labeltable import LabelTable
    from onepair.inference.engine import Over
    from onepair.runs.config import Config

Preset = Annotated[
    str | None,
    typer.Option(help="Settings that are known to work: voc2012, coco2014, nuswide, cub (the paper's) or digits."),
]
# What an option leaves open comes from the preset or the file, or else is the default of the configuration.
Method = Annotated[str | None, typer.Option(help="See onepair methods.", show_default="opml-plus")]
Mode = Annotated[
    Literal["linear", "finetune", "linear-init"] | None,
    typer.Option(
        help="Train the classifier on fixed features, the whole network, or one after the other.",
        show_default="finetune",
    ),
]
Backbone = Annotated[
    str | None,
    typer.Option(
        help="A network of timm's, by name, or small-cnn; or tfidf, for rows of text.", show_default="resnet50.tv_in1k"
    ),
]
Weights = Annotated[
    str | None,
    typer.Option(
        help="A file of weights (safetensors or a torch state dict), 'pretrained' to download, 'none' (random ones), "
        "or 'auto': from a package if one has them, else downloaded.",
        show_default="auto",
    ),
]
Observe = Annotated[
    Literal["given", "single-positive", "few-positives", "fraction", "most-frequent", "largest-object"] | None,
    typer.Option(
        help="Hide labels of fully labelled training images: keep one positive of each, by the published seed; up to "
        "data.positives of them; the share data.known of all labels; or the positive of the most frequent class or the "
        "largest object.",
        show_default="given",
    ),
]
Format = Annotated[
    str | None,
    typer.Option(help="The dataset's format, see onepair datasets; auto goes by the layout.", show_default="auto"),
]
Folder = Annotated[
    str | None,
    typer.Option(
        metavar="PATH", help="The folder or URL that file names are relative to; by default the table's own folder."
    ),
]
Features = Annotated[
    str | None,
    typer.Option(
        metavar="VECTORS",
        help="Vectors in place of images, one for each row of the table: a .npy, .npz or Parquet file, or a folder of "
        "shards; by default there are none.",
    ),
]
Unlisted = Annotated[
    Literal["unknown", "negative"] | None,
    typer.Option(help="What a class is that a row's list of labels leaves out.", show_default="unknown"),
]
LabelColumns = Annotated[
    str | None,
    typer.Option(
        metavar="NAMES", help="A table's columns of classes, as cat,dog, or the one with lists; by default recognised."
    ),
]
CompleteSplit = Annotated[
    str | None,
    typer.Option(metavar="SPLITS", help="Splits labelled in full, as test: what a row leaves out is negative."),
]
Strict = Annotated[
    bool,
    typer.Option("--strict", help="Stop at the first row or image that cannot be read, instead of leaving it out."),
]
Workers = Annotated[
    int | None, typer.Option(min=0, help="Processes that read images; by default as many as there are cores to spare.")
]
Cache = Annotated[Path | None, typer.Option(help="The folder that features are kept in; by default the user's cache.")]
Engine = Annotated[
    Literal["auto", "ray"],
    typer.Option(help="What computes images: this process, by the fastest that it has, or a Ray cluster."),
]
Address = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT", help="The Ray cluster, or auto for this machine's; by default one is started, here alone."
    ),
]
ConfigFile = Annotated[Path | None, typer.Option(help="A TOML file of settings; onepair config prints one.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any setting, as linear.optimiser.lr=0.01; 'none' is no value."),
]


def computed(engine: str, address: str | None) -> "AbstractContextManager[Over]":
    """Where images are computed. What cannot be is refused at once; a cluster is started when it is needed."""
    if engine == "ray":
        from onepair.inference.ray_cluster import Cluster

        return Cluster(address, say=lambda sentence: typer.echo(sentence, err=True))
    if address is not None:
        raise UserError(f"--address {address}: is that of a Ray cluster; add --engine ray, or leave it out")
    from onepair.inference.engine import here

    return nullcontext(here)


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
    folder: str | None = None,
    features: str | None = None,
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
            "images": folder,
            "features": features,
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


def read_as_asked(
    data: str,
    *,
    format: str | None,
    folder: str | None,
    unlisted: Literal["unknown", "negative"] | None,
    label_columns: str | None,
    complete_split: str | None,
    strict: bool,
    features: str | None = None,
) -> "LabelTable":
    """The dataset that a command line names. What is remarkable about it, or wrong, is said, and no reason to stop."""
    from onepair.data.dialects import names_in
    from onepair.data.problems import Problem, noting
    from onepair.data.reading import read_dataset
    from onepair.words import itemised

    found: list[Problem] = []
    table = read_dataset(
        data,
        format=format or "auto",
        unlisted=unlisted or "unknown",
        images=folder,
        label_columns=names_in(label_columns),
        complete_splits=names_in(complete_split) or (),
        features=features,
        report=noting(found, strict=strict),
    )
    if found:
        typer.echo(itemised("noted about the labels:", found, rest=f"onepair check {data} has all of them"), err=True)
    return table


def say_how_to_train(written: Path, table: "LabelTable") -> None:
    """Of a table that was written here while its images are at URLs."""
    from onepair.remote import is_remote

    if is_remote(table.root):
        again = shlex.join(["onepair", "train", str(written), "--folder", str(table.root)])
        typer.echo(f"its images are at URLs; to train on it: {again}")
