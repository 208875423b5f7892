"""Losses whose targets stay: binary cross entropy, its variants for single positives, focal and ranking losses."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from onepair.labels import NEGATIVE, POSITIVE
from onepair.losses import AsymmetricLoss, BCELoss, FocalLoss, HillLoss, TwoWayLoss, ZLPRLoss
from onepair.losses.batch import check_at_least_zero, loss_batch, unknown_cells
from onepair.methods.method import FixedTargets, Method, Observed, at_least_single, count, register

COLE = "Cole et al. 2021"


@register(
    name="bce",
    title="BCE",
    paper=COLE,
    equation="mean of -t log p - (1-t) log(1-p)",
    description="Binary cross entropy; unknown labels are assumed negative.",
    convex=True,
)
class BCE(FixedTargets):
    """Binary cross entropy that assumes unknown labels negative (AN); with full labels, the upper bound."""

    def __init__(self) -> None:
        super().__init__(BCELoss())


@register(
    name="bce-1p-alln",
    title="BCE (1P, all N)",
    paper=COLE,
    equation="mean of -log p if positive, -log(1-p) if negative, 0 if unknown",
    description="An oracle: binary cross entropy of one positive and all true negatives; the rest is ignored.",
    observes="single positive and all negatives",
    convex=True,
)
@register(
    name="bce-known",
    title="BCE (known)",
    paper="binary cross entropy of what is known",
    equation="mean of -log p if positive, -log(1-p) if negative, 0 if unknown",
    description="Binary cross entropy of the known labels alone; nothing is assumed of the others.",
    convex=True,
)
class BCEKnown(FixedTargets):
    """Binary cross entropy of the known labels; unknown labels add 0.

    Where negatives are known, whatever is made of unknown labels must be better than this. From positives alone it only
    learns to say yes.
    """

    def __init__(self) -> None:
        super().__init__(BCELoss(unknown="ignore"))


@register(
    name="bce-dw",
    title="BCE+DW",
    paper=COLE,
    equation="mean of -log p if positive, -log(1-p) / (L-1) if not",
    description="Assumes unknown labels negative; the negatives of a row weigh as much together as one positive.",
    convex=True,
)
class BCEDownWeighted(FixedTargets):
    """Binary cross entropy with the loss of negatives divided by L-1."""

    def __init__(self) -> None:
        super().__init__(BCELoss())

    def begin(self, observed: Observed) -> None:
        super().begin(observed)
        self.loss = BCELoss(negative_weight=1 / max(observed.shape[1] - 1, 1))


@register(
    name="bce-l1",
    title="BCE+L1R",
    paper=COLE,
    equation="BCE + weight × Σ |w|",
    description="Assumes unknown labels negative; a penalty on the absolute weights of the classifier.",
)
class BCEL1(BCE):
    """BCE with an l1 penalty on the classifier's weights; its authors searched for the weight."""

    def __init__(self, *, weight: float = 1e-5) -> None:
        check_at_least_zero(weight=weight)
        super().__init__()
        self.weight = weight

    def penalty(self, classifier: nn.Module) -> Tensor:
        return self.weight * sum((weights.abs().sum() for weights in _weights(classifier)), start=torch.zeros(()))


@register(
    name="bce-l2",
    title="BCE+L2R",
    paper=COLE,
    equation="BCE + weight × Σ w²",
    description="Assumes unknown labels negative; a penalty on the squared weights of the classifier.",
    convex=True,
)
class BCEL2(BCE):
    """BCE with an l2 penalty on the classifier's weights; its authors searched for the weight."""

    def __init__(self, *, weight: float = 1e-4) -> None:
        check_at_least_zero(weight=weight)
        super().__init__()
        self.weight = weight

    def penalty(self, classifier: nn.Module) -> Tensor:
        return self.weight * sum((weights.square().sum() for weights in _weights(classifier)), start=torch.zeros(()))


@register(
    name="bce-ls",
    title="BCE+LS",
    paper=COLE,
    equation="BCE with t = 1-ε if positive, ε if not",
    description="Assumes unknown labels negative and smooths all labels.",
    convex=True,
)
class BCESmoothed(FixedTargets):
    """Binary cross entropy with label smoothing of all labels, known or assumed; ε = 0.1 in its authors' work."""

    def __init__(self, *, smoothing: float = 0.1) -> None:
        super().__init__(BCELoss(smoothing=smoothing))


