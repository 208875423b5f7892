"""GR: a loss of unknown labels that begins with assuming them negative and ends with trusting the model."""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from onepair.losses.batch import loss_batch, unknown_cells
from onepair.methods.method import EpochAware, register


class Schedule(NamedTuple):
    """The numbers of an epoch, of the two functions of p that a label's weights are."""

    slope: float  # w
    shift: float  # b
    centre: float  # μ
    width: float  # σ


@register(
    name="gr",
    title="GR",
    paper="Chen et al. 2024",
    equation="mean of -log p if positive, V [K (1 - p^q₂) / q₂ + (1-K) (1 - (1-p)^q₃) / q₃] if unknown",
    description="Takes an unknown label for positive by a share that grows with its score, more so in later epochs.",
    rounds=10,
)
class GeneralisedRobust(EpochAware):
    """Generalised robust loss, with schedules over the epochs t = 1 … T.

        l = -log p if positive, -log(1-p) if negative, V [K (1 - p^q₂) / q₂ + (1-K) (1 - (1-p)^q₃) / q₃] if unknown
        K = sigmoid(w p + b), the chance to be a missed positive;   V = exp(-½ ((p - μ) / σ)²);   both without gradient

    The slope w and the shift b move from their first to their last values by (t-1) / T, the centre μ and the width σ by
    t / T. In its authors' work the last slope and shift are 2 and -2 on VOC, 10 and -8 elsewhere, with Adam, a learning
    rate of 1e-5 and 8 epochs. Known negatives are our addition.
    """

    def __init__(
        self,
        *,
        epochs: int,
        first_slope: float = 0.0,
        last_slope: float = 2.0,
        first_shift: float = -2.0,
        last_shift: float = -2.0,
        first_centre: float = 0.5,
        last_centre: float = 0.8,
        first_width: float = 2.0,
        last_width: float = 0.5,
        positive_power: float = 0.01,
        negative_power: float = 1.0,
    ) -> None:
        for name, value in (
            ("epochs", epochs),
            ("first_width", first_width),
            ("last_width", last_width),
            ("positive_power", positive_power),
            ("negative_power", negative_power),
        ):
            if not 0 < value < math.inf:
                raise ValueError(f"{name} must be a finite number above 0, got {value}")
        super().__init__()
        self.epochs = epochs
        self.first = Schedule(first_slope, first_shift, first_centre, first_width)
        self.last = Schedule(last_slope, last_shift, last_centre, last_width)
        self.positive_power, self.negative_power = positive_power, negative_power

    @property
    def now(self) -> Schedule:
        """The numbers of the epoch that is going on."""
        before, after = (min(epoch / self.epochs, 1.0) for epoch in (self.finished, self.finished + 1))
        passed = Schedule(before, before, after, after)
        return Schedule(*(a + share * (b - a) for a, b, share in zip(self.first, self.last, passed, strict=True)))

    def forward(self, logits: Tensor, rows: Tensor) -> Tensor:
        labels = self.observed[rows]
        batch = loss_batch(logits, labels, unknown="ignore")
        known = F.binary_cross_entropy_with_logits(batch.logits, batch.positive, batch.positive + batch.negative)
        return known + (unknown_cells(labels, batch.logits.dtype) * self._of_unknown(batch.logits)).mean()

    def _of_unknown(self, logits: Tensor) -> Tensor:
        now, predicted = self.now, logits.detach().sigmoid()
        missed = torch.sigmoid(now.slope * predicted + now.shift)
        weight = torch.exp(-((predicted - now.centre) / now.width).square() / 2)
        as_positive = _power_loss(F.logsigmoid(logits), self.positive_power)
        as_negative = _power_loss(F.logsigmoid(-logits), self.negative_power)
        return weight * (missed * as_positive + (1 - missed) * as_negative)


def _power_loss(log_probability: Tensor, power: float) -> Tensor:
    """`(1 - p^q) / q`, which is -log p for a small q and 1 - p for q = 1."""
    return -torch.expm1(power * log_probability) / power
