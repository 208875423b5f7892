"""Better settings than the ones given, trial by trial, by validation mAP."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from onepair.errors import ConfigError, TrainingError, import_pandas
from onepair.experiments.figures import HEIGHT, SERIES, WIDTH, Drawing, draw
from onepair.experiments.records import Dataset, Row, Values, values_text
from onepair.experiments.study import plan_run
from onepair.experiments.tables import csv_text
from onepair.files import write_atomically, writing
from onepair.methods import METHODS, find_method
from onepair.runs.config import Config, to_toml
from onepair.runs.folder import RunFolder
from onepair.runs.task import make_method, task_of
from onepair.training.callbacks import Callback
from onepair.training.hardware import Hardware
from onepair.words import counted

if TYPE_CHECKING:
    import pandas
    from optuna.distributions import BaseDistribution

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


class Trial(NamedTuple):
    """A trial that is over."""

    number: int  # from 0 on
    values: Values
    validation_map: float | None  # None where it could not be trained


@dataclass(frozen=True, eq=False)
class Tuned:
    """Settings that were tried, by validation mAP.

    Args:
        path: the folder of the search; best.toml in it is the configuration of the best trial.
        config: what was begun with.
        trials: all of them; the first is of the settings as they were.
        files: what was written of them.
    """

    path: Path
    config: Config
    trials: Sequence[Trial]
    files: Sequence[Path]

    @property
    def best(self) -> Trial:
        """The trial with the best validation mAP, the first of equals.

        Raises:
            TrainingError: not one could be trained.
        """
        if (best := best_of_trials(self.trials)) is None:
            count = counted(len(self.trials), "trial")
            raise TrainingError(f"not one of {count} could be trained; {self.path / 'runs'} says why")
        return best

    @property
    def settings(self) -> Values:
        """The best values, as keywords of `onepair.train` beside those that were given."""
        rate = f"{self.config.last_stage}.optimiser.lr"
        return {rate if name == "lr" else f"method.options.{name}": each for name, each in self.best.values.items()}

    def to_frame(self) -> "pandas.DataFrame":
        """Return a DataFrame with a row per trial: its validation mAP, and the values of each setting."""
        rows = [{"trial": each.number, "validation_map": each.validation_map, **each.values} for each in self.trials]
        return import_pandas().DataFrame(rows).set_index("trial")

    def __repr__(self) -> str:
        return f"Tuned({counted(len(self.trials), 'trial')}; best: {values_text(self.best.values)})"


def tune(out: Path, config: Config, *, trials: int, hardware: Hardware, callbacks: Sequence[Callback] = ()) -> Tuned:
    """Choose options of a method and the learning rate of the last stage by validation mAP.

    The first trial is the configuration as it is; then Optuna proposes values, from what came of the trials before
    alone. The runs are thus all that has to be kept: the same command finds those that are done, and goes on.

    Args:
        out: the folder of the search; `best.toml` there is the best configuration so far.
        config: what to begin with, and what stays.
        trials: how many there are to be in all, those of earlier commands included.
        hardware: what to compute on.
        callbacks: told how far the search is.

    Returns:
        All trials, which never look at test images.
    """
    import optuna

    make_method(config)  # refuses what cannot be
    space = space_of(config)
    if not space:
        raise ConfigError(
            f"method {config.method.name} has no option to choose, and the penalty chooses itself; just train it"
        )
    _require_folder(out, config, hardware)
    dataset = Dataset(Path(config.data.source).stem, config.data.source, config.data.format)
    row = Row(find_method(config.method.name).title, config.method.name)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize")
    study.enqueue_trial(dict(start_of(config)))
    tried: list[Trial] = []
    begun = False
    with writing(out):
        for number in range(trials):
            study.sampler = optuna.samplers.TPESampler(seed=config.seed + number)
            proposed = study.ask(_distributions(space))
            values = _rounded(proposed.params)
            run = plan_run(dataset, row, values, with_values(config, values), out=out, shown=False)
            if not run.done:
                if not begun:
                    for callback in callbacks:
                        callback.on_study_start("trials", trials - number)
                begun = True
                run.folder.path.mkdir(parents=True, exist_ok=True)
                run.execute(hardware=hardware, callbacks=callbacks, test=False)
                run.announce(callbacks)
            run.tidy(whole=False)
            found = None if run.failure is not None else run.folder.results().validation_map
            study.tell(proposed, found, state=None if found is not None else optuna.trial.TrialState.FAIL)
            tried.append(Trial(number, values, found))
            _write_best(out, config, tried)
        return Tuned(out, config, tried, write_history(out, tried))


def _require_folder(out: Path, config: Config, hardware: Hardware) -> None:
    """Make the folder of a search, or refuse one of another configuration."""
    folder = RunFolder(out)
    folder.require_usable(config)
    if (out / "config.toml").exists():
        folder.require_same(folder.config(), config)
    task_of(config, hardware.shared)  # or a sentence on the dataset, before anything is written
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        write_atomically(out / "config.toml", to_toml(config).encode())


def _distributions(space: Space) -> "dict[str, BaseDistribution]":
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    return {
        name: FloatDistribution(*choices[:2], log=choices.log)
        if isinstance(choices, Range)
        else CategoricalDistribution(tuple(choices))
        for name, choices in space.items()
    }


def _write_best(out: Path, config: Config, tried: Sequence[Trial]) -> None:
    """Write the best configuration so far."""
    if best := best_of_trials(tried):
        path, value = out / "best.toml", 100 * (best.validation_map or 0.0)
        header = f"# Trial {best.number + 1}, the best of {len(tried)}: validation mAP {value:.2f}.\n"
        header += f"# Train with it: onepair train --config {path}\n\n"
        write_atomically(path, (header + to_toml(with_values(config, best.values))).encode())


def best_of_trials(tried: Sequence[Trial]) -> Trial | None:
    """The trial with the best validation mAP, the first of equals; None if not one could be trained."""
    trained = [trial for trial in tried if trial.validation_map is not None]
    return max(trained, key=lambda trial: trial.validation_map or 0.0, default=None)


def _rounded(params: dict[str, Any]) -> Values:
    """Values that a person can read, which are the ones that a trial is run with."""
    return {name: float(f"{value:.4g}") if isinstance(value, float) else value for name, value in params.items()}


def write_history(out: Path, tried: Sequence[Trial]) -> list[Path]:
    """Write trials.csv, history.svg and history.png into the folder of a search; returns the files."""
    drawing, drawn = draw(lambda: history(tried))
    contents = {"trials.csv": csv_text(drawing.numbers).encode(), "history.svg": drawn.svg, "history.png": drawn.png}
    for name, content in contents.items():
        write_atomically(out / name, content)
    return [out / name for name in contents]


def history(tried: Sequence[Trial]) -> Drawing:
    """Validation mAP of every trial, and the best until then; trials that diverged stand as crosses at the bottom."""
    numbers = [trial.number + 1 for trial in tried]
    maps = 100 * np.array([np.nan if trial.validation_map is None else trial.validation_map for trial in tried], float)
    best = np.fmax.accumulate(maps)
    figure = Figure(figsize=(1.4 * WIDTH, HEIGHT), layout="constrained")
    panel = figure.subplots()
    panel.plot(numbers, maps, **{**SERIES[0], "linestyle": "none"}, label="trial")
    panel.step(numbers, best, **{**SERIES[1], "linestyle": "-", "marker": ""}, where="post", label="best so far")
    failed = [number for number, value in zip(numbers, maps, strict=True) if np.isnan(value)]
    if failed:
        bottom = panel.get_xaxis_transform()
        panel.plot(failed, [0.02] * len(failed), "x", color=SERIES[2]["color"], transform=bottom, label="failed")
    panel.set_xlabel("Trial")
    panel.set_ylabel("Validation mAP (%)")
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    panel.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3)  # above, where no trial can be
    rows = [
        {"trial": number, "validation_map": "" if np.isnan(value) else f"{value:.3f}", **trial.values}
        for number, value, trial in zip(numbers, maps.tolist(), tried, strict=True)
    ]
    return Drawing(figure, rows, [])
