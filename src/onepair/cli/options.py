"""Options that several commands share: how a dataset is read, and the settings of a run."""

import inspect
import shlex
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from onepair.errors import UserError

if TYPE_CHECKING:
    from onepair.data.label_table import LabelTable
    from onepair.data.problems import Report
    from onepair.inference.engine import Over
    from onepair.runs.config import Config


R = TypeVar("R")

Features = Annotated[
    str | None,
    typer.Option(
        metavar="VECTORS",
        help="Vectors in place of images, one for each row of the table: a .npy, .npz or Parquet file, or a folder of "
        "shards; by default there are none.",
    ),
]
Strict = Annotated[
    bool,
    typer.Option("--strict", help="Stop at the first row or image that cannot be read, instead of leaving it out."),
]


@dataclass(frozen=True)
class ReadOptions:
    """What a command line says of how a dataset is read; each field is an option."""

    format: Annotated[
        str | None,
        typer.Option(help="The dataset's format, see onepair datasets; auto goes by the layout.", show_default="auto"),
    ] = None
    folder: Annotated[
        str | None,
        typer.Option(
            metavar="PATH", help="The folder or URL that file names are relative to; by default the table's own folder."
        ),
    ] = None
    unlisted: Annotated[
        Literal["unknown", "negative"] | None,
        typer.Option(help="What a class is that a row's list of labels leaves out.", show_default="unknown"),
    ] = None
    zeros: Annotated[
        Literal["negative", "unknown"] | None,
        typer.Option(
            help="What a 0 of a table is: negative, or unknown where it means no more than 'not tagged'.",
            show_default="negative",
        ),
    ] = None
    label_columns: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="A table's columns of classes, as cat,dog, or the one with lists; by default recognised.",
        ),
    ] = None
    complete_split: Annotated[
        str | None,
        typer.Option(metavar="SPLITS", help="Splits labelled in full, as test: what a row leaves out is negative."),
    ] = None

    @property
    def given(self) -> dict[str, str]:
        """What was given, by the names of the options."""
        return {f"--{name.replace('_', '-')}": value for name, value in asdict(self).items() if value is not None}

    @property
    def words(self) -> list[str]:
        """What was given, as it is typed."""
        return [word for option in self.given.items() for word in option]

    @property
    def settings(self) -> dict[str, str | None]:
        """The same as settings of data in a configuration."""
        names = {"folder": "images", "complete_split": "complete_splits"}
        return {names.get(name, name): value for name, value in asdict(self).items()}

    def table(self, data: str, *, features: str | None, report: "Report") -> "LabelTable":
        """The dataset, read as `data.reading.read_dataset` does."""
        from onepair.data.formats.read import read_dataset
        from onepair.data.tables.cell_values import names_in

        return read_dataset(
            data,
            format=self.format or "auto",
            unlisted=self.unlisted or "unknown",
            zeros=self.zeros or "negative",
            images=self.folder,
            label_columns=names_in(self.label_columns),
            complete_splits=names_in(self.complete_split) or (),
            features=features,
            report=report,
        )

    def noted_table(self, data: str, *, strict: bool, features: str | None = None) -> "LabelTable":
        """The dataset. What is remarkable about it, or wrong, is said, and no reason to stop."""
        from onepair.data.problems import Problem, collect
        from onepair.words import command, itemised

        found: list[Problem] = []
        table = self.table(data, features=features, report=collect(found, strict=strict))
        if found:
            rest = f"{command('check', data)} has all of them"
            typer.echo(itemised("noted about the labels:", found, rest=rest), err=True)
        return table


DEFAULTS = ReadOptions()


def reads_data(command: Callable[..., R]) -> Callable[..., R]:
    """Give a command the options of `ReadOptions`, each by its name, where it takes all of them as `reading`."""
    fields = inspect.signature(ReadOptions).parameters
    own = inspect.signature(command)

    @wraps(command)
    def taking(*arguments: Any, **options: Any) -> R:
        given = {name: options.pop(name) for name in fields if name in options}
        return command(*arguments, reading=ReadOptions(**given), **options)

    parameters = list(own.parameters.values())
    place = list(own.parameters).index("reading")
    parameters[place : place + 1] = [each.replace(kind=parameters[place].kind) for each in fields.values()]
    taking.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    taking.__annotations__ = {each.name: each.annotation for each in parameters}
    return taking


def say_how_to_train(written: Path, table: "LabelTable") -> None:
    """Of a table that was written here while its images are at URLs."""
    from onepair.remote import is_remote

    if is_remote(table.root):
        again = shlex.join(["onepair", "train", str(written), "--folder", str(table.root)])
        typer.echo(f"its images are at URLs; to train on it: {again}")


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
        show_default="linear",
    ),
]
Backbone = Annotated[
    str | None,
    typer.Option(
        help="A network of timm's, by name, or small-cnn; tfidf, for rows of text; or auto: that, or the best network "
        "whose weights are on this machine.",
        show_default="auto",
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
    typer.Option("--set", metavar="KEY=VALUE", help="Any setting, as linear.penalty=0.3; 'none' is no value."),
]


def computed(engine: str, address: str | None) -> "AbstractContextManager[Over]":
    """Where images are computed. What cannot be is refused at once; a cluster is started when it is needed."""
    if engine == "ray":
        from onepair.inference.ray_engine import Cluster

        return Cluster(address, say=lambda sentence: typer.echo(sentence, err=True))
    if address is not None:
        raise UserError(f"--address {address}: is that of a Ray cluster; add --engine ray, or leave it out")
    from onepair.inference.engine import here

    return nullcontext(here)


def chosen_config(
    *,
    preset: str | None = None,
    file: Path | None = None,
    settings: Sequence[str] | None = None,
    data: str | None = None,
    method: str | None = None,
    mode: str | None = None,
    backbone: str | None = None,
    weights: str | None = None,
    observe: str | None = None,
    reading: ReadOptions = DEFAULTS,
    features: str | None = None,
    strict: bool = False,
) -> "Config":
    """The configuration that a command line asks for; the later of preset, file, options and --set wins."""
    from onepair.errors import ConfigError
    from onepair.runs.config import merge, parse_setting, read_config, resolve_config
    from onepair.runs.presets import with_preset

    options: dict[str, Any] = {
        "data": {
            "source": data,
            **reading.settings,
            "observe": observe,
            "features": features,
            "on_error": "raise" if strict else None,
        },
        "model": {"mode": mode, "backbone": backbone, "weights": weights},
        "method": {"name": method},
    }
    given = {section: {k: v for k, v in values.items() if v is not None} for section, values in options.items()}
    command_line = merge([given, *map(parse_setting, settings or [])])
    config = resolve_config(*with_preset(preset, read_config(file) if file else {}, command_line))
    for name, process in (("known", "fraction"), ("positives", "few-positives"), ("boxes", "largest-object")):
        if name in command_line["data"] and config.data.observe != process:
            raise ConfigError(
                f"data.{name} says what is seen with --observe {process}, and here it is {config.data.observe}; "
                f"add --observe {process}, or leave it out"
            )
    return config
