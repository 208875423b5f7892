"""A network split at a stage: what lies before it stays frozen, what follows is trained."""

import copy
import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from onepair.errors import ConfigError
from onepair.models.backbone import Backbone, Classifier

_MOST_NAMED = 24  # stages in a sentence
_TOLERANCE = 1e-4  # of the largest feature


class FrozenPrefix(NamedTuple):
    """The part of a network before a stage, and what follows it."""

    backbone: Backbone  # a copy of what lies before the stage: from images to what the stage takes of them, (B, D)
    shape: tuple[int, ...]  # of what the stage takes of one image
    steps: tuple[str, ...]  # the modules that follow each other from the stage to the last features
    trainable: tuple[str, ...]  # the modules that learn: the steps, and what makes one vector of the features


class TrainableSuffix(nn.Module):
    """A classifier that begins at a stage: from what the stage takes (B, D) to logits (B, L).

    Its weights are the classifier's own, and those that lie before the stage do not learn.
    """

    def __init__(self, classifier: Classifier, cut: FrozenPrefix) -> None:
        super().__init__()
        self.classifier, self.shape, self.steps = classifier, cut.shape, cut.steps
        network = classifier.backbone.network.requires_grad_(False)
        for name in cut.trainable:
            network.get_submodule(name).requires_grad_()

    def forward(self, activations: Tensor) -> Tensor:
        given = _unrolled(activations, self.shape)
        return self.classifier.of_features(_after(self.classifier.backbone.network, self.steps, given))


def split_at(backbone: Backbone, stage: str) -> FrozenPrefix:
    """Split a backbone at one of its modules, as "blocks.5" of an EfficientNet or "layer4" of a ResNet.

    Which modules follow each other is seen in one forward pass: each takes what the one before has given. So any module
    will do that all information goes through; of others it is said that they will not.
    """
    network: Any = backbone.network
    size = backbone.preprocessing.size
    probe = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(0))
    probe = probe.to(backbone.device)
    was_training = network.training
    network.eval()
    try:
        with torch.no_grad():
            return _cut(backbone, stage, probe)
    finally:
        network.train(was_training)


def _cut(backbone: Backbone, stage: str, probe: Tensor) -> FrozenPrefix:
    network: Any = backbone.network
    calls, features = _watch(network, lambda: network.forward_features(probe))
    steps = _steps(calls, stage, features)
    if steps is None:
        raise _no_stage(backbone.name, stage, [call.name for call in calls if _steps(calls, call.name, features)])
    head, expected = _watch(network, lambda: network.forward_head(features.clone()))
    cut_off = _CutOff(network, steps)
    given = cut_off.network.forward_features(probe)
    cut_off.num_features = given[0].numel()
    shape, names = tuple(given.shape[1:]), [call.name for call in head if call.name]
    again = network.forward_head(_after(network, steps, _unrolled(cut_off(probe), shape)))
    if (again - expected).abs().max() > _TOLERANCE * expected.abs().max():
        raise ConfigError(
            f"{backbone.name} cannot be cut at {stage}, past which other information goes; name a whole stage"
        )
    before = Backbone(f"{backbone.name}-before-{stage}", cut_off, backbone.preprocessing).eval()
    return FrozenPrefix(before, shape, steps, (*steps, *names))


class _CutOff(nn.Module):
    """What lies before a stage: from images to what the stage takes, each image's in one row."""

    num_features: int

    def __init__(self, network: nn.Module, steps: Sequence[str]) -> None:
        super().__init__()
        self.network: Any = copy.deepcopy(network)
        for name in steps:
            parent, _, child = name.rpartition(".")
            setattr(self.network.get_submodule(parent), child, nn.Identity())

    def forward(self, images: Tensor) -> Tensor:
        return _rolled(self.network.forward_features(images))


def _after(network: Any, steps: Sequence[str], given: Tensor) -> Tensor:
    """The last features before the head that a network makes of what a stage takes."""
    for name in steps:
        given = network.get_submodule(name)(given)
    return given


def _rolled(given: Tensor) -> Tensor:
    """Each image's values in one row, those of a place beside each other: the order in which convolutions are fast."""
    return (given.movedim(1, -1) if given.ndim == 4 else given).flatten(1)


def _unrolled(rows: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The way back, without a copy."""
    if len(shape) != 3:
        return rows.view(len(rows), *shape)
    channels, height, width = shape
    return rows.view(len(rows), height, width, channels).movedim(-1, 1)


@dataclass
class _Call:
    """One call of a module in a forward pass."""

    name: str
    begun: int  # counting beginnings and ends together
    taken: Any
    given: Any = None
    ended: int = -1


def _watch(network: nn.Module, action: Callable[[], Tensor]) -> tuple[list[_Call], Tensor]:
    """All calls of a network's modules during an action, in the order in which they begin, and what it returns."""
    calls: list[_Call] = []
    open_calls: list[_Call] = []
    clock = iter(range(10**9))

    def begin(name: str) -> Callable[..., None]:
        def note(_: nn.Module, inputs: tuple[Any, ...]) -> None:
            calls.append(_Call(name, next(clock), inputs[0] if inputs else None))
            open_calls.append(calls[-1])

        return note

    def end(_: nn.Module, __: Any, output: Any) -> None:
        call = open_calls.pop()
        call.given, call.ended = output, next(clock)

    hooks = [module.register_forward_pre_hook(begin(name)) for name, module in network.named_modules()]
    hooks += [module.register_forward_hook(end) for module in network.modules()]
    try:
        return calls, action()
    finally:
        for hook in hooks:
            hook.remove()


def _steps(calls: Sequence[_Call], stage: str, end: Tensor) -> tuple[str, ...] | None:
    """The modules that lead from a stage to the last features, the largest of those that begin with it; or None."""
    steps: list[_Call] = []
    following: _Call | None = next((call for call in calls if call.name == stage and stage), None)
    while following is not None:
        last = following
        steps.append(last)
        following = next((call for call in calls if call.begun > last.ended and call.taken is last.given), None)
    return tuple(call.name for call in steps) if steps and steps[-1].given is end else None


def _no_stage(name: str, stage: str, stages: Sequence[str]) -> ConfigError:
    outer = [each for each in dict.fromkeys(stages) if each.count(".") <= 1]
    near = difflib.get_close_matches(stage, outer, n=1)
    more = ", …" if len(outer) > _MOST_NAMED else ""
    there = f"did you mean {near[0]}?" if near else f"there are {', '.join(outer[:_MOST_NAMED])}{more}"
    return ConfigError(f"{name} cannot be trained from {stage!r}; {there}")
