"""What a stage has saved: its last state, and its best weights."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from onepair.runs.checkpoint import load_state, save_state, unfit

Weights = dict[str, Tensor]


class Saved:
    """The files of a stage in the folder of its run.

    The best weights have a file by their epoch, which the state refers to. It is written before the state and the older
    one deleted after it, so that whenever the process ends, the state on disk finds the weights that belong to it; and
    while an epoch stays the best they are not written again.
    """

    def __init__(self, folder: Path, stage: str) -> None:
        self.folder, self.stage = folder, stage
        self.last = folder / f"{stage}-last.safetensors"
        self._best: Path | None = None  # that is written

    def save(self, state: Mapping[str, Any], *, best: Weights, best_epoch: int) -> None:
        """Save a state; before the end of the first epoch there are no best weights, and `best_epoch` is 0."""
        file = self._best_file(best_epoch)
        if best_epoch and file != self._best:
            save_state(file, best)
            self._best = file
        save_state(self.last, {**state, "best_epoch": best_epoch})
        self._remove_others(file)

    def load(self) -> tuple[dict[str, Any], Weights]:
        """The last state, and the best weights that belong to it.

        Older ones go, too: a process that is killed after its last state leaves none that would remove them.
        """
        state = load_state(self.last)
        best_epoch = state.pop("best_epoch", None)
        if not isinstance(best_epoch, int):
            raise unfit(self.last, KeyError("best_epoch"))
        file = self._best_file(best_epoch)
        best = load_state(file) if best_epoch else {}
        self._best = file
        self._remove_others(file)
        return state, best

    def _remove_others(self, best: Path) -> None:
        for other in self.folder.glob(self._best_file("*").name):
            if other != best:
                other.unlink(missing_ok=True)  # other processes of the run may remove it, too

    def _best_file(self, epoch: int | str) -> Path:
        return self.folder / f"{self.stage}-best-{epoch}.safetensors"
