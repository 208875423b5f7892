"""What several processes of one run owe each other."""

from collections.abc import Callable

import torch
from lightning_fabric import Fabric
from torch import nn

from onepair.errors import UserError


def share_buffers(fabric: Fabric, model: nn.Module) -> None:
    """Give every process the first one's buffers: a batch norm's means are of the parts its process has seen."""
    if fabric.world_size > 1:
        for buffer in model.buffers():
            torch.distributed.broadcast(buffer, src=0)


def on_first(fabric: Fabric, action: Callable[[], object]) -> None:
    """Let the first process do something for all. Where it refuses, all of them stop, and only the first says why."""
    refusal: UserError | None = None
    if fabric.is_global_zero:
        try:
            action()
        except UserError as error:
            refusal = error
    if fabric.broadcast(refusal is not None):
        raise refusal or SystemExit(2)
