"""What a stage of training is asked to do, and which stages there are."""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator
from pydantic.dataclasses import dataclass

from onepair.runs.values import CHECKED, Above, AtLeast, Count, OrNothing, Share, Switch

AUTO: Literal["auto"] = "auto"  # of what goes by what is there


def _penalty(value: Any) -> Any:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if value != AUTO and not (number and 0 < value < math.inf):
        raise ValueError(f"linear.penalty must be a number above 0, or auto, got {value!r}")
    return value if value == AUTO else float(value)


@dataclass(frozen=True, config=CHECKED)
class OptimiserConfig:
    """How the weights move."""

    name: Literal["sgd", "adam", "adamw"] = "sgd"
    """The rule: sgd, adam or adamw."""
    lr: Above = 1e-4
    """The learning rate."""
    momentum: AtLeast = 0.9
    """Of sgd; the others have none to set."""
    weight_decay: AtLeast = 1e-3
    """How strongly weights are pulled towards 0."""
    schedule: Literal["constant", "cosine"] = "constant"
    """The learning rate over time: constant, or cosine, which falls to 0 along half a cosine."""
    warmup_epochs: AtLeast = 0.0
    """Epochs over which the learning rate grows from 0."""
    ema: Annotated[Share | None, OrNothing] = None
    """Decay per step of averaged weights, as 0.999, which are then the ones evaluated; "none" averages nothing."""


@dataclass(frozen=True, config=CHECKED)
class LinearOptimiserConfig(OptimiserConfig):
    """How the classifier's weights move on fixed features."""

    name: Literal["sgd", "adam", "adamw"] = "adam"
    """The rule: sgd, adam or adamw."""
    lr: Above = 3e-4
    """The learning rate."""
    weight_decay: AtLeast = 0.0
    """How strongly weights are pulled towards 0."""


@dataclass(frozen=True, config=CHECKED)
class FinetuneOptimiserConfig(OptimiserConfig):
    """How all weights of a network move."""

    head_lr_multiplier: AtLeast = 10.0
    """The factor on the learning rate of the classifier, which learns beside the network."""


@dataclass(frozen=True, config=CHECKED)
class StageConfig:
    """One stage of training."""

    epochs: Count = 10
    """Passes over the training images."""
    batch_size: Count = 16
    """Images of a step, those of all processes together."""
    optimiser: OptimiserConfig = OptimiserConfig()
    """How the weights move."""


@dataclass(frozen=True, config=CHECKED)
class LinearConfig(StageConfig):
    """The stage that fits the classifier to fixed features."""

    protocol: Literal["solve", "epochs"] = "solve"
    """How: "solve", by a solver on all training images, with an L2 penalty; or "epochs", the published protocol, by
    epochs of an optimiser and the best of them on validation images."""
    penalty: Annotated[float | Literal["auto"], BeforeValidator(_penalty)] = AUTO
    """The strength of the L2 penalty, 1 / C of OPMLClassifier, where protocol is "solve"; "auto" tries some and keeps
    the one with the highest estimated mAP, out of fold."""
    epochs: Count = 25
    """Passes over the training images, where protocol is "epochs"."""
    batch_size: Count = 16
    """Images of a step, where protocol is "epochs"."""
    optimiser: LinearOptimiserConfig = LinearOptimiserConfig()
    """How the weights move, where protocol is "epochs"."""


@dataclass(frozen=True, config=CHECKED)
class FinetuneConfig(StageConfig):
    """The stage that trains the whole network."""

    hold_norms: Switch = False
    """Whether batch norms keep the means and variances that they have, in place of those of every batch: for a
    pretrained network and small batches."""
    optimiser: FinetuneOptimiserConfig = FinetuneOptimiserConfig()
    """How the weights move."""


STAGES: Mapping[str, Sequence[Literal["linear", "finetune"]]] = {  # by mode
    "linear": ("linear",),
    "finetune": ("finetune",),
    "linear-init": ("linear", "finetune"),
}
