"""CRISP: how many positives a class has is estimated while learning, and kept to."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from onepair.labels import POSITIVE
from onepair.losses import bce_loss
from onepair.losses.batch import check_at_least_zero, loss_batch
from onepair.methods.method import EpochAware, Observed, at_least_single, register, require_scores
from onepair.metrics import ScoreBlocks


@register(
    name="crisp",
    title="CRISP (our reading)",
    paper="Liu et al. 2023",
    equation="Σ over classes of (2π / n⁺) Σ (1 - p) over positives, + |mean p - π|",
    description="Estimates the share of positives of every class after every epoch, and holds its predictions to it.",
    rounds=0,
)
class CRISP(EpochAware):
    """Class priors estimated while learning, and a risk that they make unbiased.

        risk = Σ_l [ (2π_l / n⁺_l) Σ_{observed positives} (1 - p_l) + |mean p_l - π_l| ]

    The first `warmup` epochs are BCE that assumes unknown labels negative, summed over classes. π is `estimated_priors`
    of the scores after every epoch, n⁺ is counted in the whole training set (a batch has too few), and the mean of p is
    that of the batch. This is the risk of its authors' theory; what they train with, on logits and with a weight, is
    not known to us. Known negatives add their cross entropy.

    The risk is not convex, and small steps from the warm-up end in better places than its minimum: solved for on fixed
    features, with |·| smoothed, it had a test mAP of 57 to 72 on VOC, where BCE has 80.
    """

    needs_scores = True
    sums_labels = True
    keeps_matrix = True  # the scores of all samples, in order

    observed: Tensor
    shown: Tensor  # (L,), the share of samples that are observed positives
    class_priors: Tensor  # (L,), π

    def __init__(self, *, warmup: int = 1, chance: float = 0.01, slack: float = 0.01) -> None:
        check_at_least_zero(slack=slack)
        if warmup < 1:
            raise ValueError(f"warmup must be at least 1, got {warmup}")
        if not 0 < chance < 1:
            raise ValueError(f"chance must lie between 0 and 1, got {chance}")
        super().__init__()
        self.warmup, self.chance, self.slack = warmup, chance, slack

    def begin(self, observed: Observed) -> None:
        super().begin(observed)
        shown = (self.observed == POSITIVE).float().mean(0)
        self.register_buffer("shown", shown, persistent=False)
        self.register_buffer("class_priors", shown.clone())

    def forward(self, logits: Tensor, rows: Tensor) -> Tensor:
        labels = self.observed[rows]
        if self.finished < self.warmup:
            return bce_loss(logits, labels) * labels.shape[1]
        batch = loss_batch(logits, labels, unknown="ignore")
        priors, probabilities = self.class_priors.to(batch.logits.dtype), batch.logits.sigmoid()
        weight = 2 * priors / self.shown.to(priors).clamp(min=1 / len(self.observed))
        missed = (batch.positive * torch.sigmoid(-batch.logits)).mean(0) * weight
        off = (probabilities.mean(0) - priors).abs()
        denied = -(batch.negative * F.logsigmoid(-batch.logits)).mean(0)
        return (missed + off + denied).sum()

    def end_epoch(self, epoch: int, scores: Tensor | ScoreBlocks | None) -> None:
        scores = at_least_single(require_scores(scores))
        self.class_priors.copy_(estimated_priors(scores, self.observed, chance=self.chance, slack=self.slack))
        super().end_epoch(epoch, scores)


def estimated_priors(scores: Tensor, observed: Tensor, *, chance: float = 0.01, slack: float = 0.01) -> Tensor:
    """The share of positives (L,) of every class, from scores (N, L) and observed positives among labels (N, L).

        q(z), q⁺(z) = the shares of all samples, and of the n⁺ observed positives, that score z or more
        π = q(ẑ) / q⁺(ẑ),   ẑ = argmin over the scores of q / q⁺ + ((1+τ) / q⁺) (√(ln(4/δ) / 2n) + √(ln(4/δ) / 2n⁺))

    Where positives are observed at random and all above ẑ are positive, q / q⁺ is their share; elsewhere it is more.
    The second part keeps ẑ from where chance decides. A class without observed positives has 0.

    Args:
        scores: finite numbers; only their order counts.
        observed: int8 of 1, 0, -1.
        chance, slack: δ and τ.

    Examples:
        >>> estimated_priors(torch.tensor([[3.0], [2.0], [1.0], [0.0]]), torch.tensor([[1], [-1], [-1], [-1]]))
        tensor([0.2500])
    """
    rows = len(scores)
    ordered, order = scores.sort(dim=0, descending=True, stable=True)
    exact = torch.float32 if scores.device.type == "mps" else torch.float64  # Apple GPUs have no float64
    positive = (observed == POSITIVE).gather(0, order).to(exact)
    number = positive.sum(0).clamp(min=1)
    share_of_positives = positive.cumsum(0) / number
    share = torch.arange(1, rows + 1, dtype=exact, device=scores.device)[:, None] / rows
    doubt = math.log(4 / chance) / 2
    bound = share + (1 + slack) * (math.sqrt(doubt / rows) + (doubt / number).sqrt())
    among_equals = torch.zeros_like(positive, dtype=torch.bool)
    among_equals[:-1] = ordered[:-1] == ordered[1:]  # a score is reached only with all that equal it
    bound = (bound / share_of_positives).masked_fill(among_equals | (share_of_positives == 0), math.inf)
    best = bound.argmin(0, keepdim=True)
    found = share.expand_as(positive).gather(0, best) / share_of_positives.gather(0, best)
    return torch.where(positive.any(0), found[0], 0).clamp(max=1).to(torch.float32)
