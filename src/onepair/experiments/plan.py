"""What a study has to do, and about how long that takes."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from onepair.experiments.datasets import Dataset
from onepair.experiments.records import Experiment
from onepair.experiments.search import choose
from onepair.experiments.study import Line, Study
from onepair.experiments.study_cells import Cell, kind_of
from onepair.runs.folder import RunFolder
from onepair.runs.task import prepare_task

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
