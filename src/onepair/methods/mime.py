"""MIME's rule: an unknown label of which the model is sure becomes positive for good."""

from torch import Tensor

from onepair.labels import POSITIVE, UNKNOWN
from onepair.losses import bce_loss
from onepair.methods.method import MatrixMethod, Observed, at_least_single, register, require_scores
from onepair.metrics import ScoreBlocks


@register(
    name="mime",
    title="MIME (its rule)",
    paper="Liu et al. 2023",
    equation="BCE with t = 1 for good where an unknown label has p > τ after an epoch",
    description="Assumes unknown labels negative; after a warm-up, those of high probability become positive for good.",
    rounds=4,
)
class MIME(MatrixMethod):
    """BCE that assumes unknown labels negative, but for those that the model was sure of once.

    After every epoch from the `warmup`-th on, unknown labels of a probability above `threshold`, 0.95 in its authors'
    work, become positive. Only the rule is theirs; the loss that they use it with is another one.
    """

    needs_scores = True

    targets: Tensor  # (N, L) int8: the observed labels, completed

    def __init__(self, *, warmup: int = 2, threshold: float = 0.95) -> None:
        if warmup < 1:
            raise ValueError(f"warmup must be at least 1, got {warmup}")
        if not 0 <= threshold <= 1:
            raise ValueError(f"threshold must lie between 0 and 1, got {threshold}")
        super().__init__()
        self.warmup, self.threshold = warmup, threshold

    def begin(self, observed: Observed) -> None:
        super().begin(observed)
        self.register_buffer("targets", self.observed.clone())

    def forward(self, logits: Tensor, rows: Tensor) -> Tensor:
        return bce_loss(logits, self.targets[rows])

    def end_epoch(self, epoch: int, scores: Tensor | ScoreBlocks | None) -> None:
        scores = require_scores(scores)
        if epoch >= self.warmup:
            sure = at_least_single(scores).sigmoid() > self.threshold
            self.targets.masked_fill_(sure & (self.targets == UNKNOWN), POSITIVE)
