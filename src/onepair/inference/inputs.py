"""Where a model's inputs come from: features in memory, or images on disk."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from onepair.data.images import normalise
from onepair.data.labeltable import LabelTable
from onepair.data.loading import image_batches
from onepair.data.preprocessing import Preprocessing
from onepair.labels import Indices


class Shard(NamedTuple):
    """Which part of every batch a process reads: every so many-th row, starting at its own index."""

    process: int = 0
    processes: int = 1


class Inputs(NamedTuple):
    """A process's part of a batch."""

    inputs: Tensor  # what the model takes, on its device
    rows: Tensor  # (B,) rows of the table, on the same device


class Source(Protocol):
    """Gives a model its inputs, in training shuffled by (seed, epoch) alone."""

    def batches(
        self, rows: Indices, *, batch_size: int, shard: Shard, training: bool, seed: int = 0, epoch: int = 0
    ) -> Iterator[Inputs]: ...


@dataclass(frozen=True, eq=False)
class FeatureSource:
    """Features of every row of a table, held in memory."""

    features: Tensor  # (N, D), half precision

    def batches(
        self, rows: Indices, *, batch_size: int, shard: Shard, training: bool, seed: int = 0, epoch: int = 0
    ) -> Iterator[Inputs]:
        order = np.random.default_rng((seed, epoch)).permutation(rows) if training else rows
        every_row = torch.from_numpy(np.asarray(order, np.int64)).to(self.features.device)
        for batch in torch.split(every_row, batch_size):
            mine = batch[shard.process :: shard.processes] if shard.processes > 1 else batch
            yield Inputs(self.features[mine].float(), mine)


@dataclass(frozen=True, eq=False)
class ImageSource:
    """Images of a table, read and scaled by worker processes, normalised on the model's device."""

    table: LabelTable
    preprocessing: Preprocessing
    device: torch.device
    workers: int | None = None

    def batches(
        self, rows: Indices, *, batch_size: int, shard: Shard, training: bool, seed: int = 0, epoch: int = 0
    ) -> Iterator[Inputs]:
        for batch in image_batches(
            self.table,
            rows,
            self.preprocessing,
            batch_size=batch_size,
            training=training,
            seed=seed,
            epoch=epoch,
            shard=shard,
            workers=self.workers,
        ):
            images = normalise(batch.images.to(self.device, non_blocking=True), self.preprocessing)
            yield Inputs(images, batch.rows.to(self.device))
