"""Scores: of a training by all of its processes together, of a finished model by one process on all devices."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import pad

from onepair.data.computing import stream_images
from onepair.data.labeltable import LabelTable
from onepair.data.problems import Report, refuse
from onepair.data.streaming import images_of
from onepair.inference.choice import Engines
from onepair.inference.engine import Engine, Over, here
from onepair.inference.inputs import Shard, Source
from onepair.labels import Indices
from onepair.models import Classifier, GivenVectors

if TYPE_CHECKING:
    from lightning_fabric import Fabric  # which takes its time, and whoever only evaluates has none


def shard_of(fabric: "Fabric") -> Shard:
    return Shard(fabric.global_rank, fabric.world_size)


def gather(fabric: "Fabric", part: Tensor, rows: int) -> Tensor:
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
    fabric: "Fabric",
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

    fabric: "Fabric"
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
    fabric: "Fabric",
    model: nn.Module,
    source: Source,
    rows: Indices,
    batch_size: int,
    after_batch: Callable[[], object],
) -> Iterator[Tensor]:
    was_training = model.training
    model.eval()
    try:
        for batch in source.batches(rows, batch_size=batch_size, shard=shard_of(fabric), training=False):
            with torch.inference_mode():
                with fabric.autocast():
                    logits = model(batch.inputs)
                part = gather(fabric, logits, len(batch.rows)).float().cpu()
            yield part
            after_batch()
    finally:
        model.train(was_training)


def score_images(
    classifier: Classifier,
    table: LabelTable,
    rows: Indices,
    *,
    precision: Any = "32-true",
    engines: Engines | None = None,
    workers: int | None = None,
    report: Report = refuse,
    over: Over = here,
) -> NDArray[np.float32]:
    """The logits (N, L) of rows of a table, on the best devices at hand. The classifier stays as it is.

    Args:
        classifier: on any device.
        table, rows: which images.
        precision: on GPUs, as Fabric calls it; that of the run, if the scores are to be its own.
        engines: those of the classifier, where it is asked more than once.
        workers: threads that read images; None is one per core.
        report: told of each image that cannot be read; if it returns, the image's scores are NaN.
        over: says where they are computed, as `onepair.inference.ray_cluster.Cluster.over`.
    """
    engines = engines or Engines(classifier, precision=precision)
    if isinstance(classifier.backbone, GivenVectors):
        return _score_vectors(engines(len(rows)), classifier.backbone, table, rows)
    engine = over(engines)(len(rows))
    images, preprocessing = images_of(table, rows), classifier.backbone.preprocessing
    scores = np.full((len(rows), len(classifier.classes)), np.nan, np.float32)
    for scored in stream_images(engine, images, preprocessing, workers=workers, report=report):
        scores[scored.rows] = scored.scores
    return scores


def _score_vectors(engine: Engine, backbone: GivenVectors, table: LabelTable, rows: Indices) -> NDArray[np.float32]:
    """The same of rows whose vectors are given, or made of texts."""
    at_once = engine.batch_size
    parts = [
        engine(backbone.vectors_of(table, rows[start : start + at_once])) for start in range(0, len(rows), at_once)
    ]
    return np.concatenate(parts)
