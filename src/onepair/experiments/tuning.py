"""The search for better settings than the ones given, trial by trial, by validation mAP."""

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from onepair.errors import BusyError, ConfigError
from onepair.experiments.figures import HEIGHT, LOOKS, WIDTH, Drawing, draw
from onepair.experiments.overrides import Dataset
from onepair.experiments.records import Row, Values
from onepair.experiments.search import Cell, journal_study, make_cell
from onepair.experiments.study import SECONDS_BETWEEN_LOOKS, StudyNarrator, claimed, do
from onepair.experiments.tables import csv_text
from onepair.files import write_atomically, writing
from onepair.methods import METHODS, find_method
from onepair.runs.config import Config, to_toml
from onepair.runs.folder import RunFolder
from onepair.runs.method_factory import method_of
from onepair.runs.task import task_of
from onepair.training.hardware import Machine

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial, Trial

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


STUDY = "tune"


class Tried(NamedTuple):
    """A trial that is over."""

    number: int  # from 0 on
    values: Values
    validation_map: float | None  # None where it could not be trained


class Tuning:
    """Chooses options of a method and the learning rate of the last stage, from what earlier trials came to.

    The first trial is the configuration as it is. Any number of processes may work on one folder at once, and the same
    trials in the same order come of a search that was interrupted and of one that was not: what Optuna proposes depends
    on the trials before alone. Trials never look at test images.

    Args:
        out: the folder of the search; `best.toml` there is the best configuration so far.
        config: what to begin with, and what stays.
        trials: how many there are to be in all, those of earlier commands included.
    """

    def __init__(self, out: Path, config: Config, *, trials: int, machine: Machine, watch: StudyNarrator) -> None:
        method_of(config)  # refuses what cannot be
        self.out, self.config, self.trials, self.machine, self.watch = out, config, trials, machine, watch
        self.space = space_of(config)
        if not self.space:
            raise ConfigError(
                f"method {config.method.name} has no option to choose, and the penalty chooses itself; just train it"
            )
        self.dataset = Dataset(Path(config.data.source).stem, config.data.source, config.data.format)
        self.row = Row(find_method(config.method.name).title, config.method.name)

    def run(self) -> list[Tried]:
        """Do the trials that are left, or wait for the processes that are at them; returns all of them."""
        folder = RunFolder(self.out)
        folder.require_usable(self.config)
        if (self.out / "config.toml").exists():
            folder.require_same(folder.config(), self.config)
        task_of(self.config, self.machine.shared)  # or a sentence on the dataset, before anything is written
        with writing(self.out):
            self.out.mkdir(parents=True, exist_ok=True)
            write_atomically(self.out / "config.toml", to_toml(self.config).encode())
            self.watch.stage("trials", cells=self.trials - len(self.tried()))
            while len(self.tried()) < self.trials:
                if not self._do_one():
                    self.watch.waiting(self.trials - len(self.tried()))
                    time.sleep(SECONDS_BETWEEN_LOOKS)
            return self._write_best()  # whoever told of the last trial may have been killed before it did

    def tried(self) -> list[Tried]:
        """The trials that are over, in order."""
        with journal_study(self.out / "trials.journal", STUDY) as study:
            whole = list(enumerate(_whole(study, self.space)))
        over = [(number, trial) for number, trial in whole if trial.state.is_finished()]
        return [Tried(number, _rounded(trial.params), trial.value) for number, trial in over]

    def _do_one(self) -> bool:
        """Do a trial that nobody is at; whether there was one."""
        with ExitStack() as claim:
            taken = self._take(claim)
            if taken is None:
                return False
            number, cell = taken
            if not cell.done:
                try:
                    do(cell, machine=self.machine, watch=self.watch, test=False)
                except BusyError:  # another process extracts the features that this one needs
                    return False
            cell.reduce()
            self._tell(number, cell)
        self.watch.finished(cell)
        return True

    def _take(self, claim: ExitStack) -> tuple[int, Cell] | None:
        """A trial that was left by a process that is gone, or a new one, and the claim to its run."""
        with journal_study(self.out / "trials.journal", STUDY) as study:
            known = _whole(study, self.space)
            for trial in known:
                if not trial.state.is_finished():
                    cell = self._cell(trial.params)
                    try:
                        claim.enter_context(claimed(cell))
                    except BusyError:
                        continue
                    return trial.number, cell
            if len(known) >= self.trials:
                return None
            new = self._ask(study, len(known))
            cell = self._cell(new.params)
            try:
                claim.enter_context(claimed(cell))
            except BusyError:  # another trial of the same values, whose result will be this one's
                return None
            return new.number, cell

    def _ask(self, study: "Study", known: int) -> "Trial":
        from optuna.samplers import TPESampler
        from optuna.trial import TrialState

        study.sampler = TPESampler(seed=self.config.seed + known)
        if known == 0 and not study.get_trials(deepcopy=False, states=[TrialState.WAITING]):
            study.enqueue_trial(dict(start_of(self.config)))
        trial = study.ask()
        for name, choices in self.space.items():
            if isinstance(choices, Range):
                trial.suggest_float(name, choices.low, choices.high, log=choices.log)
            else:
                trial.suggest_categorical(name, list(choices))
        return trial

    def _tell(self, number: int, cell: Cell) -> None:
        from optuna.trial import TrialState

        with journal_study(self.out / "trials.journal", STUDY) as study:
            if cell.failure is None:
                study.tell(number, cell.results().validation_map)
            else:
                study.tell(number, state=TrialState.FAIL)
        self._write_best()

    def _write_best(self) -> list[Tried]:
        """Write the best configuration so far; returns the trials that it is the best of."""
        tried = self.tried()
        if best := best_of_trials(tried):
            path, value = self.out / "best.toml", 100 * (best.validation_map or 0.0)
            header = f"# Trial {best.number + 1}, the best of {len(tried)}: validation mAP {value:.2f}.\n"
            header += f"# Train with it: onepair train --config {path}\n\n"
            write_atomically(path, (header + to_toml(with_values(self.config, best.values))).encode())
        return tried

    def _cell(self, params: dict[str, Any]) -> Cell:
        values = _rounded(params)
        config = with_values(self.config, values)
        return make_cell(self.dataset, self.row, values, config, out=self.out, shown=False)


