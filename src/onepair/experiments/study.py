"""The runner of tables, figures and searches: every run once, in a folder that all tables and figures share."""

import hashlib
import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import NamedTuple

from pydantic import BaseModel

from onepair.errors import BusyError, DataError, TrainingError
from onepair.experiments.records import (
    Dataset,
    Experiment,
    Overrides,
    Row,
    Spread,
    Values,
    combinations,
    grid_of,
    make_config,
    values_text,
)
from onepair.files import locked, read_record, writing
from onepair.labels import POSITIVE
from onepair.runs.config import Config, LinearConfig, MethodConfig, ModelConfig, differences
from onepair.runs.finished import FinishedRun
from onepair.runs.folder import RunFolder
from onepair.runs.task import RunCache, make_method, prepare_task
from onepair.training.callbacks import Callback
from onepair.training.hardware import Hardware
from onepair.training.run import train
from onepair.words import counted

_log = logging.getLogger(__name__)

SECONDS_BETWEEN_LOOKS = 1.0  # at runs that other processes are at work on
FIRST_SEED = 0
GUESSES = {"linear": 5e-5, "small-cnn": 6e-4, "other": 0.06}  # seconds for one image in one epoch, on two cores


class _Failure(BaseModel):
    reason: str


@dataclass(frozen=True, eq=False)
class PlannedRun:
    """A run of a study. One that is shown keeps its weights and scores; one that only searches does not."""

    dataset: Dataset
    row: Row
    values: Values  # those that are not the dataset's own settings
    config: Config
    folder: RunFolder
    shown: bool

    @property
    def name(self) -> str:
        return self.folder.path.name

    @property
    def title(self) -> str:
        """What it is, for a progress display."""
        full = ["full labels"] if self.row.labels == "full" else []
        values = [values_text(self.values)] if self.values else []
        return ", ".join([self.dataset.title, self.row.title, *full, *values, f"seed {self.config.seed}"])

    @property
    def epochs(self) -> int:
        return sum(stage.epochs for stage in self.config.stages.values())

    @property
    def done(self) -> bool:
        """Whether nothing is left to do: it failed, or finished and has all that it should keep."""
        whole = not self.shown or (self.folder.path / "model.safetensors").exists()
        return self.failure is not None or (self.folder.finished and whole)

    @property
    def failure(self) -> str | None:
        """Why training could not go on, if so."""
        failure = read_record(self.folder.path / "failure.json", _Failure)
        return None if failure is None else failure.reason

    def execute(self, *, hardware: Hardware, callbacks: Sequence[Callback] = (), test: bool = True) -> None:
        """Train; a run that diverges is marked as failed."""
        for callback in callbacks:
            callback.on_run_start(self.name, self.title)
        self.keep()
        (self.folder.path / "results.json").unlink(missing_ok=True)  # of a run of which too little was kept
        try:
            train(self.config, self.folder, hardware=hardware, callbacks=callbacks, test=test)
        except TrainingError as error:
            self.folder.write_json("failure.json", {"reason": str(error)})

    def announce(self, callbacks: Sequence[Callback]) -> None:
        """Tell callbacks that the run is over."""
        for callback in callbacks:
            callback.on_run_end(self.name, self.title, None if self.failure else self.folder.results().validation_map)

    def keep(self) -> None:
        """Mark a run that is shown, so that it stays whole even where a search tries it, too."""
        if self.shown:
            (self.folder.path / ".shown").touch()

    def tidy(self, *, whole: bool) -> None:
        """Delete checkpoints, and unless `whole` weights and scores, which fill a disk."""
        patterns = ["*-last.safetensors", "*-best-*.safetensors"]
        if not whole and not (self.folder.path / ".shown").exists():
            patterns = ["*.safetensors", "scores_*.npy"]
        for pattern in patterns:
            for file in self.folder.path.glob(pattern):
                file.unlink(missing_ok=True)


def plan_run(dataset: Dataset, row: Row, values: Values, config: Config, *, out: Path, shown: bool) -> PlannedRun:
    """The run of a configuration: the same one gets the same folder, whichever table or figure asks for it."""
    labels = [] if row.labels == "single" else [row.labels]
    parts = [dataset.name, row.method, *labels, config.model.mode, f"seed{config.seed}", _digest(config, dataset)]
    return PlannedRun(dataset, row, values, config, RunFolder(out / "runs" / "-".join(parts)), shown)


# The defaults when folders got their names.
_FIRST = Config(
    model=ModelConfig("resnet50.tv_in1k", mode="finetune"),
    method=MethodConfig("opml-sp"),
    linear=LinearConfig(protocol="epochs"),
)


def _digest(config: Config, dataset: Dataset) -> str:
    """What tells a configuration from others, wherever its dataset is kept; settings that are added later do not."""
    data = replace(config.data, source=dataset.identity, format="auto", split="auto")
    changed = differences(_FIRST, replace(config, data=data))
    return hashlib.sha256("\n".join(changed).encode()).hexdigest()[:8]


