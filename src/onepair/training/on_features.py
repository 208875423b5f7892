"""A classifier on fixed features: how it begins, and how the weights that it learned become those of plain features."""

from collections.abc import Mapping
from math import ceil, log2, sqrt
from typing import NamedTuple

from torch import Tensor, nn

from onepair.inference.inputs import FeatureSource
from onepair.labels import Indices
from onepair.runs.stages import LinearConfig
from onepair.training.optimisation import Group

_USUAL_SIZE = 271.0  # of features: EfficientNet-Lite0's on VOC 2012, on which the learning rate was chosen
_ENOUGH_STEPS = 3000  # of training: 25 epochs of 1,920 images in batches of 16


class Start(NamedTuple):
    """What a head learns from, and what of it learns alike."""

    source: FeatureSource
    groups: list[Group]


def begin_on_features(
    head: nn.Linear, source: FeatureSource, rows: Indices, config: LinearConfig, *, sums_labels: bool
) -> Start:
    """Make a head ready to learn from the features of some rows.

    If they are to be scaled, neither their size nor their place matters: they are brought to a usual size, but for a
    factor below 2, so that no number on the way is too small or too large. A step of Adam moves every weight by about
    the learning rate, and so a score by that times the sum of the absolute values of a row; for the bias that sum is 1.
    Where rows are few, or batches large, there are too few steps, and they are longer: by the square root of how many
    times too few, as far as steps in random directions lead. A step of SGD goes by the gradient, and features and rate
    stay as they are.

    The penalty of `OPMLClassifier` with C = 1 / `config.penalty`, in a loss that is a mean over the rows:

        penalty · v / (2 N) ‖W‖²,   v = the sum of the features' variances

    and divided by the number of classes, too, unless the loss `sums_labels`.

    >>> import numpy as np, torch
    >>> head, source = nn.Linear(2, 3), FeatureSource(torch.tensor([[1.0, 0.5], [2.0, 0.5], [3.0, 2.0]]))
    >>> start = begin_on_features(head, source, np.arange(3), LinearConfig(), sums_labels=True)
    >>> [(group.only, round(group.lr_factor)) for group in start.groups]
    [('weight', 9), ('bias', 2969)]
    """
    weight_rate = bias_rate = 1.0
    if config.scaled:
        source = source.levelled(rows)
        for parameter in head.parameters():
            nn.init.zeros_(parameter)
        if config.optimiser.name != "sgd":
            steps, size = config.epochs * ceil(len(rows) / config.batch_size), source.size(rows)
            bias_rate = _USUAL_SIZE * sqrt(max(1.0, _ENOUGH_STEPS / steps))
            if size > 0:
                unit = 2.0 ** round(log2(size / _USUAL_SIZE))
                source, weight_rate = source.in_units_of(unit), bias_rate / (size / unit)
    penalty = config.penalty * source.variance(rows) / len(rows) if config.holds else 0.0
    penalty = penalty if sums_labels else penalty / head.out_features
    return Start(
        source, [Group(head, weight_rate, penalty=penalty, only="weight"), Group(head, bias_rate, only="bias")]
    )


def on_plain_features(weights: Mapping[str, Tensor], source: FeatureSource) -> dict[str, Tensor]:
    """The weights of a head for features as they are, of those that it learned for what the source makes of them.

    >>> import torch
    >>> source = FeatureSource(torch.zeros(1, 1), centre=torch.tensor([3.0]), scale=torch.tensor([4.0]))
    >>> on_plain_features({"weight": torch.tensor([[2.0]]), "bias": torch.tensor([1.0])}, source)
    {'weight': tensor([[0.5000]]), 'bias': tensor([-0.5000])}
    """
    weight, bias = (weights[name].cpu().double() for name in ("weight", "bias"))
    if source.scale is not None:
        weight = weight / source.scale.cpu().double()
    if source.centre is not None:
        bias = bias - weight @ source.centre.cpu().double()
    moved = {"weight": weight, "bias": bias}
    return {name: moved[name].to(before.dtype).to(before.device) for name, before in weights.items()}
