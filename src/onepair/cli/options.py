"""Options that several commands share: how a dataset is read, and the settings of a run."""

import inspect
import shlex
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_type_hints

import typer

from onepair.errors import ConfigError, UserError

if TYPE_CHECKING:
    from onepair.data.label_table import LabelTable
    from onepair.dataset import Dataset
    from onepair.inference.engine import Executor
    from onepair.runs.config import Config
    from onepair.training.hardware import Hardware
    from onepair.workflow import Run

R = TypeVar("R")

MACHINE, DATASET = "Where it runs", "How the dataset is read"  # headings in the help

# What an option leaves open comes from the preset or the file, or else is the default of the configuration.
Backbone = Annotated[
    str | None,
    typer.Option(
        help="A network of timm by name, or small-cnn; tfidf for rows of text; auto: the best pretrained network whose "
        "weights are on this machine.",
        show_default="auto",
    ),
]
Weights = Annotated[
    str | None,
    typer.Option(
        help="A file of weights (safetensors or a torch state dict); 'pretrained' to download them; 'none' for random "
        "ones; 'auto': from an installed package if one has them, else downloaded.",
        show_default="auto",
    ),
]
Features = Annotated[
    str | None,
    typer.Option(
        metavar="VECTORS",
        rich_help_panel=DATASET,
        help="Feature vectors in place of images, one per row of the table: a .npy, .npz or Parquet file, or a folder "
        "of shards; by default there are none.",
    ),
]
MODES = "linear: a classifier on fixed features; finetune: the whole network; linear-init: one after the other."
Strict = Annotated[
    bool, typer.Option("--strict", help="Stop at the first row or image that cannot be read instead of skipping it.")
]
Devices = Annotated[
    str, typer.Option(metavar="N", rich_help_panel=MACHINE, help="How many processes or GPUs to use on this machine.")
]
Accelerator = Annotated[str, typer.Option(rich_help_panel=MACHINE, help="cpu, cuda, mps, or auto.")]
Workers = Annotated[
    int | None,
    typer.Option(
        min=0,
        rich_help_panel=MACHINE,
        help="Processes that read images; by default as many as there are cores to spare.",
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(min=0, rich_help_panel=MACHINE, help="Threads that read images; by default one per core."),
]
Cache = Annotated[
    Path | None,
    typer.Option(rich_help_panel=MACHINE, help="The cache folder of features; by default the user's cache."),
]
Engine = Annotated[
    Literal["auto", "ray"],
    typer.Option(
        rich_help_panel=MACHINE,
        help="Where images are computed: auto, in this process by the fastest runtime; or a Ray cluster.",
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        rich_help_panel=MACHINE,
        help="The Ray cluster, or auto for the one on this machine; by default a local cluster is started.",
    ),
]
Port = Annotated[int, typer.Option(min=0, max=65535, help="The port of the page; 0 takes any free port.")]
Host = Annotated[
    str,
    typer.Option(help="The address to listen on. Beyond this machine, the page asks for the token that is printed."),
]
Reviewer = Annotated[str | None, typer.Option(help="The name of who answers; by default your login name.")]
FollowLinks = Annotated[
    bool, typer.Option("--follow-links", help="Also show images that are links to outside of the dataset.")
]


def newest_run(path: Path | None) -> Path:
    """A run's folder; a project stands for its newest run, and nothing for the project of the current folder."""
    from onepair.runs.project import run_in

    return run_in(path)


def open_run(path: Path | None, hardware: "Hardware | None" = None) -> "Run":
    """Open a run; that there is none is said before torch is imported, which takes seconds."""
    from onepair.runs.folder import RunFolder

    folder = newest_run(path)
    RunFolder(folder).results()
    from onepair.workflow import Run

    return Run(folder, hardware=hardware)


FinishedRunFolder = Annotated[
    Path, typer.Argument(help="The folder of a finished run, or of a project.", callback=newest_run)
]
CurrentRun = Annotated[
    Path | None,
    typer.Argument(help="The folder of a run or a project; by default the project of the current folder."),
]


_SETTINGS = {"folder": "images", "complete_split": "complete_splits"}  # options that a configuration names otherwise


@dataclass(frozen=True)
class ReadOptions:
    """How a dataset is read; each field is an option."""

    format: Annotated[
        str | None,
        typer.Option(help="The dataset's format, see onepair datasets; auto detects it.", show_default="auto"),
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
            help="What a 0 in a table means: negative, or unknown where it only says 'not tagged'.",
            show_default="negative",
        ),
    ] = None
    spellings: Annotated[
        Literal["merge", "keep"] | None,
        typer.Option(
            help="Names of classes in a table that differ in case, spaces or an English plural: one class, or not.",
            show_default="merge",
        ),
    ] = None
    same: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Classes by other names, for example hund=dog,sofa=couch; by default none."),
    ] = None
    classes: Annotated[
        str | None,
        typer.Option(
            metavar="TABLE",
            help="A table of classes with columns name, same as, is a, not with: a dog is an animal, and no cat; "
            "by default none.",
        ),
    ] = None
    label_columns: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="The table's columns of classes, for example cat,dog, or its column of lists; by default detected.",
        ),
    ] = None
    complete_split: Annotated[
        str | None,
        typer.Option(
            metavar="SPLITS", help="Splits with complete labels, for example test: what a row leaves out is negative."
        ),
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
        return {_SETTINGS.get(name, name): value for name, value in asdict(self).items()}

    def over(self, settings: Mapping[str, str]) -> "ReadOptions":
        """Return these options, with settings of data where one was not given."""
        both: dict[str, Any] = {
            name: value or settings.get(_SETTINGS.get(name, name)) for name, value in asdict(self).items()
        }
        return ReadOptions(**both)

    def dataset(self, data: str, *, features: str | None = None, strict: bool = False) -> "Dataset":
        """Read a dataset."""
        from onepair.data.tables.cell_values import names_in
        from onepair.dataset import Dataset

        given = {name: value for name, value in asdict(self).items() if value is not None}
        for option, name in (("same", "same"), ("label_columns", "labels"), ("complete_split", "complete_splits")):
            if option in given:
                given[name] = names_in(given.pop(option)) or ()
        return Dataset.read(data, **given, features=features, strict=strict)

    def noted(self, data: str, *, strict: bool, features: str | None = None) -> "Dataset":
        """Read a dataset, and print what is remarkable about it or wrong."""
        from onepair.words import command, itemised

        dataset = self.dataset(data, features=features, strict=strict)
        if dataset.problems:
            rest = f"{command('check', data)} has all of them"
            typer.echo(itemised("noted about the labels:", dataset.problems, rest=rest), err=True)
        return dataset


@dataclass(frozen=True)
class RunOptions:
    """The settings of a run; each field is an option."""

    preset: Annotated[
        str | None,
        typer.Option(help="A preset of settings: voc2012, coco2014, nuswide, cub (the paper's) or digits."),
    ] = None
    method: Annotated[str | None, typer.Option(help="See onepair methods.", show_default="opml-plus")] = None
    mode: Annotated[
        Literal["linear", "finetune", "linear-init"] | None,
        typer.Option(metavar="MODE", help=MODES, show_default="linear"),
    ] = None
    backbone: Backbone = None
    weights: Weights = None
    head: Annotated[
        Literal["linear", "kernel"] | None,
        typer.Option(
            help="In mode linear: a linear classifier on the features, or one on an RBF kernel of them, which takes "
            "longer and is mostly better.",
            show_default="linear",
        ),
    ] = None
    observe: Annotated[
        Literal["given", "single-positive", "few-positives", "fraction", "most-frequent", "largest-object"] | None,
        typer.Option(
            metavar="RULE",
            help="Hide labels of fully labelled training images, to study what is lost. single-positive: keep one "
            "positive per image; few-positives: up to data.positives of them; fraction: the share data.known of all "
            "labels; most-frequent, largest-object: the positive of that class or object.",
            show_default="given",
        ),
    ] = None
    features: Features = None
    config: Annotated[Path | None, typer.Option(help="A TOML file of settings; onepair config prints one.")] = None
    seed: Annotated[
        int | None, typer.Option(min=0, help="The random seed of weights and batches.", show_default="0")
    ] = None
    epochs: Annotated[
        int | None,
        typer.Option(min=1, help="Epochs of a network that learns; fixed features need none.", show_default="10"),
    ] = None
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Any setting, for example linear.penalty=0.3; 'none' is no value."
        ),
    ] = None
    strict: Strict = False

    @property
    def words(self) -> list[str]:
        """What was given, as it is typed."""
        values = {name: value for name, value in asdict(self).items() if name not in ("settings", "strict")}
        words = [word for name, value in values.items() if value is not None for word in (f"--{name}", str(value))]
        words += [word for setting in self.settings or [] for word in ("--set", setting)]
        return [*words, *(["--strict"] if self.strict else [])]