def best_of_trials(tried: Sequence[Tried]) -> Tried | None:
    """The trial with the best validation mAP, the first of equals; None if not one could be trained."""
    trained = [trial for trial in tried if trial.validation_map is not None]
    return max(trained, key=lambda trial: trial.validation_map or 0.0, default=None)


def _whole(study: "Study", space: Any) -> "list[FrozenTrial]":
    """The trials with all their values; a process may have been killed before it had chosen the last of them."""
    return [trial for trial in study.get_trials(deepcopy=False) if trial.params.keys() == space.keys()]


def _rounded(params: dict[str, Any]) -> Values:
    """Values that a person can read, which are the ones that a trial is run with."""
    return {name: float(f"{value:.4g}") if isinstance(value, float) else value for name, value in params.items()}


def write_history(out: Path, tried: Sequence[Tried]) -> list[Path]:
    """Write trials.csv, history.svg and history.png into the folder of a search; returns the files."""
    drawing, drawn = draw(lambda: history(tried))
    contents = {"trials.csv": csv_text(drawing.numbers).encode(), "history.svg": drawn.svg, "history.png": drawn.png}
    for name, content in contents.items():
        write_atomically(out / name, content)
    return [out / name for name in contents]


def history(tried: Sequence[Tried]) -> Drawing:
    """Validation mAP of every trial, and the best until then; trials that diverged stand as crosses at the bottom."""
    numbers = [trial.number + 1 for trial in tried]
    maps = 100 * np.array([np.nan if trial.validation_map is None else trial.validation_map for trial in tried], float)
    best = np.fmax.accumulate(maps)
    figure = Figure(figsize=(1.4 * WIDTH, HEIGHT), layout="constrained")
    panel = figure.subplots()
    panel.plot(numbers, maps, **{**LOOKS[0], "linestyle": "none"}, label="trial")
    panel.step(numbers, best, **{**LOOKS[1], "linestyle": "-", "marker": ""}, where="post", label="best so far")
    failed = [number for number, value in zip(numbers, maps, strict=True) if np.isnan(value)]
    if failed:
        bottom = panel.get_xaxis_transform()
        panel.plot(failed, [0.02] * len(failed), "x", color=LOOKS[2]["color"], transform=bottom, label="failed")
    panel.set_xlabel("Trial")
    panel.set_ylabel("Validation mAP (%)")
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    panel.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3)  # above, where no trial can be
    rows = [
        {"trial": number, "validation_map": "" if np.isnan(value) else f"{value:.3f}", **trial.values}
        for number, value, trial in zip(numbers, maps.tolist(), tried, strict=True)
    ]
    return Drawing(figure, rows, [])
