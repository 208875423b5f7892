"""Where a model's inputs come from: features in memory, images on disk, or what a frozen part makes of images."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
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

_ROWS_TO_MEASURE = 1024
_ROUNDING = 1e-6  # of a feature's largest value: it is constant if it varies by less
_MOST_VARIED = 3.0  # deviations of the median feature, that one may have; those of networks have less
_FARTHEST = 10.0  # from 0, times the median feature, that one may be where most values are 0; words are within 5


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
    centre: Tensor | None = None  # (D,), taken from every row
    scale: Tensor | None = None  # (D,) or a number, which every row is then divided by

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
            yield Inputs(self.moved(taken), batch)

    def moved(self, features: Tensor) -> Tensor:
        """What a model is given of some features."""
        features = features if self.centre is None else features - self.centre
        return features if self.scale is None else features / self.scale

    def levelled(self, rows: Indices) -> "FeatureSource":
        """The same about the mean of the rows, unless most values are 0, as in counts of words.

        A feature in smaller units than the others, which varies beyond measure, is brought down to what others may.
        """
        some = self._some(rows)
        if (some == 0).double().mean() > 0.5:
            return self._levelled_about_zero(some)
        deviation = some.std(0, correction=0)
        varying = deviation[deviation > _ROUNDING * some.abs().amax(0)]
        most = _MOST_VARIED * varying.median() if len(varying) else math.inf
        scale = (deviation / most).clamp(min=1)
        return self._moving(some.mean(0), scale if (scale > 1).any() else None)

    def _levelled_about_zero(self, some: Tensor) -> "FeatureSource":
        """The same, but for features that are far from 0: about their mean, if that is not 0 either, and brought down.

        How far a feature is goes by its values other than 0: a word in few rows is no smaller than one in many.
        """
        given = some != 0
        away = _root_mean_square(some, given)
        usual = away[away > 0].median() if (away > 0).any() else math.inf
        far = away > _FARTHEST * usual
        if not far.any():
            return self
        centre = torch.where(far & (given.double().mean(0) > 0.5), some.mean(0), 0.0)
        scale = torch.where(far, (_root_mean_square(some - centre, given) / usual).clamp(min=1), 1.0)
        return self._moving(centre, scale)

    def _moving(self, centre: Tensor, scale: Tensor | None) -> "FeatureSource":
        device = self._device
        return replace(
            self, centre=centre.float().to(device), scale=None if scale is None else scale.float().to(device)
        )

    def in_units_of(self, unit: float) -> "FeatureSource":
        """The same, divided by a number."""
        return replace(self, scale=torch.tensor(unit) if self.scale is None else unit * self.scale)

    def size(self, rows: Indices) -> float:
        """The mean over the rows of the sums of their features' absolute values."""
        return float(self._some(rows).abs().sum(1).mean())

    def variance(self, rows: Indices) -> float:
        """How much the rows vary: the sum of their features' variances."""
        return float(self._some(rows).var(0, correction=0).sum())

    def _some(self, rows: Indices) -> Tensor:
        """Features of some of the rows, which stand for all: in float64, and so on the CPU, as Apple GPUs have none."""
        some = rows[:: -(-len(rows) // _ROWS_TO_MEASURE)]
        (part,) = self.batches(some, batch_size=_ROWS_TO_MEASURE, shard=Shard(), training=False)
        return part.inputs.cpu().double()


def _root_mean_square(values: Tensor, given: Tensor) -> Tensor:
    """Of each column, over the cells that are given; 0 of none."""
    return ((values.square() * given).sum(0) / given.sum(0).clamp(min=1)).sqrt()


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
