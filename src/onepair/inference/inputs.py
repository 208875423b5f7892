"""Where a model's inputs come from: features in memory, images on disk, or what a frozen part makes of images."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from onepair.data.feature_store import Features
from onepair.data.images import normalise
from onepair.data.labeltable import LabelTable
from onepair.data.loading import ImageReader, Reading, readings
from onepair.data.preprocessing import Augmentation, Preprocessing
from onepair.data.problems import refuse
from onepair.data.vectors import Vectors
from onepair.labels import Indices


class Shard(NamedTuple):
    """Which part of every batch a process reads: every so many-th row, starting at its own index."""

    process: int = 0
    processes: int = 1


class Inputs(NamedTuple):
    """A process's part of a batch."""

    inputs: Tensor  # what the model takes, on its device
    rows: Tensor  # (B,) rows of the table, of the whole batch, on the same device


class Source(Protocol):
    """Gives a model its inputs, in training shuffled by (seed, epoch) alone; `start` is the first batch to give."""

    def batches(
        self,
        rows: Indices,
        *,
        batch_size: int,
        shard: Shard,
        training: bool,
        seed: int = 0,
        epoch: int = 0,
        start: int = 0,
    ) -> Iterator[Inputs]: ...


@dataclass(frozen=True, eq=False)
class FeatureSource:
    """Features of every row of a table, held in memory, or vectors that lie elsewhere."""

    features: Tensor | Vectors  # (N, D)
    device: torch.device | None = None  # of the model, where that is not the features' own

    @property
    def _device(self) -> torch.device | None:
        return self.features.device if isinstance(self.features, Tensor) else self.device

    def batches(
        self,
        rows: Indices,
        *,
        batch_size: int,
        shard: Shard,
        training: bool,
        seed: int = 0,
        epoch: int = 0,
        start: int = 0,
    ) -> Iterator[Inputs]:
        order = np.random.default_rng((seed, epoch)).permutation(rows) if training else rows
        left = np.asarray(order, np.int64)[start * batch_size :]
        if len(left) == 0:
            return
        device = self._device
        for batch in torch.split(torch.from_numpy(left).to(device), batch_size):
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

    def batches(
        self,
        rows: Indices,
        *,
        batch_size: int,
        shard: Shard,
        training: bool,
        seed: int = 0,
        epoch: int = 0,
        start: int = 0,
    ) -> Iterator[Inputs]:
        mirrored = self.preprocessing.flip if training else None
        asked = readings(rows, batch_size=batch_size, mirrored=mirrored, seed=seed, epoch=epoch, start=start)
        parts = self._reader.read([whole.part(*shard) for whole in asked])
        for whole, (batch, problems) in zip(asked, parts, strict=True):
            for problem in problems:
                refuse(problem)
            images = normalise(batch.images.to(self.device, non_blocking=True), self.preprocessing)
            yield Inputs(images, torch.from_numpy(whole.rows).to(self.device))


class Kept(NamedTuple):
    """What a frozen part of a network makes of images, or of their mirrored selves."""

    activations: Features  # (n, D), mapped from a file
    place: NDArray[np.int64]  # (N,) where those of a row of the table are


@dataclass(frozen=True, eq=False)
class ActivationSource:
    """What a frozen part of a network makes of a table's images, computed before.

    The order of rows and the mirrored ones are those of an `ImageSource`.
    """

    plain: Kept
    flipped: Kept | None  # None where no image is mirrored
    flip: float
    device: torch.device

    def batches(
        self,
        rows: Indices,
        *,
        batch_size: int,
        shard: Shard,
        training: bool,
        seed: int = 0,
        epoch: int = 0,
        start: int = 0,
    ) -> Iterator[Inputs]:
        mirrored = self.flip if training else None
        for whole in readings(rows, batch_size=batch_size, mirrored=mirrored, seed=seed, epoch=epoch, start=start):
            activations = torch.from_numpy(self._read(whole.part(*shard))).to(self.device).float()
            yield Inputs(activations, torch.from_numpy(whole.rows).to(self.device))

    def _read(self, reading: Reading) -> Features:
        found: Features = np.empty((len(reading.rows), self.plain.activations.shape[1]), np.float16)
        for kept, chosen in ((self.plain, ~reading.flipped), (self.flipped, reading.flipped)):
            if kept is not None:
                found[chosen] = kept.activations[kept.place[reading.rows[chosen]]]
        return found


@dataclass(frozen=True, eq=False)
class FrozenSource:
    """What a frozen part of a network makes of images at the moment: where they look different every time.

    It is rounded as if it had been kept: whether it is makes no difference to what is learned.
    """

    images: ImageSource
    frozen: nn.Module  # in evaluation mode, on the device of the images

    def batches(
        self,
        rows: Indices,
        *,
        batch_size: int,
        shard: Shard,
        training: bool,
        seed: int = 0,
        epoch: int = 0,
        start: int = 0,
    ) -> Iterator[Inputs]:
        for batch in self.images.batches(
            rows, batch_size=batch_size, shard=shard, training=training, seed=seed, epoch=epoch, start=start
        ):
            with torch.no_grad():
                activations = self.frozen(batch.inputs).half().float()
            yield Inputs(activations, batch.rows)
