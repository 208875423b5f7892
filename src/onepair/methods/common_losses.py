"""The losses that everybody uses, as methods: they assume unknown labels negative, and never change their mind."""

from onepair.losses import AsymmetricLoss, FocalLoss, HillLoss, TwoWayLoss, ZLPRLoss
from onepair.methods.method import FixedTargets, register


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
