"""ROLE: a classifier and a table of label estimates teach each other."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from onepair.labels import NEGATIVE, POSITIVE
from onepair.losses import bce_loss
from onepair.losses.batch import check_at_least_zero
from onepair.methods.method import MatrixMethod, Observed, at_least_single, register


@register(
    name="role",
    title="ROLE",
    paper="Cole et al. 2021",
    equation="½ [BCE₊(f) + CE(f, g°) + R(f)] + ½ [BCE₊(g) + CE(g, f°) + R(g)]",
    description="Learns an estimate of every label along with the classifier; both agree and keep the expected count.",
    rounds=3,
)
class ROLE(MatrixMethod):
    """Regularised online label estimation, for a classifier f and a free table g of label estimates.

        L = ½ [BCE₊(f) + CE(f, g°) + R(f)] + ½ [BCE₊(g) + CE(g, f°) + R(g)],   ° without gradient
        R(p) = ((mean over the batch of Σ_l p_l) - k)² / L²

    BCE₊ is over known labels, cross entropies are means over batch × labels. g starts at 0.995 for positives, 0.005 for
    negatives, uniformly in (0.4, 0.6) for unknown labels. k, the positives expected per image, is 1.5 on VOC, 2.9 on
    COCO, 1.9 on NUS, 31.4 on CUB; without it, k is what the images show at first, and then what the estimated class
    priors add up to. g learns 10 times as fast as f.
    """

    lr_multiplier = 10.0

    label_estimates: nn.Parameter  # (N, L) logits of g
    expected: Tensor  # k

    def __init__(self, *, expected_positives: float | None = None, seed: int = 0) -> None:
        check_at_least_zero(expected_positives=expected_positives or 0)
        super().__init__()
        self.expected_positives = expected_positives
        self.needs_priors = expected_positives is None
        self.seed = seed

    def begin(self, observed: Observed) -> None:
        super().begin(observed)
        observed = self.observed
        draws = torch.rand(observed.shape, generator=torch.Generator().manual_seed(self.seed))
        estimates = (0.4 + 0.2 * draws).to(observed.device)
        estimates[observed == POSITIVE] = 0.995
        estimates[observed == NEGATIVE] = 0.005
        self.label_estimates = nn.Parameter(estimates.logit())
        shown, given = (observed == POSITIVE).sum().float() / len(observed), self.expected_positives
        self.register_buffer("expected", shown if given is None else torch.full_like(shown, given))

    def take_priors(self, priors: Tensor) -> None:
        self.expected.copy_(priors.sum())

    def forward(self, logits: Tensor, rows: Tensor) -> Tensor:
        labels = self.observed[rows]
        logits = at_least_single(logits)
        estimates = F.embedding(rows, self.label_estimates)  # a faster gradient than indexing has
        return (self._side(logits, estimates, labels) + self._side(estimates, logits, labels)) / 2

    def _side(self, logits: Tensor, other: Tensor, labels: Tensor) -> Tensor:
        """What f learns from the labels, from g as it is and from the expected count; or g from f."""
        agreement = F.binary_cross_entropy_with_logits(logits, other.detach().sigmoid())
        return bce_loss(logits, labels, unknown="ignore") + agreement + self._count_penalty(logits)

    def _count_penalty(self, logits: Tensor) -> Tensor:
        rows, classes = logits.shape
        return ((logits.sigmoid().sum() / rows - self.expected) / classes).square()
