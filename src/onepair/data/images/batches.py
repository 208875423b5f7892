"""Batches of images: the same for the same seed and epoch, whatever the number of processes."""

import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import functional

from onepair.data.images.decode import Augmentation, Pixels, Preprocessing, decode, scale
from onepair.data.images.image_files import image_files
from onepair.data.images.tar import joined
from onepair.data.label_table import LabelTable, Problem, Report, raise_problem
from onepair.errors import DataError, RemoteError
from onepair.label_matrix import LabelMatrix
from onepair.labels import UNKNOWN, Indices
from onepair.remote import RemotePath, all_at_once, as_path, in_threads, is_remote

LEAST = 0.5  # of an image's area that a crop keeps: a smaller one would often leave out what a label speaks of
_TRIES = 10  # to draw a crop that lies within the image
_BINS = 31  # strengths of an operation


def augment(pixels: Pixels, preprocessing: Preprocessing, augmentation: Augmentation, *, draw: int) -> Tensor:
    """Crop a random part of an image (H, W, 3) and scale it to a uint8 tensor (3, size, size).

    "crop" does no more; "strong" then changes its colours, contrast or geometry by one operation of random strength
    (TrivialAugment, Müller and Hutter 2021), a policy that has nothing to tune. torchvision's own transforms draw from
    the generator of the whole process, which other threads use.

    Args:
        pixels: as decoded.
        preprocessing: the size, and how to interpolate.
        augmentation: which.
        draw: the seed of everything random.
    """
    random = np.random.default_rng(draw)
    image: Tensor = functional.resized_crop(
        torch.tensor(pixels).permute(2, 0, 1),
        *_random_box(pixels.shape[0], pixels.shape[1], random),
        [preprocessing.size, preprocessing.size],
        interpolation=functional.InterpolationMode(preprocessing.interpolation),
        antialias=True,
    )
    if augmentation == "crop":
        return image
    operation = _OPERATIONS[random.integers(len(_OPERATIONS))]
    return operation(image, random.integers(_BINS) / (_BINS - 1), random.choice([-1, 1]))


def _random_box(height: int, width: int, random: np.random.Generator) -> tuple[int, int, int, int]:
    """Top, left, height and width of a part with at least `LEAST` of the area, from 3:4 to 4:3."""
    for _ in range(_TRIES):
        area, ratio = height * width * random.uniform(LEAST, 1), math.exp(random.uniform(*np.log([3 / 4, 4 / 3])))
        tall, wide = round(math.sqrt(area / ratio)), round(math.sqrt(area * ratio))
        if 0 < tall <= height and 0 < wide <= width:
            return int(random.integers(height - tall + 1)), int(random.integers(width - wide + 1)), tall, wide
    return 0, 0, height, width


_affine: Callable[..., Tensor] = partial(functional.affine, angle=0, scale=1, fill=[128])


def _shear(image: Tensor, across: float, down: float) -> Tensor:
    shear = [math.degrees(math.atan(across)), math.degrees(math.atan(down))]
    return _affine(image, translate=[0, 0], shear=shear, center=[0, 0])


def _shift(image: Tensor, across: float, down: float) -> Tensor:
    return _affine(image, translate=[int(across), int(down)], shear=[0, 0])


# Of an image, a strength from 0 to 1, and a sign.
_OPERATIONS: tuple[Callable[[Tensor, float, int], Tensor], ...] = (
    lambda image, strength, sign: image,
    lambda image, strength, sign: _shear(image, 0.99 * sign * strength, 0),
    lambda image, strength, sign: _shear(image, 0, 0.99 * sign * strength),
    lambda image, strength, sign: _shift(image, 32 * sign * strength, 0),
    lambda image, strength, sign: _shift(image, 0, 32 * sign * strength),
    lambda image, strength, sign: functional.rotate(image, 135 * sign * strength, fill=[128]),
    lambda image, strength, sign: functional.adjust_brightness(image, 1 + 0.99 * sign * strength),
    lambda image, strength, sign: functional.adjust_saturation(image, 1 + 0.99 * sign * strength),
    lambda image, strength, sign: functional.adjust_contrast(image, 1 + 0.99 * sign * strength),
    lambda image, strength, sign: functional.adjust_sharpness(image, 1 + 0.99 * sign * strength),
    lambda image, strength, sign: functional.posterize(image, round(8 - 6 * strength)),
    lambda image, strength, sign: functional.solarize(image, 255 * (1 - strength)),
    lambda image, strength, sign: functional.autocontrast(image),
    lambda image, strength, sign: functional.equalize(image),
)


