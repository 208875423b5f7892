"""The asymmetric loss as a method."""

from onepair.losses import AsymmetricLoss
from onepair.methods.contract import FixedTargets
from onepair.methods.registry import register


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
        super().__init__(AsymmetricLoss(gamma_negative, gamma_positive, margin))
