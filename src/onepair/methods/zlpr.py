"""The ZLPR loss as a method."""

from onepair.losses import ZLPRLoss
from onepair.methods.contract import FixedTargets
from onepair.methods.registry import register


@register(
    name="zlpr",
    title="ZLPR",
    paper="Su et al. 2022",
    equation="log(1 + Σ exp(-s_p)) + log(1 + Σ exp(s_n))",
    description="Assumes unknown labels negative; OPML with α = β = 1.",
)
class ZLPR(FixedTargets):
    """ZLPR loss of the observed labels."""

    def __init__(self) -> None:
        super().__init__(ZLPRLoss())
