"""The search for better settings than the ones given, trial by trial, by validation mAP."""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from onepair.experiments.datasets import Dataset
from onepair.experiments.records import Row, Values
from onepair.experiments.search import journal_study
from onepair.experiments.spaces import Range, space_of, start_of, with_values
from onepair.experiments.study_cells import Cell, make_cell
from onepair.experiments.working import SECONDS_BETWEEN_LOOKS, StudyNarrator, claimed, do
from onepair.files import BusyError, write_atomically, writing
from onepair.methods import find_method
from onepair.runs.config import Config, ConfigError, to_toml
from onepair.runs.folder import RunFolder
from onepair.runs.learning import method_of
from onepair.runs.task import task_of
from onepair.training.machine import Machine

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial, Trial

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
