"""SPLC: an unknown label that scores high counts as positive at once."""

from torch import Tensor

from onepair.labels import POSITIVE, UNKNOWN
from onepair.losses import focal_loss
from onepair.losses.batch import check_at_least_zero
from onepair.methods.method import EpochAware, at_least_single
from onepair.methods.registry import register


@register(
    name="splc",
    title="SPLC",
    paper="Zhang et al. 2021",
    equation="focal with p = sigmoid(s - m) if positive or p > τ, sigmoid(s) if not",
    description="Focal loss with a margin; from the second epoch on, high-scored unknown labels count as positive.",
    rounds=0,
)
class SPLC(EpochAware):
    """Self-paced loss correction.

        l₊ = -(1 - p_m)^γ log p_m,  p_m = sigmoid(s - margin);   l₋ = -p^γ log(1 - p)

    An unknown label is negative, but from epoch 2 on positive in every step in which p > `threshold`. margin = 1, γ = 2
    and a threshold of 0.6 in its authors' work.
    """

    def __init__(self, *, gamma: float = 2.0, margin: float = 1.0, threshold: float = 0.6) -> None:
        check_at_least_zero(gamma=gamma, margin=margin)
        if not 0 <= threshold <= 1:
            raise ValueError(f"threshold must lie between 0 and 1, got {threshold}")
        super().__init__()
        self.gamma, self.margin, self.threshold = gamma, margin, threshold

    def forward(self, logits: Tensor, rows: Tensor) -> Tensor:
        logits, labels = at_least_single(logits), self.observed[rows]
        if self.finished > 0:
            high = logits.detach().sigmoid() > self.threshold
            labels = labels.masked_fill(high & (labels == UNKNOWN), POSITIVE)
        shifted = logits - self.margin * (labels == POSITIVE)
        return focal_loss(shifted, labels, gamma=self.gamma, alpha=None)
