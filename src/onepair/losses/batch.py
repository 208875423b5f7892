"""What all losses share: the inputs they accept, the masks they work on, the reductions they offer."""

import inspect
import math
from collections.abc import Callable
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN

Unknown = Literal["negative", "ignore"]
Reduction = Literal["mean", "sum", "none"]


class LossBatch(NamedTuple):
    """A batch, ready for arithmetic: logits in float32 or better, and masks of the same dtype that hold 0 and 1."""

    logits: Tensor
    positive: Tensor
    negative: Tensor  # known negatives, and unknown labels where they count as negative


def loss_batch(logits: Tensor, labels: Tensor, *, unknown: Unknown, soft: bool = False) -> LossBatch:
    """Check a batch and cut its labels into masks, all of shape (..., L).

    Soft labels, where the equation has a place for them, are positive by their share and negative by the rest.
    """
    logits, labels = check_batch(logits, labels, unknown=unknown, soft=soft)
    return LossBatch(logits, *masks(labels, logits.dtype, unknown=unknown))


def check_batch(logits: Tensor, labels: Tensor, *, unknown: Unknown, soft: bool = False) -> tuple[Tensor, Tensor]:
    """The logits in float32 or better and the labels in the one alphabet, if they are a batch.

    Labels of any dtype become int8, and NaN becomes -1; where they may be `soft`, floats keep shares between 0 and 1.
    Values are checked where that is cheap, see `can_check_values`; shapes and dtypes always.
    """
    check_choice("unknown", unknown, ("negative", "ignore"))
    labels = labels if isinstance(labels, Tensor) else torch.as_tensor(labels, device=logits.device)
    if logits.ndim < 2 or logits.shape != labels.shape or logits.shape[-1] == 0:
        raise ValueError(
            "logits and labels must be matrices (batch, classes), or (batch, ..., classes), with a class or more, of "
            f"one shape, got {tuple(logits.shape)} and {tuple(labels.shape)}"
        )
    if not logits.is_floating_point():
        raise ValueError(f"logits must be floating point numbers, got {logits.dtype}")
    if labels.device != logits.device:
        raise ValueError(f"logits are on {logits.device} and labels on {labels.device}; move one to the other")
    soft = soft and labels.is_floating_point()
    if labels.is_floating_point():
        labels = torch.where(labels.isnan(), UNKNOWN, labels)
    if can_check_values(logits) and logits.numel():
        _check_values(logits.detach(), labels, soft=soft)
    dtype = torch.promote_types(logits.dtype, torch.float32)
    return logits.to(dtype), labels.to(dtype if soft else torch.int8)


def can_check_values(values: Tensor) -> bool:
    """Whether to look at values: not where a GPU would have to be waited for, nor where they are only traced."""
    return values.device.type == "cpu" and not torch.compiler.is_compiling() and not is_transformed()


def is_transformed() -> bool:
    """Whether `torch.func` is at work, as `vmap` or `grad`, under which tensors stand for others."""
    return not torch.compiler.is_compiling() and bool(torch._C._are_functorch_transforms_active())


def masks(labels: Tensor, dtype: torch.dtype, *, unknown: Unknown) -> tuple[Tensor, Tensor]:
    """The positive and the negative cells of labels, or of soft ones the shares of both.

    The masks are arithmetic rather than boolean: comparisons and `where` run an order of magnitude slower on CPUs.
    """
    positive = labels.clamp(min=0).to(dtype)
    return positive, 1 - (positive if unknown == "negative" else labels.abs().to(dtype))


def unknown_cells(labels: Tensor, dtype: torch.dtype) -> Tensor:
    """The mask of unknown labels."""
    return (-labels.to(torch.int8)).clamp(min=0).to(dtype)


