"""One batch over all processes, so that nothing else needs to know how many there are."""

from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import pad

from onepair.data.labeltable import LabelTable
from onepair.inference.inputs import ImageSource, Shard, Source
from onepair.labels import Indices
from onepair.models import Classifier

_BATCH = 32


def shard_of(fabric: Fabric) -> Shard:
    return Shard(fabric.global_rank, fabric.world_size)


def gather(fabric: Fabric, values: Tensor, rows: Tensor, *, batch_size: int) -> tuple[Tensor, Tensor]:
    """The values (B, L) and rows (B,) of a whole batch on every process, in the order one process would have them.

    The gradient flows back to the process that each value came from. All processes compute the same loss of the same
    batch, so the sum of their gradients that a process receives, averaged by DDP, is the gradient of that loss.
    """
    if fabric.world_size == 1:
        return values, rows
    share = -(-batch_size // fabric.world_size)  # parts of one length, the free places marked by row -1
    free = share - len(rows)
    everyone: Any = fabric.all_gather(pad(values, (0, 0, 0, free)), sync_grads=values.requires_grad)
    all_rows: Any = fabric.all_gather(pad(rows, (0, free), value=-1))
    all_rows = all_rows.transpose(0, 1).flatten()
    taken = all_rows >= 0
    return everyone.transpose(0, 1).flatten(0, 1)[taken], all_rows[taken]


@torch.inference_mode()
def score(fabric: Fabric, model: nn.Module, source: Source, rows: Indices, *, batch_size: int) -> Tensor:
    """The logits (N, L) of rows of the table, in float32 on the CPU, the same on every process."""
    was_training = model.training
    model.eval()
    parts = []
    for inputs in source.batches(rows, batch_size=batch_size, shard=shard_of(fabric), training=False):
        logits, _ = gather(fabric, model(inputs.inputs), inputs.rows, batch_size=batch_size)
        parts.append(logits.float().cpu())
    model.train(was_training)
    return torch.cat(parts)


def score_images(
    classifier: Classifier, table: LabelTable, rows: Indices, *, workers: int | None = None
) -> NDArray[np.float32]:
    """The logits (N, L) of rows of a table, on the best device at hand."""
    fabric = Fabric(accelerator="auto", devices=1)
    model = classifier.to(fabric.device)
    source = ImageSource(table, classifier.backbone.preprocessing, fabric.device, workers=workers)
    return score(fabric, model, source, rows, batch_size=_BATCH).numpy()
