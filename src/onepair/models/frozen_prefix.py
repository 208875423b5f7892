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

    def __init__(self, classifier: Classifier, prefix: FrozenPrefix) -> None:
        super().__init__()
        self.classifier, self.shape, self.steps = classifier, prefix.shape, prefix.steps
        network = classifier.backbone.network.requires_grad_(False)
        for name in prefix.trainable:
            network.get_submodule(name).requires_grad_()

    def forward(self, activations: Tensor) -> Tensor:
        given = _unflatten(activations, self.shape)
        return self.classifier.of_features(_after(self.classifier.backbone.network, self.steps, given))


def split_at(backbone: Backbone, stage: str) -> FrozenPrefix:
    """Split a backbone at one of its modules, as "blocks.5" of an EfficientNet or "layer4" of a ResNet.

    Which modules follow each other is seen in one forward pass: each takes what the one before has given. So any module
    will do that all information goes through; of others it is said that they will not.
    """
    if not hasattr(backbone.network, "forward_features"):
        raise ConfigError(f"{backbone.name} cannot be split: it has no forward_features and forward_head")
    was_training = backbone.network.training
    backbone.network.eval()
    try:
        with torch.no_grad():
            return _split(backbone, stage)
    finally:
        backbone.network.train(was_training)


def _split(backbone: Backbone, stage: str) -> FrozenPrefix:
    network: Any = backbone.network
    size = backbone.preprocessing.size
    probe = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(0)).to(backbone.device)
    calls, features = _watch(network, lambda: network.forward_features(probe))
    steps = _steps(calls, stage, features)
    if steps is None:
        raise _no_stage(backbone.name, stage, [call.name for call in calls if _steps(calls, call.name, features)])
    head, expected = _watch(network, lambda: network.forward_head(features.clone()))
    prefix = _Prefix(network, steps)
    given = prefix.network.forward_features(probe)
    prefix.num_features = given[0].numel()
    shape, names = tuple(given.shape[1:]), [call.name for call in head if call.name]
    again = network.forward_head(_after(network, steps, _unflatten(prefix(probe), shape)))
    if (again - expected).abs().max() > _TOLERANCE * expected.abs().max():
        raise ConfigError(
            f"{backbone.name} cannot be split at {stage}, past which other information goes; name a whole stage"
        )
    before = Backbone(f"{backbone.name}-before-{stage}", prefix, backbone.preprocessing).eval()
    return FrozenPrefix(before, shape, steps, (*steps, *names))


class _Prefix(nn.Module):
    """The modules before a stage: from images to what the stage takes, each image's in one row."""

    num_features: int

    def __init__(self, network: nn.Module, steps: Sequence[str]) -> None:
        super().__init__()
        self.network: Any = copy.deepcopy(network)
        for name in steps:
            parent, _, child = name.rpartition(".")
            setattr(self.network.get_submodule(parent), child, nn.Identity())

    def forward(self, images: Tensor) -> Tensor:
        return _flatten(self.network.forward_features(images))


def _after(network: Any, steps: Sequence[str], given: Tensor) -> Tensor:
    """Compute the last features before the head of what a stage takes."""
    for name in steps:
        given = network.get_submodule(name)(given)
    return given


def _flatten(given: Tensor) -> Tensor:
    """Put each image into one row, the values of a place beside each other: so convolutions are fast."""
    return (given.movedim(1, -1) if given.ndim == 4 else given).flatten(1)


def _unflatten(rows: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Go the way back, without a copy."""
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
    """Return all calls of a network's modules during an action, in the order in which they begin, and its result."""
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
    """Return the modules that lead from a stage to the last features, the largest that begin with it; or None."""
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
