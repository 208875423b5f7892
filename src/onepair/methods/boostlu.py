"""BoostLU: what speaks for a class somewhere in the image weighs more than what speaks against it elsewhere."""

from onepair.methods.large_loss import LargeLossRejection
from onepair.methods.registry import register


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
