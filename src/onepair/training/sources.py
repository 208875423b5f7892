"""Inputs of a model that learns: images on disk, or what the frozen part of a network makes of them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import pad

from onepair.data.images.batches import BatchSpec, ImageReader, batch_specs, normalise
from onepair.data.images.decode import Augmentation, Preprocessing
from onepair.data.label_table import LabelTable, Problem, Report, Vectors, raise_problem
from onepair.features import Features, OnProgress, View, extract_features
from onepair.inference.engine_selector import EngineSelector
from onepair.labels import Indices
from onepair.models import Backbone
from onepair.runs.config import Config, DataConfig
from onepair.runs.task import Task
from onepair.training.callbacks import Callback, progress_of
from onepair.training.checkpoint import StopRequests
from onepair.training.hardware import Hardware, first_logger, patiently

Made = TypeVar("Made")
_log = first_logger(__name__)
COPY = "holds the same as another image that cannot be read"
MUCH = 1e8  # bytes


class Shard(NamedTuple):
    """Which part of every batch a process reads: every so many-th row, starting at its own index."""

    process: int = 0
    processes: int = 1


class BatchPlan(NamedTuple):
    """One pass over rows of the table: in training shuffled by (seed, epoch) alone, from batch `start` on."""

    rows: Indices
    batch_size: int
    shard: Shard = Shard()
    training: bool = False
    seed: int = 0
    epoch: int = 0
    start: int = 0

    def specs(self, flip: float) -> list[BatchSpec]:
        """Draw which images are in each batch, and which of them are mirrored; in training alone."""
        return batch_specs(
            self.rows,
            batch_size=self.batch_size,
            mirrored=flip if self.training else None,
            seed=self.seed,
            epoch=self.epoch,
            start=self.start,
        )


class Inputs(NamedTuple):
    """A process's part of a batch."""

    inputs: Tensor  # what the model takes, on its device
    rows: Tensor  # (B,) rows of the table, of the whole batch, on the same device


class Source(Protocol):
    """Gives a model its inputs."""

    def batches(self, plan: BatchPlan) -> Iterator[Inputs]: ...


@dataclass(frozen=True, eq=False)
class FeatureSource:
    """Features of every row of a table, held in memory, or vectors that lie elsewhere."""

    features: Tensor | Vectors  # (N, D)
    device: torch.device | None = None  # of the model, where that is not the features' own

    @property
    def _device(self) -> torch.device | None:
        return self.features.device if isinstance(self.features, Tensor) else self.device

    def batches(self, plan: BatchPlan) -> Iterator[Inputs]:
        rows, shard = plan.rows, plan.shard
        order = np.random.default_rng((plan.seed, plan.epoch)).permutation(rows) if plan.training else rows
        left = np.asarray(order, np.int64)[plan.start * plan.batch_size :]
        if len(left) == 0:
            return
        device = self._device
        for batch in torch.split(torch.from_numpy(left).to(device), plan.batch_size):
            mine = batch[shard.process :: shard.processes] if shard.processes > 1 else batch
            if isinstance(self.features, Tensor):
                taken = self.features[mine].float()
            else:
                taken = torch.from_numpy(self.features.take(mine.cpu().numpy())).to(device).float()
            yield Inputs(taken, batch)


@dataclass(frozen=True, eq=False)
class ImageSource:
    """Images of a table, read and scaled by worker processes, normalised on the model's device."""

    table: LabelTable
    preprocessing: Preprocessing
    device: torch.device
    workers: int | None = None
    augmentation: Augmentation | None = None  # in training

    @cached_property
    def _reader(self) -> ImageReader:
        return ImageReader(
            self.table,
            self.preprocessing,
            workers=self.workers,
            pinned=self.device.type == "cuda",
            augmentation=self.augmentation,
        )

    def batches(self, plan: BatchPlan) -> Iterator[Inputs]:
        asked = plan.specs(self.preprocessing.flip)
        parts = self._reader.read([whole.part(*plan.shard) for whole in asked])
        for whole, (batch, problems) in zip(asked, parts, strict=True):
            for problem in problems:
                raise_problem(problem)
            images = normalise(batch.images.to(self.device, non_blocking=True), self.preprocessing)
            yield Inputs(images, torch.from_numpy(whole.rows).to(self.device))


class CachedActivations(NamedTuple):
    """What a frozen part of a network makes of images, or of their mirrored selves."""

    activations: Features  # (n, D), mapped from a file
    row_index: NDArray[np.int64]  # (N,) where those of a row of the table are


@dataclass(frozen=True, eq=False)
class ActivationSource:
    """What a frozen part of a network makes of a table's images, computed before.

    The order of rows and the mirrored ones are those of an `ImageSource`.
    """

    plain: CachedActivations
    flipped: CachedActivations | None  # None where no image is mirrored
    flip: float
    device: torch.device

    def batches(self, plan: BatchPlan) -> Iterator[Inputs]:
        for whole in plan.specs(self.flip):
            activations = torch.from_numpy(self._read(whole.part(*plan.shard))).to(self.device).float()
            yield Inputs(activations, torch.from_numpy(whole.rows).to(self.device))

    def _read(self, reading: BatchSpec) -> Features:
        found: Features = np.empty((len(reading.rows), self.plain.activations.shape[1]), np.float16)
        for kept, chosen in ((self.plain, ~reading.flipped), (self.flipped, reading.flipped)):
            if kept is not None:
                found[chosen] = kept.activations[kept.row_index[reading.rows[chosen]]]
        return found


