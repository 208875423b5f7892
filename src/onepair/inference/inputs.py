"""Where a model's inputs come from: features in memory, or images on disk."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from onepair.data.images import normalise
from onepair.data.labeltable import LabelTable
from onepair.data.loading import ImageReader, readings
from onepair.data.preprocessing import Preprocessing
from onepair.data.problems import refuse
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
    """Features of every row of a table, held in memory."""

    features: Tensor  # (N, D), half precision

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
        for batch in torch.split(torch.from_numpy(left).to(self.features.device), batch_size):
            mine = batch[shard.process :: shard.processes] if shard.processes > 1 else batch
            yield Inputs(self.features[mine].float(), batch)


@dataclass(frozen=True, eq=False)
class ImageSource:
    """Images of a table, read and scaled by worker processes, normalised on the model's device."""

    table: LabelTable
    preprocessing: Preprocessing
    device: torch.device
    workers: int | None = None

    @cached_property
    def _reader(self) -> ImageReader:
        pinned = self.device.type == "cuda"
        return ImageReader(self.table, self.preprocessing, workers=self.workers, pinned=pinned)

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
