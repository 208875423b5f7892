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


def loss_batch(logits: Tensor, labels: Tensor, *, unknown: Unknown) -> LossBatch:
    """Check a batch and cut its labels into masks, all of shape (B, L)."""
    logits, labels = check_batch(logits, labels, unknown=unknown)
    return LossBatch(logits, *masks(labels, logits.dtype, unknown=unknown))


def check_batch(logits: Tensor, labels: Tensor, *, unknown: Unknown) -> tuple[Tensor, Tensor]:
    """The logits in float32 or better and the labels in int8, if they are a batch.

    Values are checked where that is cheap, see `can_check_values`; shapes and dtypes always.
    """
    check_choice("unknown", unknown, ("negative", "ignore"))
    if logits.ndim != 2 or logits.shape != labels.shape or logits.numel() == 0:
        raise ValueError(
            "logits and labels must be two non-empty matrices (batch, classes) of one shape, "
            f"got {tuple(logits.shape)} and {tuple(labels.shape)}"
        )
    if not logits.is_floating_point():
        raise ValueError(f"logits must be floating point numbers, got {logits.dtype}")
    if can_check_values(logits):
        _check_values(logits.detach(), labels)
    return logits.to(torch.promote_types(logits.dtype, torch.float32)), labels.to(torch.int8)


def can_check_values(values: Tensor) -> bool:
    """Whether to look at values: not where a GPU would have to be waited for, nor where they are only traced."""
    return values.device.type == "cpu" and not torch.compiler.is_compiling() and not is_transformed()


def is_transformed() -> bool:
    """Whether `torch.func` is at work, as `vmap` or `grad`, under which tensors stand for others."""
    return not torch.compiler.is_compiling() and bool(torch._C._are_functorch_transforms_active())


def masks(labels: Tensor, dtype: torch.dtype, *, unknown: Unknown) -> tuple[Tensor, Tensor]:
    """The positive and the negative cells of int8 labels.

    The masks are arithmetic rather than boolean: comparisons and `where` run an order of magnitude slower on CPUs.
    """
    positive = labels.clamp(min=0).to(dtype)
    return positive, 1 - (positive if unknown == "negative" else labels.abs().to(dtype))


def unknown_cells(labels: Tensor, dtype: torch.dtype) -> Tensor:
    """The mask of unknown labels."""
    return (-labels.to(torch.int8)).clamp(min=0).to(dtype)


def _check_values(logits: Tensor, labels: Tensor) -> None:
    """Refuse logits that are not finite and labels outside the alphabet, naming the first offender."""
    # A sum is several times faster than isfinite().all(), and finite unless something in it is not (or it overflows).
    if not math.isfinite(logits.sum()):
        infinite = ~torch.isfinite(logits)
        if infinite.any():
            row, column, value = _first(infinite, logits)
            raise ValueError(f"logits: row {row}, column {column} holds {value}; every logit must be finite")

    integers = labels.to(torch.int8)
    lowest, highest = (int(extreme) for extreme in integers.aminmax())
    exact = labels.dtype in (torch.int8, torch.bool) or bool((integers == labels).all())
    if lowest < UNKNOWN or highest > POSITIVE or not exact:
        outside = (labels != POSITIVE) & (labels != NEGATIVE) & (labels != UNKNOWN)
        row, column, value = _first(outside, labels)
        raise ValueError(
            f"labels: row {row}, column {column} holds {value}; a label is 1 (positive), 0 (negative) or -1 (unknown)"
        )


def _first(offending: Tensor, values: Tensor) -> tuple[int, int, float]:
    row, column = (int(i) for i in offending.nonzero()[0])
    return row, column, values[row, column].item()


def reduce(per_row: Tensor, reduction: Reduction) -> Tensor:
    """The mean or the sum of one loss per row, or the losses as they are."""
    check_choice("reduction", reduction, ("mean", "sum", "none"))
    if reduction == "none":
        return per_row
    return per_row.mean() if reduction == "mean" else per_row.sum()


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
        cell = torch.zeros(1, 1, device="cpu")
        self(cell, cell, **dict.fromkeys(self.call_tensors, cell))

    def forward(self, logits: Tensor, labels: Tensor, **call_tensors: Tensor) -> Tensor:
        return type(self).function(logits, labels, **call_tensors, **self.options)

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.options.items())
