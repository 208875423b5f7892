"""P-ASL: three focusing powers for three kinds of labels, and unknown labels that are left out."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from onepair.labels import UNKNOWN
from onepair.losses.batch import check_at_least_zero, loss_batch, unknown_cells
from onepair.losses.focal import focus
from onepair.methods.method import Method, Observed, highest_scored, register


@register(
    name="p-asl",
    title="P-ASL",
    paper="Ben-Baruch et al. 2022",
    equation="mean of -(1-p)^γ₊ log p if positive, -p^γ₋ log(1-p) if negative, -p^γᵤ log(1-p) if unknown and kept",
    description="Known and unknown negatives are focused differently; the likeliest unknown labels are left out.",
)
class PartialAsymmetric(Method):
    """Partial asymmetric loss with selection; the focusing weights carry no gradient.

        l = -(1-p)^γ₊ log p if positive, -p^γ₋ log(1-p) if negative, -p^γᵤ log(1-p) if unknown

    Unknown labels are left out where they are among the ceil(`left_out` · B) of the batch with the highest
    probability, or of a class whose prior, estimated on the way, exceeds `most_frequent`. γ₊ = 0, γ₋ = 1 to 3,
    γᵤ = 4 and
    most_frequent = 0.5 in its authors' work, and left_out = 5, which is little of thousands of classes, and of twenty
    a quarter.
    """

    needs_priors = True

    too_frequent: Tensor  # (L,) bool

    def __init__(
        self,
        *,
        gamma_positive: float = 0.0,
        gamma_negative: float = 2.0,
        gamma_unknown: float = 4.0,
        left_out: float = 0.5,
        most_frequent: float = 0.5,
    ) -> None:
        check_at_least_zero(
            gamma_positive=gamma_positive,
            gamma_negative=gamma_negative,
            gamma_unknown=gamma_unknown,
            left_out=left_out,
            most_frequent=most_frequent,
        )
        super().__init__()
        self.gamma_positive, self.gamma_negative, self.gamma_unknown = gamma_positive, gamma_negative, gamma_unknown
        self.left_out, self.most_frequent = left_out, most_frequent

    def begin(self, observed: Observed) -> None:
        super().begin(observed)
        classes = observed.shape[1]
        self.register_buffer("too_frequent", torch.zeros(classes, dtype=torch.bool, device=observed.device))

    def take_priors(self, priors: Tensor) -> None:
        self.too_frequent.copy_(priors > self.most_frequent)

    def forward(self, logits: Tensor, rows: Tensor) -> Tensor:
        labels = self.observed[rows]
        batch = loss_batch(logits, labels, unknown="ignore")
        fixed = batch.logits.detach()
        unknown = labels == UNKNOWN
        highest = highest_scored(fixed, unknown, math.ceil(self.left_out * len(rows)))
        kept = unknown_cells(labels, fixed.dtype) * ~(highest | self.too_frequent)
        predicted = fixed.sigmoid()
        as_positive = batch.positive * focus(1 - predicted, self.gamma_positive)
        as_negative = batch.negative * focus(predicted, self.gamma_negative) + kept * focus(
            predicted, self.gamma_unknown
        )
        return -(as_positive * F.logsigmoid(batch.logits) + as_negative * F.logsigmoid(-batch.logits)).mean()
