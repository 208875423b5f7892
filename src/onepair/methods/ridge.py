"""Ridge regression on the observed labels: least squares, which on fixed features has a closed form."""

import torch
from torch import Tensor

from onepair.labels import NEGATIVE, POSITIVE
from onepair.methods.method import Method, Observed, at_least_single, count, register


@register(
    name="ridge",
    title="Ridge",
    paper="Hoerl, Kennard 1970",
    equation="½ Σ (s - t)²,  t = 1 if positive, 0 if negative, u if unknown",
    description="Least squares on the observed labels; on fixed features in closed form, also for very many labels.",
    convex=True,
)
class Ridge(Method):
    """Squared error of the scores, where an unknown label has a small share of a positive.

        L = ½ Σ_l (s_l - t_l)²,   t = 1 if positive, 0 if negative, u_l if unknown
        u_l = n⁺_l / (n⁺_l + n⁻_l) · n⁻_l / (n⁻_l + unknown_l)

    Where labels are known at random, u_l is close to the share of positives; where only positives are, it is 0, which
    leaves the ranking as any other constant would.
    """

    sums_labels = True

    share: Tensor  # (L,), u

    def begin(self, observed: Observed) -> None:
        super().begin(observed)
        positive, negative = (count(observed, value).float() for value in (POSITIVE, NEGATIVE))
        noted = negative / (len(observed) - positive).clamp(min=1)
        self.register_buffer("share", positive / (positive + negative).clamp(min=1) * noted, persistent=False)

    def targets(self, labels: Tensor, dtype: torch.dtype) -> Tensor:
        """The targets t of labels (B, L)."""
        return torch.where(labels < NEGATIVE, self.share.to(dtype), labels.to(dtype))

    def forward(self, logits: Tensor, rows: Tensor) -> Tensor:
        scores = at_least_single(logits)
        return (scores - self.targets(self.observed[rows], scores.dtype)).square().sum(1).mean() / 2
