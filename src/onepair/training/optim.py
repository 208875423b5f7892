"""Optimisers, the learning rate over time, and averaged weights."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from onepair.runs.config import OptimiserConfig


class Group(NamedTuple):
    """What learns alike."""

    module: nn.Module
    lr_factor: float = 1.0  # on the learning rate
    decays: bool = True  # whether weight decay pulls it towards 0

    def members(self) -> list[nn.Parameter]:
        """The parameters that learn, as the module has them now: a strategy may have put others in their place."""
        return [each for each in self.module.parameters() if each.requires_grad]


def make_optimiser(config: OptimiserConfig, groups: Iterable[Group]) -> Optimizer:
    """An optimiser that remembers each group's own learning rate as `base_lr`."""
    parameters: list[dict[str, Any]] = [
        {
            "params": members,
            "lr": config.lr * group.lr_factor,
            "base_lr": config.lr * group.lr_factor,
            "weight_decay": config.weight_decay if group.decays else 0.0,
        }
        for group in groups
        if (members := group.members())
    ]
    if config.name == "sgd":
        return SGD(parameters, momentum=config.momentum, fused=True)
    kind = Adam if config.name == "adam" else AdamW
    return kind(parameters, fused=True)


def restore(optimiser: Optimizer, state: Mapping[str, Any]) -> None:
    """Load a state whose tensors lie in memory in any order. A fused step takes theirs for that of the parameters.

    Rates and the like are the optimiser's own: the state has what was gathered on the way.
    """
    groups = optimiser.state_dict()["param_groups"]
    optimiser.load_state_dict({"state": state["state"], "param_groups": groups})
    names = {"momentum_buffer"} if "momentum" in groups[0] else {"step", "exp_avg", "exp_avg_sq"}
    for parameter, values in optimiser.state.items():
        shapes = {name: () if name == "step" else parameter.shape for name in names}
        if values and shapes != {name: getattr(value, "shape", None) for name, value in values.items()}:
            raise ValueError("the state of the optimiser is that of another one")
        for name in values.keys() - {"step"}:
            own = torch.empty_like(parameter, dtype=values[name].dtype)
            values[name] = own.copy_(values[name])


def lr_factor(config: OptimiserConfig, progress: float, epochs: int) -> float:
    """The factor on every learning rate after `progress` epochs of `epochs`: a linear warm-up, then the schedule.

    >>> lr_factor(OptimiserConfig(schedule="cosine"), 5.0, 10)
    0.5
    """
    warm_up = min(1.0, progress / config.warmup_epochs) if config.warmup_epochs else 1.0
    if config.schedule == "constant":
        return warm_up
    return warm_up * 0.5 * (1 + math.cos(math.pi * progress / epochs))


def set_lr(optimiser: Optimizer, factor: float) -> None:
    for group in optimiser.param_groups:
        group["lr"] = group["base_lr"] * factor


def averaged(model: nn.Module, decay: float) -> AveragedModel:
    """An exponential moving average of a model's weights; buffers, as those of batch norms, are averaged too."""
    rule = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]
    average_of = AveragedModel(model, multi_avg_fn=rule, use_buffers=True)
    return average_of.requires_grad_(False).to(next(model.parameters(), torch.empty(0)).device)
