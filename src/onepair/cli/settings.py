"""The settings of a run as a user gives them: a preset, a file, options, and any others."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from onepair.cli.reading import UNSAID, Reading
from onepair.errors import UserError

if TYPE_CHECKING:
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
    reading: Reading = UNSAID,
    features: str | None = None,
    strict: bool = False,
) -> "Config":
    """The configuration that a command line asks for; the later of preset, file, options and --set wins."""
    from onepair.runs.config import ConfigError, merge, parse_setting, read_config, resolve_config
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
