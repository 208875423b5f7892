"""Batches that every loss must cope with, and the losses themselves, by name."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor

from onepair import losses


def soft_opml_of_predictions(logits: Tensor, labels: Tensor, **options: object) -> Tensor:
    """Soft OPML as the paper uses it: γ = pred × AP^ε, with a gradient through pred."""
    class_ap = torch.linspace(0.2, 1.0, logits.shape[-1], dtype=logits.dtype)
    return losses.soft_opml_loss(logits, labels, gamma=logits.sigmoid() * class_ap, **options)


LOSSES: dict[str, Callable[..., Tensor]] = {
    "opml": losses.opml_loss,
    "soft-opml": soft_opml_of_predictions,
    "zlpr": losses.zlpr_loss,
    "bce": losses.bce_loss,
    "focal": losses.focal_loss,
    "asymmetric": losses.asymmetric_loss,
    "hill": losses.hill_loss,
    "propensity": partial(losses.propensity_loss, propensities=0.6),
    "bounded propensity": partial(losses.propensity_loss, propensities=0.6, form="bounded"),
    "entropy": losses.entropy_maximization_loss,
    "opml-plus": losses.opml_plus_loss,
}
CELL_BY_CELL = LOSSES.keys() - {"opml", "soft-opml", "zlpr"}  # the others couple the labels of a row

EDGE_CASES = {
    "mixed": [[1, 0, -1], [-1, 1, 0]],
    "one row": [[1, -1, -1]],
    "one cell": [[-1]],
    "all unknown": [[-1, -1, -1], [1, -1, -1]],
    "all positive": [[1, 1, 1]],
    "all negative": [[0, 0, 0]],
}


class Extreme(NamedTuple):
    """A batch at the edge of what there is."""

    name: str
    logits: Tensor
    labels: Tensor


def extreme_cases() -> Iterator[Extreme]:
    """Every edge case in every dtype, with logits from none to the largest of half precision, of both signs."""
    dtypes = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
    for (name, rows), dtype, scale in product(EDGE_CASES.items(), dtypes, (0.0, 1.0, -1.0, 50.0, -50.0, 1e4, -1e4)):
        labels = torch.tensor(rows)
        signs = torch.tensor([1.0, -1.0]).repeat(labels.numel())[: labels.numel()].view(labels.shape)
        yield Extreme(f"{name}, {dtype}, {scale}", (scale * signs).to(dtype).requires_grad_(), labels)


def random_batch(rows: int = 6, classes: int = 5, *, seed: int = 0, scale: float = 2.0) -> tuple[Tensor, Tensor]:
    """Double logits that ask for a gradient, and labels of all three kinds."""
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(rows, classes, dtype=torch.float64, generator=generator)
    labels = torch.randint(-1, 2, (rows, classes), generator=generator, dtype=torch.int8)
    return logits.requires_grad_(), labels


def counts_as(label: int, unknown: str) -> str:
    """What a label means to a loss, written out for the slow references."""
    return {1: "positive", 0: "negative", -1: unknown}[label]