@dataclass(frozen=True, eq=False)
class FrozenSource:
    """What a frozen part of a network makes of images at the moment: where they look different every time.

    It is rounded as if it had been kept: whether it is makes no difference to what is learned.
    """

    images: ImageSource
    frozen: nn.Module  # in evaluation mode, on the device of the images

    def batches(self, plan: BatchPlan) -> Iterator[Inputs]:
        for batch in self.images.batches(plan):
            with torch.no_grad():
                activations = self.frozen(batch.inputs).half().float()
            yield Inputs(activations, batch.rows)


def shard_of(fabric: Fabric) -> Shard:
    return Shard(fabric.global_rank, fabric.world_size)


def gather(fabric: Fabric, part: Tensor, rows: int) -> Tensor:
    """The values (B, L) of a whole batch of so many rows on every process, in the order one process would have them.

    Every process has every so many-th row, from its own index on, as a `Shard` says; of few rows, perhaps none.
    The gradient flows back to the process that each value came from. All processes compute the same loss of the same
    batch, so the sum of their gradients that a process receives, averaged by DDP, is the gradient of that loss.
    """
    if fabric.world_size == 1:
        return part
    share = -(-rows // fabric.world_size)  # parts of one length; the places that are free come last in the batch
    everyone: Any = fabric.all_gather(pad(part, (0, 0, 0, share - len(part))), sync_grads=part.requires_grad)
    whole: Tensor = everyone.transpose(0, 1).flatten(0, 1)[:rows]
    return whole


@torch.inference_mode()
def score(
    fabric: Fabric,
    model: nn.Module,
    source: Source,
    rows: Indices,
    *,
    batch_size: int,
    after_batch: Callable[[], object] = lambda: None,
) -> Tensor:
    """The logits (N, L) of rows of the table, in float32 on the CPU, the same on every process.

    They are computed in the precision that the model is trained in; `after_batch` is called after every batch.
    """
    return torch.cat(list(_batches(fabric, model, source, rows, batch_size, after_batch)))


@dataclass(frozen=True, eq=False)
class ScoredBlocks:
    """The same, a batch at a time and each time anew: a `ScoreBlocks`."""

    fabric: Fabric
    model: nn.Module
    source: Source
    rows: Indices
    batch_size: int
    after_batch: Callable[[], object] = lambda: None
    check: Callable[[NDArray[np.float32]], object] = lambda block: None  # is shown every block first

    def __iter__(self) -> Iterator[tuple[slice, NDArray[np.float32]]]:
        start = 0
        parts = _batches(self.fabric, self.model, self.source, self.rows, self.batch_size, self.after_batch)
        for part in parts:
            block = part.numpy()
            self.check(block)
            yield slice(start, start + len(part)), block
            start += len(part)


def _batches(
    fabric: Fabric,
    model: nn.Module,
    source: Source,
    rows: Indices,
    batch_size: int,
    after_batch: Callable[[], object],
) -> Iterator[Tensor]:
    was_training = model.training
    model.eval()
    try:
        for batch in source.batches(BatchPlan(rows, batch_size, shard_of(fabric))):
            with torch.inference_mode():
                with fabric.autocast():
                    logits = model(batch.inputs)
                part = gather(fabric, logits, len(batch.rows)).float().cpu()
            yield part
            after_batch()
    finally:
        model.train(was_training)


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
            plain = CachedActivations(activations, _row_index(used, len(task.table)))
            if before.preprocessing.flip == 0:
                return FixedActivations(plain, None, unreadable)
            # What a fold holds out, the others learn from.
            learned = np.union1d(task.train, task.test) if task.holds_out else task.train
            mirrored, _ = self._extract(before, task, learned, view="flipped")
            return FixedActivations(
                plain, CachedActivations(mirrored, _row_index(learned, len(task.table))), unreadable
            )

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
        on_rows = progress_of(self.callbacks, "extracting features" if view == "plain" else "and of mirrored images")
        announced = False

        def on_progress(done: int, rows: int) -> None:
            nonlocal announced
            size = 2 * (rows - done) * backbone.feature_dim
            if not announced and size > MUCH:
                _log.info(
                    f"keeping {backbone.name} of {rows - done:,} images ({view}) takes {size / 1e9:,.1f} GB "
                    f"in {self.hardware.cache}"
                )
            announced = True
            on_rows(done, rows)
            self.requests.raise_if_asked(kept="the features extracted so far are kept")

        return on_progress


def _row_index(rows: Indices, table: int) -> NDArray[np.int64]:
    """Where in an array each row of a table is, if row by row it holds `rows`."""
    indices = np.full(table, -1)
    indices[rows] = np.arange(len(rows))
    return indices
