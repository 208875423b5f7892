"""The runner of tables and figures: plans runs, shares them among processes, and keeps what is done."""

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import NamedTuple, Protocol

from onepair.errors import BusyError, DataError, TrainingError
from onepair.experiments.overrides import Dataset, Wishes, make_config
from onepair.experiments.records import Experiment, Grid, Row, Spread, Values, combinations, grid_of
from onepair.experiments.search import Cell, best_of, choose, kind_of, make_cell, record, unique
from onepair.files import locked, writing
from onepair.labels import POSITIVE
from onepair.runs.finished import FinishedRun
from onepair.runs.folder import RunFolder
from onepair.runs.method_factory import method_of
from onepair.runs.task import Shared, prepare_task
from onepair.training.hardware import Machine, Narrator
from onepair.training.run import train

SECONDS_BETWEEN_LOOKS = 1.0  # at runs that other processes are at work on


class StudyNarrator(Narrator, Protocol):
    """A narrator that is told how far a whole study is."""

    def stage(self, title: str, *, cells: int) -> None: ...
    def started(self, cell: Cell) -> None: ...
    def finished(self, cell: Cell) -> None: ...
    def waiting(self, cells: int) -> None: ...


@contextmanager
def claimed(cell: Cell) -> Iterator[None]:
    """Hold the claim to a run, which ends with this process, or raise `BusyError` if another one holds it."""
    path = cell.folder.path
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)
        with locked(path / ".claim"):
            yield


def do(cell: Cell, *, machine: Machine, watch: StudyNarrator, test: bool = True) -> None:
    """Do a run that is claimed; one that diverges is marked as failed."""
    watch.started(cell)
    cell.keep()
    cell.start_anew()  # where too little of an earlier run was kept
    try:
        train(cell.config, cell.folder, machine=machine, watch=watch, test=test)
    except TrainingError as error:
        cell.fail(str(error))


FIRST_SEED = 0


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
    cells: Sequence[Cell]

    @property
    def failure(self) -> str | None:
        """Why results are missing, if any are."""
        if not self.cells:
            return "not one candidate of the search could be trained"
        return next((cell.failure for cell in self.cells if cell.failure is not None), None)

    @property
    def runs(self) -> list[FinishedRun]:
        """The finished ones; they share a dataset."""
        shared = Shared()
        return [FinishedRun(cell.folder.path, shared=shared) for cell in self.cells if cell.folder.finished]

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

    The folder of a run is its claim (a lock, which ends with the process that holds it), its state and its result. What
    another process is at work on is left to it, and looked at again later.
    """

    def __init__(
        self,
        out: Path,
        *,
        datasets: Sequence[Dataset],
        wishes: Wishes,
        seeds: int,
        search: bool,
        machine: Machine,
        watch: StudyNarrator,
        methods: Sequence[str] = (),
    ) -> None:
        self.out, self.datasets, self.wishes, self.seeds, self.search = out, datasets, wishes, seeds, search
        self.machine, self.watch, self.methods = machine, watch, methods

    def lines(self, experiment: Experiment) -> list[Line]:
        """The rows of an experiment on every dataset: those asked for, and that there are in this mode."""
        return [
            Line(dataset, row)
            for dataset in self.datasets
            for row in experiment.known_rows()
            if (not self.methods or row.method in self.methods)
            and not (self.wishes.mode == "linear" and row.needs_network)
        ]

    def run(self, experiment: Experiment) -> list[Outcome]:
        """Do all that an experiment needs and is not done yet."""
        lines = self.lines(experiment)
        for line in lines:
            self._require_test_labels(line)
        searched = [self.candidates(line) for line in lines]
        self._complete("search", searched)
        for line, cells in zip(lines, searched, strict=True):
            if cells:
                record(self.out / "search.journal", cells, self._grid(line))
        outcomes = [
            outcome
            for line, cells in zip(lines, searched, strict=True)
            for outcome in self.outcomes(experiment, line, choose(cells))
        ]
        self._complete("runs", [[cell] for outcome in outcomes for cell in outcome.cells])
        return outcomes

    def candidates(self, line: Line) -> list[Cell]:
        """The runs that choose a line's values; none where nothing is searched."""
        if not self.search:
            return []
        return unique(self._cell(line, values, seed=FIRST_SEED) for values in combinations(self._grid(line)))

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
                    self._cell(line, {**chosen, **swept}, seed=seed, epochs=experiment.epochs, shown=not swept)
                    for seed in seeds
                ],
            )
            for swept in combinations(experiment.sweep)
        ]

    def _require_test_labels(self, line: Line) -> None:
        data = make_config(*line, {}, seed=FIRST_SEED, wishes=self.wishes).data
        task = self.machine.shared.once(("task", data, False), lambda: prepare_task(data))
        if not task.table.labels.take(task.test).has(POSITIVE):
            raise DataError(f"{data.source}: has no test images with labels, which every table and figure needs")

    def _grid(self, line: Line) -> Grid:
        config = make_config(*line, {}, seed=FIRST_SEED, wishes=self.wishes)
        return grid_of(line.row.method, mode=config.last_stage, lr=config.stages[config.last_stage].optimiser.lr)

    def _cell(self, line: Line, values: Values, *, seed: int, epochs: int | None = None, shown: bool = False) -> Cell:
        config = make_config(*line, values, seed=seed, wishes=self.wishes, epochs=epochs)
        method_of(config)  # refuses what cannot be, before hours of other runs
        return make_cell(*line, values, config, out=self.out, shown=shown)

    def _complete(self, stage: str, groups: Sequence[Sequence[Cell]]) -> None:
        """Do every cell, or wait for the processes that are at it. The cells of a group are rivals: one is chosen."""
        rivals = {cell.name: group for group in groups for cell in group}
        cells = unique(cell for group in groups for cell in group)
        todo = [cell for cell in cells if not cell.done]
        self.watch.stage(stage, cells=len(todo))
        while todo:
            busy = [cell for cell in todo if not self._attempt(cell, rivals[cell.name])]
            if len(busy) == len(todo):
                self.watch.waiting(len(busy))
                time.sleep(SECONDS_BETWEEN_LOOKS)
            todo = busy
        for cell in cells:
            cell.keep()

    def _attempt(self, cell: Cell, rivals: Sequence[Cell]) -> bool:
        """Do a cell, unless another process is at it: whether it is done."""
        try:
            with claimed(cell):
                if not cell.done:
                    do(cell, machine=self.machine, watch=self.watch)
                    self._tidy(cell, rivals)
        except BusyError:
            return False
        self.watch.finished(cell)
        return True

    def _tidy(self, cell: Cell, rivals: Sequence[Cell]) -> None:
        """Hundreds of runs must not fill the disk: weights stay of those that are shown, and of the best so far."""
        cell.drop_checkpoints()
        best = best_of(rivals) if len(rivals) > 1 else None
        for rival in rivals:
            if rival is not best and rival.folder.finished:
                rival.reduce()


