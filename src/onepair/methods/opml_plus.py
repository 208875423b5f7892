"""OPML+: OPML-SP with the labels of a row that are not positive averaged, so that their number does not matter."""

import torch
from torch import Tensor

from onepair.correction import label_correction, training_ap
from onepair.labels import POSITIVE
from onepair.losses.cells import cells, check_at_least_zero, unknown_cells
from onepair.losses.opml import odds
from onepair.methods.method import Method, at_least_single, require_scores
from onepair.methods.registry import register
from onepair.numerics import masked_logsumexp


@register(
    name="opml-plus",
    title="OPML+",
    paper="onepair's own, on the ground of Li, Wang, Chen 2023",
    equation="log(α + Σ exp(-s_p)) + w r [log(α + mean γ exp(-s)) + log(β + mean (1-γ) exp(s))]",
    description="OPML-SP that keeps unknown labels near one low probability, however many there are.",
)
class OPMLPlus(Method):
    """Soft OPML with means over the labels R of a row that are not known positive, and label correction inside γ.

        L = log(α + Σ_{p∈Ωp} exp(-s_p)) + w r [log(α + mean_R γ exp(-s)) + log(β + mean_R (1-γ) exp(s))]
        γ = 0 if known negative, 1 if corrected, else sigmoid(s), without gradient
        r = the share of rows with an observed positive

    α and β are the odds of `alpha` and `beta`. What differs from OPML-SP, and why:

    - γ is not multiplied by AP^ε, which would push the highest unknowns down the hardest, those most likely missing
      positives. Its two terms now pull all unknowns towards the probability β / (α + β): uncertain, not negative.
    - Means in place of sums: the same alpha and beta fit few labels and many.
    - A corrected label (Algorithm 1, after every epoch from `correction_start` on) gets γ = 1 and stays one of many
      unknowns; as a full positive, a wrong correction would weigh as much as an observed label.
    - A known negative is one of R, too. As a term of its own it would weigh as much as all unknowns of its row
      together; and those that people know of are mostly answers about the highest unknowns, which alone, without the
      many negatives that nobody was asked about, teach to tell look-alikes apart and nothing else.
    - r, which is 1 for single positives, keeps rows without any positive from drowning the others.

    Without unknown labels it is OPML with a mean over the negatives, which are weighted by w r.
    """

    needs_scores = True

    targets: Tensor  # (N, L) int8: the observed labels, corrected

    def __init__(
        self,
        *,
        alpha: float = 0.3,
        beta: float = 0.15,
        weight: float = 1.0,
        label_num: float = 1.0,
        correction_start: int = 4,
    ) -> None:
        check_at_least_zero(weight=weight, label_num=label_num)
        super().__init__()
        self.alpha, self.beta = odds(alpha=alpha), odds(beta=beta)
        self.weight = weight
        self.label_num = label_num
        self.correction_start = correction_start

    def begin(self, observed: Tensor) -> None:
        super().begin(observed)
        self.register_buffer("targets", observed.clone())
        self.paired = (observed == POSITIVE).any(1).double().mean().item()

    def forward(self, logits: Tensor, rows: Tensor) -> Tensor:
        observed = self.observed[rows]
        batch = cells(logits, observed, unknown="ignore")
        unknown = unknown_cells(observed, batch.logits.dtype)
        corrected = self.targets[rows].clamp(min=0).to(batch.logits.dtype)
        share = 1 / (unknown + batch.negative).sum(1, keepdim=True).clamp(min=1)
        fixed = batch.logits.detach()
        soft_positive = share * unknown * torch.maximum(fixed.sigmoid(), corrected)
        soft_negative = share * (batch.negative + unknown * (-fixed).sigmoid() * (1 - corrected))
        known_positives = masked_logsumexp(-batch.logits, batch.positive, constant=self.alpha)
        pull_up = masked_logsumexp(-batch.logits, soft_positive, constant=self.alpha)
        push_down = masked_logsumexp(batch.logits, soft_negative, constant=self.beta)
        return (known_positives + self.weight * self.paired * (pull_up + push_down)).mean()

    def end_epoch(self, epoch: int, scores: Tensor | None) -> None:
        scores = require_scores(scores)
        if epoch >= self.correction_start:
            observed, score_matrix = self.observed.cpu().numpy(), at_least_single(scores).cpu().numpy()
            class_ap = training_ap(score_matrix, observed)
            corrected = label_correction(score_matrix, observed, class_ap, label_num=self.label_num)
            self.targets.copy_(torch.from_numpy(corrected))
