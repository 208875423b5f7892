"""The search for values: which candidate is best, and the record of it that Optuna's tools read."""

import hashlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onepair.errors import UserError
from onepair.experiments.records import Grid, Values
from onepair.experiments.study_cells import Cell
from onepair.files import BusyError, locked

if TYPE_CHECKING:
    from optuna import Study

SECONDS_BETWEEN_TRIES = 0.1


class JournalError(UserError, ValueError):
    """Optuna's journal cannot be read."""


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
            raise JournalError(f"{journal}: is damaged ({error}); delete it, the runs are not lost with it") from None
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