def unique(runs: Iterable[PlannedRun]) -> list[PlannedRun]:
    """Each folder once; a run that is to be shown comes before one that is not."""
    by_name: dict[str, PlannedRun] = {}
    for run in runs:
        if run.name not in by_name or run.shown:
            by_name[run.name] = run
    return list(by_name.values())


def best_of(candidates: Sequence[PlannedRun]) -> PlannedRun | None:
    """The finished candidate with the best validation mAP, the first of equals; None if not one could be trained."""
    trained = [run for run in candidates if run.folder.finished]
    return max(trained, key=lambda run: run.folder.results().validation_map, default=None)


def choose(candidates: Sequence[PlannedRun]) -> Values | None:
    """The values of the best candidate: none where nothing is searched, None where not one could be trained."""
    best = best_of(candidates)
    return best.values if best is not None else None if candidates else {}


class Line(NamedTuple):
    """A row of an experiment, on one dataset."""

    dataset: Dataset
    row: Row


@dataclass(frozen=True, eq=False)
class Outcome:
    """What comes of a line with some values: a run for each seed."""

    line: Line
    chosen: Values  # by the search
    swept: Values  # by the experiment
    planned: Sequence[PlannedRun]

    @property
    def failure(self) -> str | None:
        """Why results are missing, if any are."""
        if not self.planned:
            return "not one candidate of the search could be trained"
        return next((run.failure for run in self.planned if run.failure is not None), None)

    @property
    def runs(self) -> list[FinishedRun]:
        """The finished ones; they share a dataset."""
        shared = RunCache()
        return [FinishedRun(run.folder.path, shared=shared) for run in self.planned if run.folder.finished]

    @property
    def test_maps(self) -> list[float]:
        """Of each run, from 0 to 100."""
        return [100 * run.results.test_map for run in self.runs if run.results.test_map is not None]

    @property
    def spread(self) -> Spread | None:
        maps = self.test_maps
        return Spread(fmean(maps), stdev(maps) if len(maps) > 1 else None) if maps else None


class Study:
    """Does the runs of experiments in a folder that any number of processes may work on at once.

    What another process is at work on is left to it, and looked at again later.
    """

    def __init__(
        self,
        out: Path,
        *,
        datasets: Sequence[Dataset],
        overrides: Overrides,
        seeds: int,
        search: bool,
        hardware: Hardware,
        callbacks: Sequence[Callback] = (),
        methods: Sequence[str] = (),
    ) -> None:
        self.out, self.datasets, self.overrides, self.seeds, self.search = out, datasets, overrides, seeds, search
        self.hardware, self.callbacks, self.methods = hardware, callbacks, methods

    def lines(self, experiment: Experiment) -> list[Line]:
        """The rows of an experiment on every dataset: those asked for, and that there are in this mode."""
        return [
            Line(dataset, row)
            for dataset in self.datasets
            for row in experiment.known_rows()
            if (not self.methods or row.method in self.methods)
            and not (self.overrides.mode == "linear" and row.needs_network)
        ]

    def run(self, experiment: Experiment) -> list[Outcome]:
        """Do all that an experiment needs and is not done yet."""
        lines = self.lines(experiment)
        for line in lines:
            self._require_test_labels(line)
        searched = [self.candidates(line) for line in lines]
        self._complete("search", searched)
        outcomes = [
            outcome
            for line, candidates in zip(lines, searched, strict=True)
            for outcome in self.outcomes(experiment, line, choose(candidates))
        ]
        self._complete("runs", [[run] for outcome in outcomes for run in outcome.planned])
        return outcomes

    def candidates(self, line: Line) -> list[PlannedRun]:
        """The runs that choose a line's values; none where nothing is searched."""
        if not self.search:
            return []
        config = make_config(*line, {}, seed=FIRST_SEED, overrides=self.overrides)
        stage = config.stages[config.last_stage]
        grid = grid_of(line.row.method, mode=config.last_stage, lr=stage.optimiser.lr)
        return unique(self._plan(line, values, seed=FIRST_SEED) for values in combinations(grid))

    def outcomes(self, experiment: Experiment, line: Line, chosen: Values | None) -> list[Outcome]:
        """What an experiment shows of a line, once its runs are done."""
        if chosen is None:
            return [Outcome(line, {}, {}, ())]
        seeds = range(FIRST_SEED, FIRST_SEED + (experiment.seeds or self.seeds))
        return [
            Outcome(
                line,
                chosen,
                swept,
                [
                    self._plan(line, {**chosen, **swept}, seed=seed, epochs=experiment.epochs, shown=not swept)
                    for seed in seeds
                ],
            )
            for swept in combinations(experiment.sweep)
        ]

    def _require_test_labels(self, line: Line) -> None:
        data = make_config(*line, {}, seed=FIRST_SEED, overrides=self.overrides).data
        task = self.hardware.shared.get_or_make(("task", data, False), lambda: prepare_task(data))
        if not task.table.labels.take(task.test).has(POSITIVE):
            raise DataError(f"{data.source}: has no test images with labels, which every table and figure needs")

    def _plan(
        self, line: Line, values: Values, *, seed: int, epochs: int | None = None, shown: bool = False
    ) -> PlannedRun:
        config = make_config(*line, values, seed=seed, overrides=self.overrides, epochs=epochs)
        make_method(config)  # refuses what cannot be, before hours of other runs
        return plan_run(*line, values, config, out=self.out, shown=shown)

    def _complete(self, stage: str, groups: Sequence[Sequence[PlannedRun]]) -> None:
        """Do every run, or wait for the processes that are at it. The runs of a group are rivals: one is chosen."""
        rivals = {run.name: group for group in groups for run in group}
        runs = unique(run for group in groups for run in group)
        todo = [run for run in runs if not run.done]
        for callback in self.callbacks:
            callback.on_study_start(stage, len(todo))
        while todo:
            busy = [run for run in todo if not self._attempt(run, rivals[run.name])]
            if len(busy) == len(todo):
                _log.info(f"waiting for {counted(len(busy), 'run')} that other processes are at work on")
                time.sleep(SECONDS_BETWEEN_LOOKS)
            todo = busy
        for run in runs:
            run.keep()

    def _attempt(self, run: PlannedRun, rivals: Sequence[PlannedRun]) -> bool:
        """Do a run, unless another process is at it: whether it is done."""
        try:
            with _claimed(run):
                if not run.done:
                    run.execute(hardware=self.hardware, callbacks=self.callbacks)
                    run.tidy(whole=True)
                    best = best_of(rivals) if len(rivals) > 1 else None
                    for rival in rivals:  # hundreds of runs must not fill the disk: the best so far stays whole
                        if rival is not best and rival.folder.finished:
                            rival.tidy(whole=False)
        except BusyError:
            return False
        run.announce(self.callbacks)
        return True


