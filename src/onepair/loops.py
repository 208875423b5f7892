"""What the callbacks for loops of others share: the row of a sample, batches of all processes, scores of an epoch."""

from collections.abc import Callable, Iterable, Sized
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.utils.data import DataLoader, Dataset

from onepair.errors import UserError
from onepair.methods import Method


class RowDataset(Dataset[Any]):
    """A dataset whose every item says which row of the labels it is."""

    def __init__(self, dataset: Any, add_row: Callable[[Any, int], Any]) -> None:
        self.dataset, self.add_row = dataset, add_row

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, row: int) -> Any:
        return self.add_row(self.dataset[row], row)


def require_begun(method: Method) -> None:
    """Refuse a method that has no labels yet."""
    if not hasattr(method, "observed"):
        raise UserError("the method has not seen its labels; make it by onepair.create_method(name, labels=labels)")


def require_rows(method: Method, dataset: Sized) -> None:
    """Refuse a dataset that is not the one of the method's labels."""
    if len(dataset) != len(method.observed):
        raise UserError(
            f"the training dataset has {len(dataset):,} samples, and the method began with the labels of "
            f"{len(method.observed):,}; give it one row of labels for every sample, in the same order"
        )


def require_optimised(method: Method, optimisers: Iterable[Any]) -> None:
    """Refuse a method with parameters of its own that nobody would train."""
    trained = {id(each) for optimiser in optimisers for group in optimiser.param_groups for each in group["params"]}
    if any(id(each) not in trained for each in method.parameters()):
        raise UserError(
            "the method has parameters of its own, which no optimiser has; make the optimiser of "
            "[*model.parameters(), *method.parameters()]"
        )


def loss_of_all(method: Method, logits: Tensor, rows: Tensor) -> Tensor:
    """The method's loss of a batch, or of the batches of all processes together.

    All processes compute one loss of one batch, so that the sum of gradients that each receives, averaged by DDP, is
    the gradient of that loss, and the method's state stays the same in all of them.
    """
    loss: Tensor = method(_gather(logits), _gather(rows.to(logits.device)))
    return loss


def _gather(part: Tensor) -> Tensor:
    """The parts (B, ...) of all processes, one after the other; the gradient flows back to where each came from."""
    if not (distributed.is_available() and distributed.is_initialized()) or distributed.get_world_size() == 1:
        return part
    if part.requires_grad:
        from torch.distributed.nn.functional import all_gather

        return torch.cat(all_gather(part))  # type: ignore[no-untyped-call]
    parts = [torch.empty_like(part) for _ in range(distributed.get_world_size())]
    distributed.all_gather(parts, part.contiguous())
    return torch.cat(parts)


@torch.no_grad()
def training_scores(
    model: nn.Module, loader: DataLoader[Any], compute: Callable[[Any], Tensor], *, device: torch.device
) -> Tensor:
    """The logits (N, L) of all rows of a loader's dataset, each process computing its share of them.

    Args:
        model: is in evaluation mode meanwhile.
        loader: of training; its order and its batches are not used.
        compute: from a batch to its logits (B, L).
        device: where the scores are wanted.
    """
    dataset: Any = loader.dataset
    rank, world = 0, 1
    if distributed.is_available() and distributed.is_initialized():
        rank, world = distributed.get_rank(), distributed.get_world_size()
    count, share = len(dataset), -(-len(dataset) // world)
    own = [(rank * share + place) % count for place in range(share)]  # as many for all; the last begin anew
    ordered = DataLoader(dataset, batch_size=loader.batch_size or 1, sampler=own, collate_fn=loader.collate_fn)
    training = model.training
    model.eval()
    try:
        part = torch.cat([compute(batch).detach().to(device) for batch in ordered])
    finally:
        model.train(training)
    scores = part.new_empty(count, part.shape[1])
    scores[_gather(torch.tensor(own, device=device))] = _gather(part)
    return scores
