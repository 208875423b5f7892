"""The focal loss as a method."""

from onepair.losses import FocalLoss
from onepair.methods.contract import FixedTargets
from onepair.methods.registry import register


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