def prepare(pixels: Pixels, preprocessing: Preprocessing, *, flip: bool = False) -> Tensor:
    """Scale an image (H, W, 3) to a uint8 tensor (3, size, size), mirrored if asked; colours stay as they are.

    >>> import numpy as np
    >>> prepare(np.zeros((4, 6, 3), np.uint8), Preprocessing(2, mean=(0, 0, 0), std=(1, 1, 1))).shape
    torch.Size([3, 2, 2])
    """
    tensor = torch.from_numpy(scale(pixels, preprocessing)).permute(2, 0, 1)
    return tensor.flip(-1) if flip else tensor


def normalise(images: Tensor, preprocessing: Preprocessing) -> Tensor:
    """Turn uint8 images (B, 3, S, S) into the floats that a backbone takes.

    >>> half = Preprocessing(1, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
    >>> normalise(torch.full((1, 3, 1, 1), 255, dtype=torch.uint8), half).flatten()
    tensor([1., 1., 1.])
    """
    mean, std = (
        torch.tensor(values, device=images.device).view(3, 1, 1) * 255
        for values in (preprocessing.mean, preprocessing.std)
    )
    return (images - mean).div_(std)


_NO_SERVER = "no server"  # the kind of a problem that is no image's own


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


class BatchSpec(NamedTuple):
    """The rows of a whole batch, and what is done to them."""

    rows: NDArray[np.int64]  # (B,)
    flipped: NDArray[np.bool_]  # (B,)
    draws: NDArray[np.int64] | None = None  # (B,) what decides their augmentation, in training

    def part(self, process: int, processes: int) -> "BatchSpec":
        """Of processes that read a batch together, what one of them reads."""
        return self.cut(slice(process, None, processes))

    def cut(self, part: slice) -> "BatchSpec":
        return BatchSpec(self.rows[part], self.flipped[part], None if self.draws is None else self.draws[part])


def batch_specs(
    rows: Indices,
    *,
    batch_size: int,
    mirrored: float | None,
    seed: int = 0,
    epoch: int = 0,
    start: int = 0,
) -> list[BatchSpec]:
    """What the batches of an epoch are, from batch `start` on, the first being 0.

    Args:
        rows: of the table.
        batch_size: the last batch holds what is left.
        mirrored: the share of images that are mirrored, in training; None reads them in order, as they are.
        seed, epoch: choose the order and, together with its row, how an image is mirrored and augmented.
        start: the first batch to read; those before it are as they would have been.
    """
    order = np.asarray(rows, dtype=np.int64)
    epoch_long = BatchSpec(order, np.zeros(len(order), bool))
    if mirrored is not None and len(order):
        order = np.random.default_rng((seed, epoch, 0)).permutation(order)
        flipped = np.random.default_rng((seed, epoch, 1)).random(order.max() + 1)[order] < mirrored
        draws = np.random.default_rng((seed, epoch, 2)).integers(2**63, size=order.max() + 1)[order]
        epoch_long = BatchSpec(order, flipped, draws)
    firsts = range(0, len(order), batch_size)[start:]
    return [epoch_long.cut(slice(first, first + batch_size)) for first in firsts]


class ImageReader:
    """Reads batches of a table's images, by processes that live as long as it does: starting them takes seconds.

    Args:
        table: whose images; the processes are given their files or pixels, not the labels.
        preprocessing: how they are scaled.
        workers: processes that read ahead; 0 reads in this one, None is `default_workers()`.
        pinned: put batches into memory from which a GPU copies without waiting.
        augmentation: of the images that are read for training.
    """

    def __init__(
        self,
        table: LabelTable,
        preprocessing: Preprocessing,
        *,
        workers: int | None = None,
        pinned: bool = False,
        augmentation: Augmentation | None = None,
    ) -> None:
        workers = default_workers() if workers is None else workers
        self._asked: list[BatchSpec] = []
        self._images = _Images(table.files, table.root, table.pixels, preprocessing, augmentation)
        # Without processes, a thread reads the next batch from a server while one is in use.
        self._ahead = workers == 0 and self._images.remote
        # Each item is a whole batch, read by one worker: batch_size=None keeps the loader from batching batches.
        self._loader = DataLoader(
            self._images,
            batch_size=None,
            sampler=self._asked,
            num_workers=workers,
            persistent_workers=workers > 0,
            worker_init_fn=_leave_signals_to_the_first,
            pin_memory=pinned,
        )

    def read(self, asked: Iterable[BatchSpec]) -> Iterator[tuple[Batch, list[Problem]]]:
        """These batches, in their order, each with what is wrong with images that were left out of it.

        One reader reads for one at a time: what was not taken of an earlier call is lost.
        """
        self._asked[:] = asked
        ahead = in_threads(self._images.__getitem__, list(self._asked), threads=1, ahead=1) if self._ahead else None
        for batch, problems in ahead or self._loader:
            for problem in problems:
                if problem.kind == _NO_SERVER:
                    raise RemoteError(problem.what)
            yield batch, problems


