"""Which methods there are, and what is known of each."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from onepair.errors import ConfigError
from onepair.label_matrix import LabelMatrix, too_many
from onepair.labels import validate_labels
from onepair.methods.method import Method, Observed, SparseObserved
from onepair.plugins import Registry, nearest

Observes = Literal["as given", "single positive and all negatives"]
MethodClass = TypeVar("MethodClass", bound=type[Method])


@dataclass(frozen=True)
class MethodInfo:
    """What is known of a method before one is made."""

    name: str
    title: str  # as in the paper's tables
    paper: str
    equation: str
    description: str
    observes: Observes  # the labels that the loop hands over
    build: type[Method]
    convex: bool = False  # whether the loss is convex in the scores while its targets stay
    rounds: int = 1  # solutions on fixed features, between which targets are made anew; 0: it needs many small steps

    @property
    def options(self) -> tuple[str, ...]:
        """The names of all options: the keywords of the constructor."""
        return tuple(self._keywords)

    @property
    def defaults(self) -> Mapping[str, object]:
        """The value of every option that need not be given."""
        return MappingProxyType(
            {name: keyword.default for name, keyword in self._keywords.items() if keyword.default is not keyword.empty}
        )

    def run_options(self, *, epochs: int, seed: int = 0) -> dict[str, int]:
        """The options that a run fills in, of those that the method has: its epochs and its seed."""
        return {name: value for name, value in (("epochs", epochs), ("seed", seed)) if name in self._keywords}

    @property
    def solvable(self) -> bool:
        """Whether a linear classifier on fixed features can be solved for by this method."""
        return self.rounds > 0 and not self.needs_places

    @property
    def needs_places(self) -> bool:
        """Whether the method needs the features of every place of an image, which pooled features do not have."""
        return "boost" in self._keywords

    @property
    def _keywords(self) -> dict[str, inspect.Parameter]:
        parameters = inspect.signature(self.build).parameters
        return {name: given for name, given in parameters.items() if given.kind is given.KEYWORD_ONLY}


METHODS = Registry[MethodInfo]("onepair.methods", "method")


def register(
    *,
    name: str,
    title: str,
    paper: str,
    equation: str,
    description: str,
    observes: Observes = "as given",
    convex: bool = False,
    rounds: int = 1,
) -> Callable[[MethodClass], MethodClass]:
    """Make a method known by its name; the keywords of its constructor are its options.

    A package that names its module as an entry point of the group `onepair.methods` is imported when it is needed.
    """

    def add(build: MethodClass) -> MethodClass:
        METHODS.add(name, MethodInfo(name, title, paper, equation, description, observes, build, convex, rounds))
        return build

    return add


def find_method(name: str) -> MethodInfo:
    """What is known of the method of this name."""
    if name not in METHODS:
        raise ConfigError(f"there is no method {name!r}; {nearest(name, METHODS)}")
    return METHODS[name]


def create_method(name: str, *, labels: ArrayLike | Tensor | LabelMatrix | None = None, **options: object) -> Method:
    """Make the method of this name.

    Args:
        name: as `onepair methods` lists it.
        labels: (N, L), all labels that it will ever see, with which it begins; numpy, torch or lists, of 1, 0, and
            -1 or NaN for unknown. Without them, call `begin` before the first batch.
        options: the keywords of the method's constructor.

    Raises:
        ConfigError: there is no such method, or option of it.

    >>> create_method("opml-sp", label_num=1.2).needs_scores
    True
    >>> create_method("opml", labels=[[1, float("nan")], [0, 1]]).observed
    tensor([[ 1, -1],
            [ 0,  1]], dtype=torch.int8)
    >>> create_method("opml-sb")
    Traceback (most recent call last):
    onepair.errors.ConfigError: there is no method 'opml-sb'; did you mean 'opml-sp'?
    """
    info = find_method(name)
    for option in options:
        if option not in info.options:
            raise ConfigError(f"method {name!r} has no option {option!r}; {nearest(option, info.options)}")
    for option in info.options:
        if option not in options and option not in info.defaults:
            raise ValueError(f"method {name!r} needs the option {option!r}")
    method = info.build(**options)
    if labels is not None:
        method.begin(_observed(labels))
    return method


def _observed(labels: ArrayLike | Tensor | LabelMatrix) -> Observed:
    if isinstance(labels, LabelMatrix) and too_many(*labels.shape):
        return SparseObserved(labels)
    matrix = labels.detach().cpu() if isinstance(labels, Tensor) else labels
    return torch.from_numpy(validate_labels(np.asarray(matrix)).copy())
