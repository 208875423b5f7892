"""The runner: from tables and figures to finished runs, with what is there already."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import NamedTuple

from onepair.data.problems import DataError
from onepair.experiments.datasets import Dataset
from onepair.experiments.grids import grid_of
from onepair.experiments.published import Spread
from onepair.experiments.records import Experiment, Grid, Row, Values, combinations
from onepair.experiments.search import best_of, choose, record
from onepair.experiments.study_cells import Cell, make_cell, unique
from onepair.experiments.wishes import Wishes, make_config
from onepair.experiments.working import SECONDS_BETWEEN_LOOKS, StudyNarrator, claimed, do
from onepair.files import BusyError
from onepair.labels import POSITIVE
from onepair.runs.finished import FinishedRun
from onepair.runs.learning import method_of
from onepair.runs.shared import Shared
from onepair.runs.task import prepare_task
from onepair.training.machine import Machine

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