@register(
    name="bce-nls",
    title="BCE+N-LS",
    paper=COLE,
    equation="BCE with t = 1 if positive, 0 if negative, ε if unknown",
    description="Assumes unknown labels negative and smooths only these.",
    convex=True,
)
class BCENegativeSmoothed(Method):
    """Binary cross entropy with label smoothing of the assumed negatives; ε = 0.1 in its authors' work."""

    def __init__(self, *, smoothing: float = 0.1) -> None:
        if not 0 <= smoothing <= 1:
            raise ValueError(f"smoothing must lie between 0 and 1, got {smoothing}")
        super().__init__()
        self.smoothing = smoothing

    def forward(self, logits: Tensor, rows: Tensor) -> Tensor:
        labels = self.observed[rows]
        batch = loss_batch(logits, labels, unknown="negative")
        targets = batch.positive.add(unknown_cells(labels, batch.logits.dtype), alpha=self.smoothing)
        return F.binary_cross_entropy_with_logits(batch.logits, targets)


def _weights(classifier: nn.Module) -> list[Tensor]:
    """The matrices of the classifier: a bias is no weight."""
    return [parameter for parameter in classifier.parameters() if parameter.ndim > 1]


@register(
    name="focal",
    title="Focal",
    paper="Lin et al. 2017",
    equation="mean of -a_t (1 - p_t)^γ log p_t",
    description="Assumes unknown labels negative; easy labels count less.",
)
class Focal(FixedTargets):
    """Focal loss of the observed labels; γ = 2 and a = 0.25 or none (None) in its authors' work."""

    def __init__(self, *, gamma: float = 2.0, alpha: float | None = 0.25) -> None:
        super().__init__(FocalLoss(gamma=gamma, alpha=alpha))


@register(
    name="asl",
    title="ASL",
    paper="Ridnik et al. 2021",
    equation="mean of -(1-p)^γ₊ log p if positive, -p_m^γ₋ log(1-p_m) if not, p_m = max(p - m, 0)",
    description="Assumes unknown labels negative; easy negatives count less, very easy ones not at all.",
)
class Asymmetric(FixedTargets):
    """Asymmetric loss of the observed labels; γ₋ = 4, γ₊ = 0 or 1 and m = 0.05 in its authors' work."""

    def __init__(self, *, gamma_negative: float = 4.0, gamma_positive: float = 0.0, margin: float = 0.05) -> None:
        super().__init__(AsymmetricLoss(gamma_negative=gamma_negative, gamma_positive=gamma_positive, margin=margin))


@register(
    name="zlpr",
    title="ZLPR",
    paper="Su et al. 2022",
    equation="log(1 + Σ exp(-s_p)) + log(1 + Σ exp(s_n))",
    description="Assumes unknown labels negative; OPML with α̃ = β̃ = 0.5, so α = β = 1.",
    convex=True,
)
class ZLPR(FixedTargets):
    """ZLPR loss of the observed labels."""

    sums_labels = True

    def __init__(self) -> None:
        super().__init__(ZLPRLoss())


@register(
    name="hill",
    title="Hill",
    paper="Zhang et al. 2021",
    equation="mean of -(1-p_m)^2 log p_m if positive, (1.5 - p) p² if not, p_m = sigmoid(s - 1)",
    description="Assumes unknown labels negative; one of high probability is hardly pushed.",
)
class Hill(FixedTargets):
    """Hill loss of the observed labels; γ = 2, a margin of 1 and a turn (λ) of 1.5 in its authors' work."""

    def __init__(self, *, gamma: float = 2.0, margin: float = 1.0, turn: float = 1.5) -> None:
        super().__init__(HillLoss(gamma=gamma, margin=margin, turn=turn))


@register(
    name="two-way",
    title="Two-way",
    paper="Kobayashi 2023",
    equation="mean over rows, plus mean over classes, of softplus(T_n LSE_n(s / T_n) + T_p LSE_p(-s / T_p))",
    description="Assumes unknown labels negative; ranks the labels of a row, and the rows of a batch by each label.",
    convex=True,
)
class TwoWay(FixedTargets):
    """Two-way loss of the observed labels; T_p = 4 and T_n = 1 in its author's work."""

    sums_labels = True

    def __init__(self, *, positive_temperature: float = 4.0, negative_temperature: float = 1.0) -> None:
        super().__init__(
            TwoWayLoss(positive_temperature=positive_temperature, negative_temperature=negative_temperature)
        )


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
