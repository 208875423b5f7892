"""Callbacks: what a program of yours is told while training, finding or a study goes on."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onepair.errors import require_extra

if TYPE_CHECKING:
    from onepair.data.problems import Problem

EpochRecord = dict[str, Any]


class Callback:
    """Hooks into a run; override those of interest.

    Of several processes, only the first calls them. Messages are not among them: they go to `logging`, under "onepair".

    Examples:
        >>> class Losses(Callback):
        ...     def on_epoch_end(self, record):
        ...         print(record["stage"], record["epoch"], record["loss"])
    """

    def on_stage_start(self, stage: str) -> None:
        """Before a stage ("linear" or "finetune") begins or goes on."""

    def on_stage_end(self, stage: str) -> None:
        """After a stage has ended."""

    def on_batch_end(self, *, stage: str, epoch: int, epochs: int, done: int, rows: int, loss: float) -> None:
        """After a step: `done` of `rows` images of the epoch are seen, with a mean loss of `loss`."""

    def on_epoch_end(self, record: EpochRecord) -> None:
        """After an epoch; `record` is what metrics.jsonl gets."""

    def on_progress(self, what: str, done: int, total: int) -> None:
        """While images are gone through, as in feature extraction; `what` says what for."""

    def on_problem(self, problem: "Problem") -> None:
        """For everything that is wrong with the labels, and every image that cannot be read."""

    def on_study_start(self, title: str, runs: int) -> None:
        """Before the runs of a study, of which so many are not done yet."""

    def on_run_start(self, name: str, title: str) -> None:
        """Before a run of a study."""

    def on_run_end(self, name: str, title: str, validation_map: float | None) -> None:
        """After a run of a study; its mAP is None where it failed."""


def progress_of(callbacks: Sequence[Callback], what: str) -> Callable[[int, int], None]:
    """A function that tells all callbacks how much is done of how much."""

    def on_progress(done: int, total: int) -> None:
        for callback in callbacks:
            callback.on_progress(what, done, total)

    return on_progress


class TensorBoardCallback(Callback):
    """Writes the curves of a run into a folder that TensorBoard reads."""

    CURVES = ("loss", "validation_map", "images_per_second")

    def __init__(self, folder: Path) -> None:
        require_extra("tensorboard")
        self.folder = folder
        self._writers: dict[str, Any] = {}

    def on_epoch_end(self, record: EpochRecord) -> None:
        """Add an epoch; a run that is resumed takes the place of what it had written from there on."""
        from torch.utils.tensorboard import SummaryWriter

        stage, epoch = record["stage"], record["epoch"]
        if stage not in self._writers:
            self._writers[stage] = SummaryWriter(self.folder / stage, purge_step=epoch)
        for name in self.CURVES:
            self._writers[stage].add_scalar(name, record[name], epoch)
        self._writers[stage].flush()