@contextmanager
def _claimed(run: PlannedRun) -> Iterator[None]:
    """Hold the claim to a run, which ends with this process, or raise `BusyError` if another one holds it."""
    path = run.folder.path
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)
        with locked(path / ".claim"):
            yield


@dataclass(frozen=True)
class Step:
    """The runs for one line of an experiment; what an earlier step does is not counted again."""

    experiment: Experiment
    line: Line
    search: int
    search_done: int
    runs: int
    runs_done: int
    seconds: float  # for what is left to do
    guessed: bool  # whether no finished run tells the time

    @property
    def left(self) -> int:
        return self.search - self.search_done + self.runs - self.runs_done


def make_plan(study: Study, experiments: Iterable[Experiment]) -> list[Step]:
    """The steps of some experiments, in order."""
    clock, counted = _Clock(study.out), set[str]()
    return [
        _step(study, experiment, line, clock, counted) for experiment in experiments for line in study.lines(experiment)
    ]


def _step(study: Study, experiment: Experiment, line: Line, clock: "_Clock", counted: set[str]) -> Step:
    candidates = study.candidates(line)
    searching = any(not run.done for run in candidates)
    # While the search goes on, any candidate stands for the one that it will choose: their number is the same.
    values = candidates[0].values if searching else choose(candidates) or {}
    outcomes = study.outcomes(experiment, line, values)
    new = [run for run in candidates if run.name not in counted]
    counted.update(run.name for run in new)
    shown = [run for outcome in outcomes for run in outcome.planned if run.name not in counted]
    counted.update(run.name for run in shown)
    searched = [run for run in new if run.done]
    done = [] if searching else [run for run in shown if run.done]
    left = [run for run in (*new, *shown) if run not in searched and run not in done]
    return Step(
        experiment,
        line,
        search=len(new),
        search_done=len(searched),
        runs=len(shown),
        runs_done=len(done),
        seconds=sum(map(clock.seconds, left)),
        guessed=not all(map(clock.known, left)),
    )


class _Clock:
    """How long a run takes: as epochs of finished runs on its dataset in its mode took, or by a guess."""

    def __init__(self, out: Path) -> None:
        self.epochs: dict[str, list[float]] = defaultdict(list)  # seconds of each, by dataset, method and mode
        for path in sorted(out.glob("runs/*/results.json")):
            kind = path.parent.name.rpartition("-seed")[0]
            self.epochs[kind] += [record["seconds"] for record in RunFolder(path.parent).metrics()]
        self.images: dict[Dataset, int] = {}

    def known(self, run: PlannedRun) -> list[float]:
        return [
            seconds
            for kind, epochs in self.epochs.items()
            if kind.startswith(f"{run.dataset.name}-") and kind.endswith(f"-{run.config.model.mode}")
            for seconds in epochs
        ]

    def seconds(self, run: PlannedRun) -> float:
        known = self.known(run)
        return run.epochs * (fmean(known) if known else self._guess(run))

    def _guess(self, run: PlannedRun) -> float:
        if run.dataset not in self.images:
            self.images[run.dataset] = len(prepare_task(run.config.data).train)
        model = run.config.model
        kind = "linear" if model.mode == "linear" else model.backbone if model.backbone in GUESSES else "other"
        return GUESSES[kind] * self.images[run.dataset]
