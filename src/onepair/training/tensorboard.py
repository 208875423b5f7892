"""A run's epochs for TensorBoard."""

from pathlib import Path
from typing import Any

from onepair.errors import require_extra

_CURVES = ("loss", "validation_map", "images_per_second")


class TensorBoard:
    """Writes the curves of a run into a folder that TensorBoard reads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._writers: dict[str, Any] = {}
        require_extra("tensorboard")

    def epoch(self, record: dict[str, Any]) -> None:
        """Add one epoch; a run that is resumed takes the place of what it had written from there on."""
        from torch.utils.tensorboard import SummaryWriter

        stage, epoch = record["stage"], record["epoch"]
        if stage not in self._writers:
            self._writers[stage] = SummaryWriter(self.folder / stage, purge_step=epoch)
        for name in _CURVES:
            self._writers[stage].add_scalar(name, record[name], epoch)
        self._writers[stage].flush()