for _option in get_type_hints(ReadOptions, include_extras=True).values():
    _option.__metadata__[0].rich_help_panel = DATASET
READ_DEFAULTS, RUN_DEFAULTS = ReadOptions(), RunOptions()


def with_options(command: Callable[..., R]) -> Callable[..., R]:
    """Give a command the fields of its dataclasses of options, each as an option of its own."""
    own = inspect.signature(command)
    groups: dict[str, tuple[Any, Mapping[str, inspect.Parameter]]] = {
        name: (each.annotation, inspect.signature(each.annotation).parameters)
        for name, each in own.parameters.items()
        if isinstance(each.annotation, type) and is_dataclass(each.annotation)
    }

    @wraps(command)
    def wrapped(*arguments: Any, **options: Any) -> R:
        for name, (group, fields) in groups.items():
            options[name] = group(**{field: options.pop(field) for field in fields if field in options})
        return command(*arguments, **options)

    parameters = [
        option.replace(kind=each.kind)
        for name, each in own.parameters.items()
        for option in (groups[name][1].values() if name in groups else [each])
    ]
    wrapped.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {each.name: each.annotation for each in parameters}
    return wrapped


def chosen_config(
    data: str | None = None, options: RunOptions = RUN_DEFAULTS, reading: ReadOptions = READ_DEFAULTS
) -> "Config":
    """The configuration that a command line asks for; the later of preset, file, options and --set wins."""
    from onepair.runs.config import merge, parse_setting, read_config, resolve_config, with_preset

    sections: dict[str, Any] = {
        "data": {
            "source": data,
            **reading.settings,
            "observe": options.observe,
            "features": options.features,
            "on_error": "raise" if options.strict else None,
        },
        "model": {"mode": options.mode, "backbone": options.backbone, "weights": options.weights},
        "method": {"name": options.method},
        "linear": {"head": options.head},
    }
    given = {section: {k: v for k, v in values.items() if v is not None} for section, values in sections.items()}
    seed = {} if options.seed is None else {"seed": options.seed}
    command_line = merge([given, seed, *map(parse_setting, options.settings or [])])
    layers = with_preset(options.preset, read_config(options.config) if options.config else {}, command_line)
    config = resolve_config(*layers)
    if options.epochs is not None:
        if config.solves:
            raise ConfigError(
                "--epochs is for a network that learns, and a classifier on fixed features is solved for; "
                "add --mode finetune, or leave it out"
            )
        config = resolve_config(*layers, {config.last_stage: {"epochs": options.epochs}})
    for name, process in (("known", "fraction"), ("positives", "few-positives"), ("boxes", "largest-object")):
        if name in command_line["data"] and config.data.observe != process:
            raise ConfigError(
                f"data.{name} says what is seen with --observe {process}, and here it is {config.data.observe}; "
                f"add --observe {process}, or leave it out"
            )
    return config


