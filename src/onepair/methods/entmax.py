"""Entropy maximisation for unknown labels, alone and with asymmetric pseudo-labelling."""

import torch
from torch import Tensor
from torch.nn import functional as F

from onepair.labels import UNKNOWN
from onepair.losses import EntropyMaximizationLoss
from onepair.losses.batch import check_at_least_zero, loss_batch, unknown_cells
from onepair.losses.bce import binary_entropy
from onepair.methods.method import (
    FixedTargets,
    MatrixMethod,
    Observed,
    highest_scored_per_class,
    register,
    require_scores,
)
from onepair.metrics import ScoreBlocks

ZHOU = "Zhou et al. 2022"


@register(
    name="entmax",
    title="BCE+EntMax",
    paper=ZHOU,
    equation="mean of -log p if positive, -log(1-p) if negative, -a H(p) if unknown",
    description="Keeps unknown labels as uncertain as possible instead of assuming them negative.",
)
class EntMax(FixedTargets):
    """Entropy maximisation; a = 0.2 on VOC, 0.1 on COCO and NUS, 0.01 on CUB in its authors' work."""

    def __init__(self, *, entropy_weight: float = 0.2) -> None:
        super().__init__(EntropyMaximizationLoss(entropy_weight=entropy_weight))


@register(
    name="entmax-apl",
    title="BCE+EntMax+APL",
    paper=ZHOU,
    equation="EntMax, and b BCE(p, q) where an unknown label has a pseudo-label q",
    description="EntMax; after a warm-up the lowest-scored unknown labels get their own score as a soft label.",
    rounds=10,
)
class EntMaxAPL(MatrixMethod):
    """Entropy maximisation with asymmetric pseudo-labels.

        l = -log p if positive, -log(1-p) if negative, b BCE(p, q) if pseudo-labelled, -a H(p) if still unknown

    After every epoch from the `warmup`-th on, the floor(share × unknown_l / (epochs - warmup)) lowest-scored labels of
    class l that are still unknown get q, their probability at that time; they keep it to the end.
    (warmup, b) = (5, 0.02) on VOC, (5, 0.9) on COCO, (4, 0.2) on NUS, (3, 0.4) on CUB, share = 0.9 and 10 epochs in
    its authors' work; a as in EntMax.
    """

    needs_scores = True

    soft_labels: Tensor  # (N, L): q, or UNKNOWN where there is none

    def __init__(
        self,
        *,
        epochs: int,
        entropy_weight: float = 0.2,
        warmup: int = 5,
        weight: float = 0.02,
        share: float = 0.9,
    ) -> None:
        check_at_least_zero(entropy_weight=entropy_weight, weight=weight, share=share)
        if not 1 <= warmup < epochs:
            raise ValueError(f"warmup must be at least 1 and below the {epochs} epochs, got {warmup}")
        super().__init__()
        self.entropy_weight = entropy_weight
        self.warmup = warmup
        self.weight = weight
        self.share = share
        self.labelling_epochs = epochs - warmup

    def begin(self, observed: Observed) -> None:
        super().begin(observed)
        self.register_buffer("soft_labels", torch.full(observed.shape, float(UNKNOWN), device=observed.device))

    def forward(self, logits: Tensor, rows: Tensor) -> Tensor:
        labels = self.observed[rows]
        batch = loss_batch(logits, labels, unknown="ignore")
        soft_labels = self.soft_labels[rows].to(batch.logits.dtype)
        pseudo = (soft_labels >= 0).to(batch.logits.dtype)
        targets = torch.addcmul(batch.positive, soft_labels, pseudo)
        weights = torch.add(batch.positive + batch.negative, pseudo, alpha=self.weight)
        uncertain = unknown_cells(labels, batch.logits.dtype) - pseudo
        cross_entropy = F.binary_cross_entropy_with_logits(batch.logits, targets, weights)
        return cross_entropy - self.entropy_weight * (uncertain * binary_entropy(batch.logits)).mean()

    def end_epoch(self, epoch: int, scores: Tensor | ScoreBlocks | None) -> None:
        scores = require_scores(scores)
        if epoch < self.warmup:
            return
        unknown = self.observed == UNKNOWN
        counts = [int(self.share * cells / self.labelling_epochs) for cells in unknown.sum(0).tolist()]
        chosen = highest_scored_per_class(-scores, unknown & (self.soft_labels == UNKNOWN), counts)
        self.soft_labels[chosen] = scores[chosen].to(self.soft_labels.dtype).sigmoid()
