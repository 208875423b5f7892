"""SPLC: an unknown label that scores high counts as positive at once."""

from torch import Tensor

from onepair.labels import POSITIVE, UNKNOWN
from onepair.losses import focal_loss
from onepair.losses.batch import check_at_least_zero
from onepair.methods.method import EpochAware, MatrixMethod, Observed, at_least_single, register


@register(
    name="splc",
    title="SPLC",
    paper="Zhang et al. 2021",
    equation="focal with p = sigmoid(s - m) if positive or p > τ, sigmoid(s) if not",
    description="Focal loss with a margin; from the second epoch on, high-scored unknown labels count as positive.",
    rounds=4,
)
class SPLC(EpochAware, MatrixMethod):
    """Self-paced loss correction.

        l₊ = -(1 - p_m)^γ log p_m,  p_m = sigmoid(s - margin);   l₋ = -p^γ log(1 - p)

    An unknown label is negative, but from epoch 2 on positive in every step in which p > `threshold`. margin = 1, γ = 2
    and a threshold of 0.6 in its authors' work. In evaluation mode labels are as the last step in training mode left
    them: on fixed features, solutions take turns with corrections.
    """

    targets: Tensor  # (N, L) int8: the observed labels, corrected

    def __init__(self, *, gamma: float = 2.0, margin: float = 1.0, threshold: float = 0.6) -> None:
        check_at_least_zero(gamma=gamma, margin=margin)
        if not 0 <= threshold <= 1:
            raise ValueError(f"threshold must lie between 0 and 1, got {threshold}")
        super().__init__()
        self.gamma, self.margin, self.threshold = gamma, margin, threshold

    def begin(self, observed: Observed) -> None:
        super().begin(observed)
        self.register_buffer("targets", self.observed.clone(), persistent=False)

    def forward(self, logits: Tensor, rows: Tensor) -> Tensor:
        logits = at_least_single(logits)
        if self.training and self.finished > 0:
            labels, high = self.observed[rows], logits.detach().sigmoid() > self.threshold
            self.targets[rows] = labels.masked_fill(high & (labels == UNKNOWN), POSITIVE)
        labels = self.targets[rows]
        shifted = logits - self.margin * (labels == POSITIVE)
        return focal_loss(shifted, labels, gamma=self.gamma, alpha=None)
