"""What `onepair tune` may choose from for each method: ranges around the values of the grids."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from onepair.experiments.records import Values
from onepair.methods import METHODS
from onepair.runs.config import Config

AROUND = 10.0  # times and over the learning rate of the settings


class Range(NamedTuple):
    """All numbers between two, by their logarithm where they differ by orders of magnitude."""

    low: float
    high: float
    log: bool = False

    def around(self, value: float) -> "Range":
        """The range, stretched where a value lies outside."""
        return self._replace(low=min(self.low, value), high=max(self.high, value))


Space = Mapping[str, Range | Sequence[Any]]  # a range, or the values to choose from

_TILDE: Space = {"alpha": Range(0.05, 0.95), "beta": Range(0.05, 0.95)}
_DELTA: Space = {"delta": Range(2e-4, 2e-2, log=True)}
_HIGH_RANK: Space = {"high_rank_weight": Range(1e-5, 1e-1, log=True)}
_SOFT: Space = {"epsilon": Range(0.3, 2.0), "gamma_gradient": (False, True)}
_CORRECT: Space = {"label_num": Range(0.0, 3.0)}

SPACES: Mapping[str, Space] = {  # methods that are not here have nothing of their own to choose
    "bce-l1": {"weight": Range(1e-7, 1e-3, log=True)},
    "bce-l2": {"weight": Range(1e-6, 1e-2, log=True)},
    "bce-ls": {"smoothing": Range(0.01, 0.3)},
    "bce-nls": {"smoothing": Range(0.01, 0.3)},
    "focal": {"alpha": Range(0.1, 0.9), "gamma": Range(0.5, 4.0)},
    "asl": {"gamma_positive": Range(0.0, 1.0), "gamma_negative": Range(1.0, 6.0), "margin": Range(0.0, 0.2)},
    "ll-r": _DELTA,
    "ll-r-boostlu": {**_DELTA, "boost": Range(1.0, 10.0)},
    "ll-ct": _DELTA,
    "ll-cp": _DELTA,
    "entmax": {"entropy_weight": Range(0.01, 1.0, log=True)},
    "entmax-apl": {"entropy_weight": Range(0.01, 1.0, log=True), "weight": Range(0.01, 1.0, log=True)},
    "gr": {"last_slope": Range(0.0, 10.0), "last_shift": Range(-8.0, 0.0), "last_width": Range(0.2, 2.0)},
    "crisp": {"warmup": (1, 3, 5)},
    "hill": {"turn": Range(1.0, 2.5), "margin": Range(0.0, 2.0)},
    "splc": {"threshold": Range(0.4, 0.95), "gamma": Range(0.0, 3.0), "margin": Range(0.0, 2.0)},
    "p-asl": {"left_out": Range(0.0, 5.0), "gamma_negative": Range(0.0, 4.0), "gamma_unknown": Range(0.0, 6.0)},
    "two-way": {"positive_temperature": Range(0.5, 8.0), "negative_temperature": Range(0.5, 8.0)},
    "mime": {"threshold": Range(0.4, 0.99), "warmup": (1, 2, 3, 5)},
    "opml": _TILDE,
    "opml-hr": {**_TILDE, **_HIGH_RANK},
    "opml-soft": {**_TILDE, **_SOFT},
    "opml-correct": {**_TILDE, **_CORRECT},
    "opml-sp": {**_TILDE, **_HIGH_RANK, **_SOFT, **_CORRECT},
    "opml-plus": {**_TILDE, "trust": Range(0.03, 0.9, log=True)},
}


def space_of(config: Config) -> Space:
    """All that may be chosen: options of the method, and the learning rate of the last stage if it has one.

    >>> space_of(Config())["trust"]
    Range(low=0.03, high=0.9, log=True)
    """
    own, start = SPACES.get(config.method.name, {}), start_of(config)
    space = {
        name: choices.around(start[name]) if isinstance(choices, Range) and name in start else choices
        for name, choices in own.items()
    }
    around = {
        name: Range(float(f"{value / AROUND:.4g}"), float(f"{value * AROUND:.4g}"), log=True)
        for name, value in _of_last_stage(config).items()
    }
    return {**space, **around}


def start_of(config: Config) -> Values:
    """What the settings say of the values to choose; nothing of an option that they set to nothing."""
    options = {**METHODS[config.method.name].defaults, **config.method.options}
    known = {name: options.get(name) for name in SPACES.get(config.method.name, {})}
    start = {name: value for name, value in known.items() if value is not None}
    return {**start, **_of_last_stage(config)}


def _of_last_stage(config: Config) -> dict[str, float]:
    """The numbers of the last stage to choose: none where it is solved, for then the penalty chooses itself."""
    return {} if config.solves else {"lr": config.stages[config.last_stage].optimiser.lr}


def with_values(config: Config, values: Values) -> Config:
    """The configuration with other options of the method, and other numbers of the last stage."""
    options = {name: value for name, value in values.items() if name != "lr"}
    config = replace(config, method=replace(config.method, options={**config.method.options, **options}))
    if "lr" not in values:
        return config
    stage = config.stages[config.last_stage]
    changed = replace(stage, optimiser=replace(stage.optimiser, lr=values["lr"]))
    return replace(config, **{config.last_stage: changed})  # type: ignore[arg-type]
