"""From a row of an experiment to the configuration of a run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from onepair.experiments.datasets import Dataset
from onepair.experiments.records import Row, Values
from onepair.runs.config import Config, merge, nested, resolve_config
from onepair.runs.presets import preset, preset_titles
from onepair.runs.stages import STAGES

Mode = Literal["linear", "finetune", "linear-init"]
OBSERVE = {"single": "single-positive", "full": "given", "fraction": "fraction"}  # by the labels of a row

PAPER = "resnet50.tv_in1k"  # the backbone, where no preset names one


@dataclass(frozen=True)
class Wishes:
    """What a user wants otherwise than the preset of a dataset has it."""

    mode: Mode = "finetune"
    backbone: str | None = None
    epochs: int | None = None
    others: Sequence[Mapping[str, Any]] = ()  # nested settings, as of `parse_setting`


def make_config(
    dataset: Dataset, row: Row, values: Values, *, seed: int, wishes: Wishes, epochs: int | None = None
) -> Config:
    """The configuration of one run.

    Args:
        dataset, row: what is learned from what, with the settings of its preset, if there is one.
        values: options of the method, `lr` and other settings that win over those, as one point of a grid.
        seed: of the run; that of the observed labels is the published one.
        wishes: win over everything.
        epochs: of the experiment, where it has a number of its own.
    """
    settings = [nested(name, value) for name, value in values.items() if "." in name]
    options = {name: value for name, value in values.items() if name != "lr" and "." not in name}
    mode = "linear-init" if row.linear_init else wishes.mode
    chosen: dict[str, Any] = {
        "data": {
            "source": dataset.source,
            "format": dataset.format,
            "observe": OBSERVE[row.labels],
        },
        "model": {"mode": mode},
        "method": {"name": row.method, "options": options},
        "seed": seed,
    }
    if wishes.backbone is not None:
        chosen["model"]["backbone"] = wishes.backbone
    last: dict[str, Any] = {}
    if "lr" in values:
        last["optimiser"] = {"lr": values["lr"]}
    if length := wishes.epochs or epochs:
        last["epochs"] = length
    below = preset(dataset.name, row.method) if dataset.name in preset_titles() else {"model": {"backbone": PAPER}}
    below = merge([{"linear": {"protocol": "epochs"}}, below])
    return resolve_config(below, merge([chosen, {STAGES[mode][-1]: last}, *settings, *wishes.others]))
