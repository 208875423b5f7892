"""From a row of an experiment to the configuration of a run."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from onepair.experiments.datasets import Dataset
from onepair.experiments.records import Row, Values
from onepair.runs.config import Config, merge, resolve_config

Mode = Literal["linear", "finetune"]


@dataclass(frozen=True)
class Wishes:
    """What a user wants otherwise than the settings of a dataset have it."""

    mode: Mode = "finetune"
    backbone: str | None = None
    epochs: int | None = None
    others: Sequence[Mapping[str, Any]] = ()  # nested settings, as of `parse_setting`


def make_config(
    dataset: Dataset, row: Row, values: Values, *, seed: int, wishes: Wishes, epochs: int | None = None
) -> Config:
    """The configuration of one run.

    Args:
        dataset, row: what is learned from what, with the settings of `settings.toml`.
        values: options of the method and `lr` that win over those settings, as one point of a grid.
        seed: of the run; that of the observed labels is the published one.
        wishes: win over everything.
        epochs: of the experiment, where it has a number of its own.
    """
    options = {name: value for name, value in values.items() if name != "lr"}
    chosen: dict[str, Any] = {
        "data": {
            "source": dataset.source,
            "format": dataset.format,
            "observe": "given" if row.labels == "full" else "single-positive",
        },
        "model": {"mode": "linear-init" if row.linear_init else wishes.mode},
        "method": {"name": row.method, "options": options},
        "seed": seed,
    }
    if wishes.backbone is not None:
        chosen["model"]["backbone"] = wishes.backbone
    if "lr" in values:
        chosen["optimiser"] = {"lr": values["lr"]}
    length = wishes.epochs or epochs
    if length is not None:
        chosen["linear_epochs" if wishes.mode == "linear" else "epochs"] = length
    return resolve_config(settings_of(dataset.name, row.method), chosen, *wishes.others)


def settings_of(dataset: str, method: str) -> dict[str, Any]:
    """How a dataset is trained with a method, as a configuration file would say it.

    >>> settings_of("cub", "opml")["method"]["options"]
    {'alpha': 0.9, 'beta': 0.5}
    """
    everything = _settings()
    own = everything.get(dataset, {})
    layers = [own] if dataset == "digits" or not own else [everything["paper"], own]
    wanted = merge([layer.get("methods", {}).get(method, {}) for layer in layers])
    options = wanted.pop("options", {})
    merged = merge([*layers, wanted, {"method": {"name": method, "options": options}}])
    merged.pop("methods", None)
    return merged


@cache
def _settings() -> dict[str, Any]:
    return tomllib.loads(files(__package__).joinpath("settings.toml").read_text("utf-8"))
