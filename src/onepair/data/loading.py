"""Batches of images: the same ones for the same seed and epoch, however many processes read them."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from onepair.data.decoding import Pixels, decode
from onepair.data.folders import image_files
from onepair.data.images import prepare
from onepair.data.labeltable import LabelTable
from onepair.data.preprocessing import Preprocessing
from onepair.data.problems import DataError, Problem, Report, refuse
from onepair.labels import UNKNOWN, Indices


class Batch(NamedTuple):
    """Images, and the rows of the table that they belong to."""

    images: Tensor  # (B, 3, S, S) uint8, channels last in memory
    rows: Tensor  # (B,) int64


def default_workers() -> int:
    """One process less than the cores at hand, at most eight; none where a model on two cores needs both itself."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if cores <= 2 and not torch.cuda.is_available():
        return 0
    return min(max(cores - 1, 1), 8)


def image_batches(
    table: LabelTable,
    rows: Indices,
    preprocessing: Preprocessing,
    *,
    batch_size: int,
    training: bool,
    seed: int = 0,
    epoch: int = 0,
    shard: tuple[int, int] = (0, 1),
    workers: int | None = None,
    report: Report = refuse,
) -> Iterator[Batch]:
    """Read the images of `rows`, each exactly once.

    In training the rows are shuffled and mirrored at random, anew in every epoch; in evaluation they come in order,
    as they are. The order depends on (seed, epoch), whether a row is mirrored on (seed, epoch, row): the number of
    worker processes changes nothing.

    Args:
        table, rows: which images.
        preprocessing: how they are scaled.
        batch_size: the last batch holds what is left.
        training: shuffle and mirror.
        seed, epoch: choose the order and the mirrored images.
        shard: of processes that read together, this one's index and their number: it gets every so many-th row of each
            batch, so that the parts of all processes make up the batch.
        workers: processes that read ahead; 0 reads in this one, None is `default_workers()`.
        report: told of each image that cannot be read. The default raises a `DataError`; one that returns, as a
            list's `append` does, leaves the image out of its batch. In evaluation nothing is ever left out: it raises.
    """
    order = np.asarray(rows, dtype=np.int64)
    flipped = np.zeros(len(order), bool)
    if training:
        order = np.random.default_rng((seed, epoch, 0)).permutation(order)
        flipped = np.random.default_rng((seed, epoch, 1)).random(len(table))[order] < preprocessing.flip
    batches = _Batches(table, preprocessing, order, flipped, batch_size, shard)
    # Each item is a whole batch, read by one worker: batch_size=None keeps the loader from batching batches.
    loader = DataLoader(batches, batch_size=None, num_workers=default_workers() if workers is None else workers)
    for batch, problems in loader:
        for problem in problems:
            (report if training else refuse)(problem)
        if len(batch.rows) or shard != (0, 1):  # processes that read together need one part each
            yield batch


@dataclass(frozen=True)
class _Batches(Dataset[tuple[Batch, list[Problem]]]):
    """Batch i as item i. An unreadable image travels as a `Problem`: an exception would arrive as a traceback."""

    table: LabelTable
    preprocessing: Preprocessing
    order: NDArray[np.int64]
    flipped: NDArray[np.bool_]
    batch_size: int
    shard: tuple[int, int]

    def __len__(self) -> int:
        return -(-len(self.order) // self.batch_size)

    def __getitem__(self, index: int) -> tuple[Batch, list[Problem]]:
        first, processes = self.shard
        positions = range(len(self.order))[index * self.batch_size : (index + 1) * self.batch_size][first::processes]
        images, rows, problems = [], [], []
        for row, flip in zip(self.order[positions].tolist(), self.flipped[positions].tolist(), strict=True):
            try:
                images.append(prepare(_pixels(self.table, row, self.preprocessing.size), self.preprocessing, flip=flip))
                rows.append(row)
            except DataError as error:
                file = str(self.table.path(row))
                problems.append(Problem("unreadable image", file, str(error).removeprefix(f"{file}: ")))
        return Batch(_stack(images, self.preprocessing.size), torch.tensor(rows, dtype=torch.int64)), problems


def _pixels(table: LabelTable, row: int, size: int) -> Pixels:
    return decode(table.path(row), at_least=size) if table.pixels is None else table.pixels[row]


def _stack(images: list[Tensor], size: int) -> Tensor:
    """One batch in channels-last memory: the layout both of the decoded images and of fast convolutions."""
    batch = torch.empty((len(images), 3, size, size), dtype=torch.uint8, memory_format=torch.channels_last)
    for place, image in zip(batch, images, strict=True):
        place.copy_(image)
    return batch


def table_of_files(paths: Iterable[Path], classes: Sequence[str]) -> LabelTable:
    """A table of image files, and of all those in folders and the folders below, with nothing known of their labels."""
    files = [file for path in paths for file in image_files(path)]
    return LabelTable(
        files=tuple(map(str, files)),
        classes=tuple(classes),
        labels=np.full((len(files), len(classes)), UNKNOWN, np.int8),
        split=np.full(len(files), "test"),
        root=Path(),
    )