def _check_values(logits: Tensor, labels: Tensor, *, soft: bool) -> None:
    """Refuse logits that are not finite and labels outside the alphabet, naming the first offender."""
    # A sum is several times faster than isfinite().all(), and finite unless something in it is not (or it overflows).
    if not math.isfinite(logits.sum()):
        infinite = ~torch.isfinite(logits)
        if infinite.any():
            raise ValueError(f"logits: {_first(infinite, logits)}; every logit must be finite")

    if soft:
        outside = ((labels < NEGATIVE) | (labels > POSITIVE)) & (labels != UNKNOWN)
        if outside.any():
            raise ValueError(
                f"labels: {_first(outside, labels)}; a label is 1 (positive), 0 (negative), a share between them, or "
                "-1 or NaN (unknown)"
            )
        return
    integers = labels.to(torch.int8)
    lowest, highest = (int(extreme) for extreme in integers.aminmax())
    exact = labels.dtype in (torch.int8, torch.bool) or bool((integers == labels).all())
    if lowest < UNKNOWN or highest > POSITIVE or not exact:
        outside = (labels != POSITIVE) & (labels != NEGATIVE) & (labels != UNKNOWN)
        raise ValueError(
            f"labels: {_first(outside, labels)}; a label is 1 (positive), 0 (negative), or -1 or NaN (unknown)"
        )


def _first(offending: Tensor, values: Tensor) -> str:
    *row, column = offending.nonzero()[0].tolist()
    value = values[(*row, column)].item()
    return f"row {row[0] if len(row) == 1 else tuple(row)}, column {column} holds {value}"


def mean_over_labels(per_cell: Tensor, weight: Tensor | None, reduction: Reduction) -> Tensor:
    """The mean over the L labels of every row, each times its weight, and then the reduction over rows.

    Args:
        per_cell: (..., L) losses.
        weight: (..., L), or (L,) for all rows alike; None weighs all labels by 1.
        reduction: as for `reduce`.
    """
    if weight is not None:
        per_cell = per_cell * label_weights(weight, per_cell)
    return reduce(per_cell.mean(-1), reduction)


def label_weights(weight: Tensor, like: Tensor) -> Tensor:
    """Weights that fit cells, in their dtype and on their device, or a sentence on what is wrong with them."""
    factors = torch.as_tensor(weight, dtype=like.dtype, device=like.device)
    if factors.shape not in (like.shape, like.shape[-1:]):
        raise ValueError(
            f"weight must have the shape of the logits, {tuple(like.shape)}, or one number for each of the "
            f"{like.shape[-1]} classes, got {tuple(factors.shape)}"
        )
    if can_check_values(factors) and not bool(((factors >= 0) & (factors < math.inf)).all()):
        raise ValueError("weight must hold finite numbers of at least 0")
    return factors


def reduce(per_row: Tensor, reduction: Reduction) -> Tensor:
    """The mean or the sum of one loss per row, 0 of none; or the losses as they are."""
    check_choice("reduction", reduction, ("mean", "sum", "none"))
    if reduction == "none":
        return per_row
    return per_row.mean() if reduction == "mean" and per_row.numel() else per_row.sum()  # an empty batch costs 0


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")


def check_at_least_zero(**values: float) -> None:
    for name, value in values.items():
        if not 0 <= value < math.inf:
            raise ValueError(f"{name} must be a finite number of at least 0, got {value}")


class Loss(nn.Module):
    """A loss function with its options fixed, as a module that takes the keywords of `function`.

    The options are tried on a single cell at once, so that a wrong one fails here and not in the first training step.
    A call may bring another `weight` along.
    """

    __signature__: ClassVar[inspect.Signature]
    function: ClassVar[Callable[..., Tensor]]
    call_tensors: ClassVar[tuple[str, ...]] = ()  # keywords that each call brings along: further (B, L) tensors

    def __init_subclass__(cls) -> None:
        keywords = inspect.signature(cls.function).parameters.values()
        fixed = [each for each in keywords if each.kind is each.KEYWORD_ONLY and each.name not in cls.call_tensors]
        cls.__signature__ = inspect.Signature(fixed)

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = {name: each.default for name, each in self.__signature__.parameters.items()} | options
        weight = self.options.get("weight")
        cell = torch.zeros(1, 1 if weight is None else torch.as_tensor(weight).numel(), device="cpu")
        self(cell, cell, **dict.fromkeys(self.call_tensors, cell))

    def forward(self, logits: Tensor, labels: Tensor, **call_tensors: Tensor) -> Tensor:
        return type(self).function(logits, labels, **self.options | call_tensors)

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.options.items())
