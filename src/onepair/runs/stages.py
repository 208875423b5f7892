"""What a stage of training is asked to do, and which stages there are."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic.dataclasses import dataclass

from onepair.runs.values import CHECKED, Above, AtLeast, Count, OrNothing, Share, Switch


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
    """The learning rate on features of a usual size in many steps; times as much as features are smaller, and larger
    where images are few, unless it is sgd's or features are not scaled."""
    weight_decay: AtLeast = 0.0
    """How strongly weights are pulled towards 0, beside the stage's penalty."""
    schedule: Literal["constant", "cosine"] = "cosine"
    """The learning rate over time: constant, or cosine, which falls to 0 along half a cosine."""


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
    """The stage that trains the classifier on fixed features."""

    epochs: Count = 25
    """Passes over the training images."""
    scaled: Switch = True
    """Whether neither size nor place of the features matters: learning begins at weights of 0, on features less their
    mean, at a rate that goes by their size; "false" takes features and rate as they are, and draws the weights."""
    penalty: AtLeast = 0.3
    """How strongly weights are held near 0, in units of what the features vary: 1 / C of OPMLClassifier; not adamw's,
    which has weight_decay."""
    optimiser: LinearOptimiserConfig = LinearOptimiserConfig()
    """How the weights move."""

    @property
    def holds(self) -> bool:
        """Whether the penalty does anything: to adamw, whose decay is no part of the loss, it cannot be given."""
        return self.penalty > 0 and self.optimiser.name != "adamw"


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
