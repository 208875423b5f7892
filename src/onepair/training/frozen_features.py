"""What the parts of a network that do not learn make of all images, each computed once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray

from onepair.data.problems import Problem, Report, raise_problem
from onepair.features.extract import OnProgress, View, extract_features
from onepair.features.store import Features
from onepair.inference.engine_selector import EngineSelector
from onepair.labels import Indices
from onepair.models import Backbone
from onepair.runs.config import Config, DataConfig
from onepair.runs.task import Task
from onepair.training.callbacks import Callback, progress_of
from onepair.training.checkpoint import StopRequests
from onepair.training.distributed import first_logger, patiently
from onepair.training.hardware import Hardware
from onepair.training.sources import CachedActivations

Made = TypeVar("Made")
_log = first_logger(__name__)

COPY = "holds the same as another image that cannot be read"
MUCH = 1e8  # bytes


class FixedFeatures(NamedTuple):
    """The features of a fixed backbone."""

    by_row: torch.Tensor  # (N, D), of all rows of the table; of those that are not used, zeros
    unreadable: list[Problem]


class FixedActivations(NamedTuple):
    """What the fixed part of a backbone gives, too much to be held in memory."""

    plain: CachedActivations
    flipped: CachedActivations | None  # of training images alone
    unreadable: list[Problem]


@dataclass(frozen=True, eq=False)
class FrozenFeatures:
    """Computes what is fixed, every process its share, and shares it with the runs that follow on this machine."""

    fabric: Fabric
    config: Config
    hardware: Hardware
    callbacks: Sequence[Callback]
    requests: StopRequests
    test: bool  # whether test images will be looked at

    def features(self, backbone: Backbone, task: Task) -> FixedFeatures:
        """The features of all images."""

        def extract() -> FixedFeatures:
            used = self._used(task)
            features, unreadable = self._extract(backbone, task, used)
            by_row = np.zeros((len(task.table), features.shape[1]), features.dtype)
            by_row[used] = features
            return FixedFeatures(torch.from_numpy(by_row).to(self.fabric.device), unreadable)

        # They are the same whichever labels are observed.
        return self._once("features", backbone, self.config.data.images_alone, extract)

    def activations(self, before: Backbone, task: Task) -> FixedActivations:
        """What a stage takes of all images, and of training images also mirrored."""

        def extract() -> FixedActivations:
            used = self._used(task)
            activations, unreadable = self._extract(before, task, used)
            plain = CachedActivations(activations, _places(used, len(task.table)))
            if before.preprocessing.flip == 0:
                return FixedActivations(plain, None, unreadable)
            # What a fold holds out, the others learn from.
            learned = np.union1d(task.train, task.test) if task.holds_out else task.train
            mirrored, _ = self._extract(before, task, learned, view="flipped")
            return FixedActivations(plain, CachedActivations(mirrored, _places(learned, len(task.table))), unreadable)

        return self._once("activations", before, self.config.data, extract)

    def report(self, problems: list[Problem]) -> Report:
        """What is told of images that cannot be read."""
        return problems.append if self.config.data.on_error == "skip" else raise_problem

    def share(self, rows: Indices) -> Indices:
        """The rows that this process sees to, where each may take its time."""
        return rows[self.fabric.global_rank :: self.fabric.world_size]

    def _once(self, kind: str, backbone: Backbone, images: DataConfig, make: Callable[[], Made]) -> Made:
        """What an earlier run has made, if it is the same: the folds of a run share it."""
        whole = replace(images, fold=None)
        key = (kind, whole, self.test, backbone.name, backbone.preprocessing, backbone.weights_id())
        return self.hardware.shared.get_or_make(key, make)

    def _used(self, task: Task) -> Indices:
        # A fold has no use for the test images, but with them it finds what the other folds have computed.
        return np.union1d(task.images, task.table.rows("test") if self.test else task.test)

    def _extract(
        self, backbone: Backbone, task: Task, rows: Indices, *, view: View = "plain"
    ) -> tuple[Features, list[Problem]]:
        """What a backbone makes of rows, and which of them cannot be read. Every process extracts its share first."""
        problems: list[Problem] = []
        on_progress = self._progress(backbone, view)

        def extract(some: Indices, report: Report) -> Features:
            if len(some) == 0:  # fewer images than processes
                return np.empty((0, backbone.feature_dim), np.float16)
            engines = EngineSelector(backbone, devices=[self.fabric.device], cache=self.hardware.cache)
            return extract_features(
                task.table,
                backbone,
                backbone.preprocessing,
                self.hardware.executor(engines),
                folder=self.hardware.cache / "features",
                rows=some,
                view=view,
                workers=self.hardware.workers,
                report=report,
                on_progress=on_progress,
            ).features

        if self.fabric.world_size > 1:
            with patiently(self.fabric):
                extract(self.share(rows), self.report([]))
        features = extract(rows, self.report(problems))
        reasons = {problem.where: problem.what for problem in problems}
        unreadable = [str(task.table.path(row)) for row in rows[np.isnan(features[:, 0])].tolist()]
        return features, [Problem("unreadable image", path, reasons.get(path, COPY)) for path in unreadable]

    def _progress(self, backbone: Backbone, view: View) -> OnProgress:
        """Tell how far it is, and before anything is written how much room it will take, if that is much."""
        told = progress_of(self.callbacks, "extracting features" if view == "plain" else "and of mirrored images")
        said = False

        def on_progress(done: int, rows: int) -> None:
            nonlocal said
            size = 2 * (rows - done) * backbone.feature_dim
            if not said and size > MUCH:
                _log.info(
                    f"keeping {backbone.name} of {rows - done:,} images ({view}) takes {size / 1e9:,.1f} GB "
                    f"in {self.hardware.cache}"
                )
            said = True
            told(done, rows)
            self.requests.raise_if_asked(kept="the features extracted so far are kept")

        return on_progress


def _places(rows: Indices, table: int) -> NDArray[np.int64]:
    """Where in an array each row of a table is, if row by row it holds `rows`."""
    places = np.full(table, -1)
    places[rows] = np.arange(len(rows))
    return places