def image_batches(
    table: LabelTable,
    rows: Indices,
    preprocessing: Preprocessing,
    *,
    batch_size: int,
    training: bool,
    seed: int = 0,
    epoch: int = 0,
    workers: int | None = None,
    report: Report = raise_problem,
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
        workers: as for `ImageReader`.
        report: told of each image that cannot be read. The default raises a `DataError`; one that returns, as a
            list's `append` does, leaves the image out of its batch. In evaluation nothing is ever left out: it raises.
    """
    mirrored = preprocessing.flip if training else None
    asked = batch_specs(rows, batch_size=batch_size, mirrored=mirrored, seed=seed, epoch=epoch)
    for batch, problems in ImageReader(table, preprocessing, workers=workers).read(asked):
        for problem in problems:
            (report if training else raise_problem)(problem)
        if len(batch.rows):
            yield batch


@dataclass(frozen=True)
class _Images(Dataset[tuple[Batch, list[Problem]]]):
    """Batches by their `BatchSpec`. An unreadable image is returned as a `Problem`: exceptions do not pickle well."""

    files: tuple[str, ...]
    root: Path
    pixels: NDArray[np.uint8] | None
    preprocessing: Preprocessing
    augmentation: Augmentation | None

    @property
    def remote(self) -> bool:
        return self.pixels is None and len(self.files) > 0 and is_remote(joined(self.root, self.files[0]))

    def __getitem__(self, reading: BatchSpec) -> tuple[Batch, list[Problem]]:
        rows, flips = reading.rows.tolist(), reading.flipped.tolist()
        draws = [None] * len(rows) if reading.draws is None else reading.draws.tolist()
        read = list(
            all_at_once(lambda each: self._read(*each), zip(rows, flips, draws, strict=True), remote=self.remote)
        )
        images = [image for image in read if isinstance(image, Tensor)]
        good = [row for row, image in zip(rows, read, strict=True) if isinstance(image, Tensor)]
        problems = [problem for problem in read if isinstance(problem, Problem)]
        return Batch(_stack(images, self.preprocessing.size), torch.tensor(good, dtype=torch.int64)), problems

    def _read(self, row: int, flip: bool, draw: int | None) -> Tensor | Problem:
        try:
            return self._prepared(row, flip=flip, draw=draw)
        except DataError as error:
            file = str(joined(self.root, self.files[row]))
            return Problem("unreadable image", file, str(error).removeprefix(f"{file}: "))
        except RemoteError as error:
            return Problem(_NO_SERVER, "", str(error))

    def _prepared(self, row: int, *, flip: bool, draw: int | None) -> Tensor:
        pixels = self._pixels(row)
        if self.augmentation is None or draw is None:
            return prepare(pixels, self.preprocessing, flip=flip)
        augmented = augment(pixels, self.preprocessing, self.augmentation, draw=draw)
        return augmented.flip(-1) if flip else augmented

    def _pixels(self, row: int) -> Pixels:
        if self.pixels is None:
            return decode(joined(self.root, self.files[row]), at_least=self.preprocessing.size)
        pixels: Pixels = self.pixels[row]
        return pixels


def _leave_signals_to_the_first(worker: int) -> None:
    """Stay alive when a signal reaches all processes of a terminal or job: the first one still has to stop in order."""
    os.setsid()


def _stack(images: list[Tensor], size: int) -> Tensor:
    """One batch in channels-last memory: the layout both of the decoded images and of fast convolutions."""
    batch = torch.empty((len(images), 3, size, size), dtype=torch.uint8, memory_format=torch.channels_last)
    for target, image in zip(batch, images, strict=True):
        target.copy_(image)
    return batch


def table_of_files(paths: Iterable[Path], classes: Sequence[str]) -> LabelTable:
    """A table of image files, and of all those in folders and the folders below, with nothing known of their labels."""
    files = [file for path in paths for file in image_files(path)]
    origins = {file.origin for file in files if isinstance(file, RemotePath)}
    if len(origins) > 1:
        raise DataError(f"images of one table are on one server, not on {' and '.join(sorted(origins))}")
    return LabelTable(
        files=tuple(map(str, files)),
        classes=tuple(classes),
        labels=LabelMatrix.from_entries((len(files), len(classes)), [], [], UNKNOWN),
        split=np.full(len(files), "test"),
        root=as_path(origins.pop()) if origins else Path(),
    )
