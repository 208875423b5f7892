"""Choosing labels by their scores."""

from collections.abc import Sequence

import torch
from torch import Tensor


def highest_scored(scores: Tensor, candidates: Tensor, count: int) -> Tensor:
    """The mask of the `count` highest-scored candidates, of all if there are fewer; among equals the first win.

    Args:
        scores: finite numbers, of any shape.
        candidates: mask of the cells to choose from, of the same shape.
        count: how many to choose.

    >>> highest_scored(torch.tensor([3.0, 2.0, 2.0, 1.0]), torch.tensor([False, True, True, True]), 1)
    tensor([False,  True, False, False])
    """
    if count == 0:
        return torch.zeros_like(candidates)
    # Selecting the lowest score to be chosen is an order of magnitude faster than sorting all of them.
    values = scores.masked_fill(~candidates, -torch.inf).flatten()
    lowest = values.kthvalue(max(len(values) - count, 0) + 1).values
    above, level = values > lowest, values == lowest
    first = level & (level.cumsum(0) <= count - above.sum())
    return (above | first).view_as(candidates) & candidates


def highest_scored_per_class(scores: Tensor, candidates: Tensor, counts: Sequence[int]) -> Tensor:
    """`highest_scored` in every column of an (N, L) matrix, each with a count of its own."""
    columns = zip(scores.T.contiguous(), candidates.T.contiguous(), counts, strict=True)
    return torch.stack([highest_scored(*column) for column in columns], dim=1)