GUESSES = {"linear": 5e-5, "small-cnn": 6e-4, "other": 0.06}  # seconds for one image in one epoch, on two cores


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
    at_most: bool  # whether it is that of a whole network, where only a part of it learns

    @property
    def left(self) -> int:
        return self.search - self.search_done + self.runs - self.runs_done


def make_plan(study: Study, experiments: Iterable[Experiment]) -> list[Step]:
    """The steps of some experiments, in order."""
    clock, counted = Clock(study.out), set[str]()
    return [
        _step(study, experiment, line, clock, counted) for experiment in experiments for line in study.lines(experiment)
    ]


def _step(study: Study, experiment: Experiment, line: Line, clock: "Clock", counted: set[str]) -> Step:
    candidates = study.candidates(line)
    searching = any(not cell.done for cell in candidates)
    # While the search goes on, any candidate stands for the one that it will choose: their number is the same.
    values = candidates[0].values if searching else choose(candidates) or {}
    outcomes = study.outcomes(experiment, line, values)
    new = [cell for cell in candidates if cell.name not in counted]
    counted.update(cell.name for cell in new)
    shown = [cell for outcome in outcomes for cell in outcome.cells if cell.name not in counted]
    counted.update(cell.name for cell in shown)
    searched = [cell for cell in new if cell.done]
    done = [] if searching else [cell for cell in shown if cell.done]
    left = [cell for cell in (*new, *shown) if cell not in searched and cell not in done]
    guessed = [cell for cell in left if not clock.knows(cell)]
    return Step(
        experiment,
        line,
        search=len(new),
        search_done=len(searched),
        runs=len(shown),
        runs_done=len(done),
        seconds=sum(map(clock.seconds, left)),
        guessed=bool(guessed),
        at_most=any(cell.config.model.train_from for cell in guessed),
    )


class Clock:
    """Tells how long a run takes: from finished runs of its kind, else from any on its dataset, else by a guess."""

    def __init__(self, out: Path) -> None:
        self.epochs: dict[str, list[float]] = defaultdict(list)  # seconds of each, by kind
        for path in sorted(out.glob("runs/*/results.json")):
            records = RunFolder(path.parent).metrics()
            self.epochs[kind_of(path.parent.name)] += [record["seconds"] for record in records]
        self.images: dict[Dataset, int] = {}

    def knows(self, cell: Cell) -> bool:
        return bool(self._known(cell))

    def seconds(self, cell: Cell) -> float:
        known = self._known(cell)
        return cell.epochs * (fmean(known) if known else self._guess(cell))

    def _known(self, cell: Cell) -> list[float]:
        mode = cell.config.model.mode
        return self.epochs.get(cell.kind) or [
            seconds
            for kind, epochs in self.epochs.items()
            if kind.startswith(f"{cell.dataset.name}-") and kind.endswith(f"-{mode}")
            for seconds in epochs
        ]

    def _guess(self, cell: Cell) -> float:
        if cell.dataset not in self.images:
            self.images[cell.dataset] = len(prepare_task(cell.config.data).train)
        model = cell.config.model
        kind = "linear" if model.mode == "linear" else model.backbone if model.backbone in GUESSES else "other"
        return GUESSES[kind] * self.images[cell.dataset]
