"""One run of a study, its results, and the search for the best of several."""

import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from onepair.data.own_files import read_record
from onepair.errors import BusyError, RunError
from onepair.experiments.overrides import Dataset
from onepair.experiments.records import Grid, Row, Values, values_text
from onepair.files import locked
from onepair.runs.config import Config, LinearConfig, MethodConfig, ModelConfig, differences
from onepair.runs.folder import Results, RunFolder

if TYPE_CHECKING:
    from optuna import Study


class _Failure(BaseModel):
    reason: str


@dataclass(frozen=True, eq=False)
class Cell:
    """A run, and the part it plays: to search values, or to be shown and kept whole."""

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
    def kind(self) -> str:
        """Runs of one kind take about the same time for an epoch."""
        return kind_of(self.name)

    @property
    def epochs(self) -> int:
        return sum(stage.epochs for stage in self.config.stages.values())

    @property
    def done(self) -> bool:
        """Whether nothing is left to do: it failed, or finished and has all that its part asks for."""
        return self.failure is not None or (self.folder.finished and (not self.shown or self._whole))

    @property
    def _whole(self) -> bool:
        return (self.folder.path / "model.safetensors").exists()

    @property
    def failure(self) -> str | None:
        """Why training could not go on, if so."""
        failure = read_record(self.folder.path / "failure.json", _Failure)
        return None if failure is None else failure.reason

    def fail(self, reason: str) -> None:
        self.folder.write_json("failure.json", {"reason": reason})

    def results(self) -> Results:
        return self.folder.results()

    def start_anew(self) -> None:
        """Forget the results of a run of which too little was kept."""
        (self.folder.path / "results.json").unlink(missing_ok=True)

    def keep(self) -> None:
        """See to it that a run which is shown stays whole, even if it is also one that a search tries."""
        if self.shown:
            (self.folder.path / ".shown").touch()

    def drop_checkpoints(self) -> None:
        """Delete what only an unfinished run needs."""
        self._delete("*-last.safetensors", "*-best-*.safetensors")

    def reduce(self) -> None:
        """Keep the configuration, metrics and results only; weights and scores are what fills a disk."""
        if not (self.folder.path / ".shown").exists():
            self._delete("*.safetensors", "scores_*.npy")

    def _delete(self, *patterns: str) -> None:
        for pattern in patterns:
            for file in self.folder.path.glob(pattern):
                file.unlink(missing_ok=True)


def make_cell(dataset: Dataset, row: Row, values: Values, config: Config, *, out: Path, shown: bool) -> Cell:
    """The cell of a configuration: the same one gets the same folder, whichever table or figure asks for it."""
    labels = [] if row.labels == "single" else [row.labels]
    parts = [dataset.name, row.method, *labels, config.model.mode, f"seed{config.seed}", _digest(config, dataset)]
    return Cell(dataset, row, values, config, RunFolder(out / "runs" / "-".join(parts)), shown)


def kind_of(name: str) -> str:
    """The part of a folder's name that runs of all seeds and values share."""
    return name.rpartition("-seed")[0]


def unique(cells: Iterable[Cell]) -> list[Cell]:
    """Each folder once; a cell that is to be shown comes before one that is not."""
    by_name: dict[str, Cell] = {}
    for cell in cells:
        if cell.name not in by_name or cell.shown:
            by_name[cell.name] = cell
    return list(by_name.values())


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


SECONDS_BETWEEN_TRIES = 0.1


def best_of(candidates: Sequence[Cell]) -> Cell | None:
    """The finished candidate with the best validation mAP, the first of equals; None if not one could be trained."""
    trained = [cell for cell in candidates if cell.folder.finished]
    return max(trained, key=lambda cell: cell.results().validation_map, default=None)


def choose(candidates: Sequence[Cell]) -> Values | None:
    """The values of the best candidate: none where nothing is searched, None where not one could be trained."""
    best = best_of(candidates)
    return best.values if best is not None else None if candidates else {}


def record(journal: Path, candidates: Sequence[Cell], grid: Grid) -> None:
    """Enter the candidates that are done, each once, as the trials of a study in Optuna's journal.

    The folders of the runs are what a search goes by. The journal shows it to Optuna's tools, as optuna-dashboard.
    """
    from optuna.distributions import BaseDistribution, CategoricalDistribution
    from optuna.trial import TrialState, create_trial

    with journal_study(journal, _study_name(candidates, grid)) as study:
        entered = {trial.user_attrs["run"] for trial in study.get_trials(deepcopy=False)}
        distributions: dict[str, BaseDistribution] = {
            name: CategoricalDistribution(tuple(choices)) for name, choices in grid.items()
        }
        for cell in candidates:
            failed = cell.failure is not None
            if cell.name not in entered and (failed or cell.folder.finished):
                study.add_trial(
                    create_trial(
                        state=TrialState.FAIL if failed else TrialState.COMPLETE,
                        value=None if failed else cell.results().validation_map,
                        params=dict(cell.values),
                        distributions=distributions,
                        user_attrs={"run": cell.name},
                    )
                )


@contextmanager
def journal_study(journal: Path, name: str) -> "Iterator[Study]":
    """A study in one of Optuna's journals, made if need be, while no other process of ours is at it."""
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    journal = journal.resolve()
    with _turn(journal.with_name(f".{journal.name}-turn")):
        _cut_torn_line(journal)
        try:
            turn: Any = _OurTurn()  # Optuna's own kind of it is private
            backend = JournalFileBackend(str(journal), lock_obj=turn)
            study = optuna.create_study(
                study_name=name, storage=JournalStorage(backend), direction="maximize", load_if_exists=True
            )
        except ValueError as error:
            raise RunError(f"{journal}: is damaged ({error}); delete it, the runs are not lost with it") from None
        yield study


class _OurTurn:
    """Optuna's locks are files, which outlive a process that is killed; whoever has the turn needs none."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        pass


def _cut_torn_line(journal: Path) -> None:
    """Remove the line that a process was killed at: Optuna would add the next one to it, and read neither."""
    if journal.exists() and not (content := journal.read_bytes()).endswith(b"\n"):
        os.truncate(journal, content.rfind(b"\n") + 1)


def _study_name(candidates: Sequence[Cell], grid: Grid) -> str:
    """Named by what is searched, since a study's grid cannot change."""
    searched = json.dumps([[cell.name for cell in candidates], {name: list(grid[name]) for name in grid}])
    return f"{candidates[0].kind}-{hashlib.sha256(searched.encode()).hexdigest()[:8]}"


@contextmanager
def _turn(path: Path) -> Iterator[None]:
    """Wait for a lock that nobody holds for long, and hold it."""
    with ExitStack() as held:
        while True:
            try:
                held.enter_context(locked(path))
                break
            except BusyError:
                time.sleep(SECONDS_BETWEEN_TRIES)
        yield
