"""One run of a study: its folder, whether it is done, and what is kept of it."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import BaseModel

from onepair.data.stored import read_record
from onepair.experiments.datasets import Dataset
from onepair.experiments.records import Row, Values, values_text
from onepair.runs.config import Config, MethodConfig, ModelConfig, differences
from onepair.runs.folder import Results, RunFolder
from onepair.runs.stages import LinearConfig


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
