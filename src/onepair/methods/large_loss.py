"""Large-loss methods and SPLC: an assumed negative with a large loss is suspected to be a positive."""

import math

from torch import Tensor

from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN
from onepair.losses import bce_loss, focal_loss
from onepair.losses.batch import check_at_least_zero
from onepair.methods.method import EpochAware, MatrixMethod, Observed, at_least_single, highest_scored, register

KIM = "Kim et al. 2022"


class LargeLoss(EpochAware):
    """BCE that assumes unknown labels negative, except those of the batch with the k largest losses.

        k = ceil(B · L · (t-1) · Δ)   in epoch t = 1, 2, …

    Δ between 0.001 and 0.005 in its authors' work. Known labels are never suspected.
    """

    def __init__(self, *, delta: float = 0.002) -> None:
        check_at_least_zero(delta=delta)
        super().__init__()
        self.delta = delta

    def largest_losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The mask of the unknown labels with the k largest losses."""
        # The loss of an assumed negative grows with its score, so the largest losses are the highest scores.
        return highest_scored(logits.detach(), labels == UNKNOWN, self.count_largest(labels.numel()))

    def count_largest(self, cells: int) -> int:
        """k, for a batch of so many cells B · L."""
        return math.ceil(cells * self.finished * self.delta)


@register(
    name="ll-r",
    title="LL-R",
    paper=KIM,
    equation="BCE without the ceil(B L (t-1) Δ) largest losses of unknown labels",
    description="Assumes unknown labels negative; the largest losses among them are rejected, more every epoch.",
    rounds=10,
)
class LargeLossRejection(LargeLoss):
    """Suspects are left out of the loss."""

    def forward(self, logits: Tensor, rows: Tensor) -> Tensor:
        labels = self.observed[rows]
        kept = labels.clamp(min=NEGATIVE).masked_fill(self.largest_losses(logits, labels), UNKNOWN)
        return bce_loss(logits, kept, unknown="ignore")


@register(
    name="ll-r-boostlu",
    title="LL-R + BoostLU",
    paper="Kim et al. 2023",
    equation="LL-R of s = mean over places of a + (boost - 1) max(a, 0), a = W x at each place",
    description="LL-R on boosted maps: at every place of the image, what speaks for a class is multiplied.",
)
class BoostedLargeLossRejection(LargeLossRejection):
    """LL-R with the classifier applied at every place, and its activations above 0 multiplied by `boost`.

    A model that was taught to deny what it sees keeps its activations in the right places, but too low; boosting brings
    them back. The boost, 5 in its authors' work, stays part of the model. It needs the features before they are
    pooled, so fixed features cannot be learned from in this way.
    """

    def __init__(self, *, boost: float = 5.0, delta: float = 0.002) -> None:
        if not boost >= 1:
            raise ValueError(f"boost must be at least 1, got {boost}")
        super().__init__(delta=delta)
        self.boost = boost


@register(
    name="ll-ct",
    title="LL-Ct",
    paper=KIM,
    equation="BCE with t = 1 for the ceil(B L (t-1) Δ) largest losses of unknown labels",
    description="Assumes unknown labels negative; the largest losses among them count as positive for this step.",
    rounds=10,
)
class LargeLossTemporaryCorrection(LargeLoss):
    """Suspects are positives, in this step only."""

    def forward(self, logits: Tensor, rows: Tensor) -> Tensor:
        labels = self.observed[rows]
        return bce_loss(logits, labels.masked_fill(self.largest_losses(logits, labels), POSITIVE))


@register(
    name="ll-cp",
    title="LL-Cp",
    paper=KIM,
    equation="BCE with t = 1 for good for the ceil(B L Δ) largest losses of unknown labels",
    description="Assumes unknown labels negative; the largest losses among them become positive for good.",
    rounds=10,
)
class LargeLossPermanentCorrection(LargeLoss):
    """From epoch 2 on, suspects are positives from this step on; k = ceil(B · L · Δ) in every epoch.

    In evaluation mode nothing changes: the loss is that of the labels as they are corrected so far.
    """

    keeps_matrix = True

    observed: Tensor
    targets: Tensor  # the observed labels, corrected

    def begin(self, observed: Observed) -> None:
        super().begin(observed)
        self.register_buffer("targets", self.observed.clone())

    def forward(self, logits: Tensor, rows: Tensor) -> Tensor:
        targets = self.targets[rows]
        if self.training:
            corrected = targets.masked_fill(self.largest_losses(logits, targets), POSITIVE)
            # A row may be in the batch twice, and the highest label is a positive.
            self.targets.scatter_reduce_(0, rows[:, None].expand_as(corrected), corrected, "amax")
            targets = self.targets[rows]
        return bce_loss(logits, targets)

    def count_largest(self, cells: int) -> int:
        return math.ceil(cells * self.delta) if self.finished > 0 else 0


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