def number_or_auto(devices: str) -> int | Literal["auto"]:
    """What --devices asks for."""
    if devices == "auto":
        return "auto"
    if not devices.isdigit() or int(devices) == 0:
        raise UserError(f"--devices must be a number above 0, or auto, got {devices!r}")
    return int(devices)


def computed(engine: str, address: str | None) -> "AbstractContextManager[Executor]":
    """Where images are computed. What cannot be is refused at once; a cluster is started when it is needed."""
    if engine == "ray":
        from onepair.inference.ray_engine import Cluster

        return Cluster(address, on_start=lambda: typer.echo("starting Ray on this machine", err=True))
    if address is not None:
        raise UserError(f"--address {address}: is that of a Ray cluster; add --engine ray, or leave it out")
    from onepair.inference.engine import local

    return nullcontext(local)


def say_how_to_train(written: Path, table: "LabelTable") -> None:
    """Of a table that was written here while its images are at URLs."""
    from onepair.remote import is_remote

    if is_remote(table.root):
        again = shlex.join(["onepair", "train", str(written), "--folder", str(table.root)])
        typer.echo(f"its images are at URLs; to train on it: {again}")


def say_where_images_are(written: Path, source: str, table: "LabelTable") -> None:
    """Of a table in the form of another one, whose file names are relative to a folder that it is not in."""
    from onepair.remote import as_path

    if table.ids or written.absolute().parent == as_path(source).absolute().parent:
        return
    again = shlex.join(["onepair", "train", str(written), "--folder", str(table.root)])
    typer.echo(f"its files are named as in {source}; to train on it: {again}")
