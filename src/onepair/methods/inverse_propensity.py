"""Binary cross entropy weighted by how often a positive is observed."""

from collections.abc import Sequence

import torch
from torch import Tensor

from onepair.errors import UserError
from onepair.labels import POSITIVE
from onepair.losses.bce import Form, propensity_loss
from onepair.methods.method import Method, Observed, count, register


class PropensityWeighted(Method):
    """Binary cross entropy that assumes unknown labels negative, and weighs positives by their propensity ρ.

    ρ of a class is the chance of its positives to be observed. It is given, as a number for all classes or one for
    each; or it is what the class priors π say, estimated on the way: the observed positives over those expected,
    n⁺ / (n π), at most 1, and before the first epoch ends it is 1, which is plain BCE.
    """

    form: Form

    propensities: Tensor  # (L,)

    def __init__(self, *, propensity: float | Sequence[float] | None = None) -> None:
        given = torch.as_tensor([] if propensity is None else propensity, dtype=torch.float64)
        if not ((given > 0) & (given <= 1)).all():
            raise ValueError(f"propensity must be above 0 and at most 1, got {propensity}")
        super().__init__()
        self.needs_priors = propensity is None
        self.given = given

    def begin(self, observed: Observed) -> None:
        super().begin(observed)
        classes = observed.shape[1]
        if self.given.ndim == 1 and len(self.given) not in (0, classes):
            raise UserError(f"propensity must be one number, or one for each of the {classes} classes")
        start = torch.ones(classes) if self.needs_priors else self.given.float().expand(classes).clone()
        self.register_buffer("propensities", start.to(observed.device))

    def take_priors(self, priors: Tensor) -> None:
        shown = count(self.observed, POSITIVE).to(priors.device) / len(self.observed)
        share = shown / priors.to(shown.dtype).clamp(min=torch.finfo(shown.dtype).tiny)
        self.propensities.copy_(torch.where(shown > 0, share.clamp(max=1), 1))  # of a class without any nothing follows

    def forward(self, logits: Tensor, rows: Tensor) -> Tensor:
        return propensity_loss(logits, self.observed[rows], propensities=self.propensities, form=self.form)


@register(
    name="bce-pw",
    title="BCE+PW",
    paper="Jain et al. 2016",
    equation="mean of (y / ρ) (l₊ - l₋) + l₋",
    description="Weighs positives by how often they are observed: without bias, and without a bound from below.",
    convex=True,
)
class Unbiased(PropensityWeighted):
    """The unbiased form."""

    form = "unbiased"


@register(
    name="bce-pw-bound",
    title="BCE+PW (bounded)",
    paper="Qaraei et al. 2021",
    equation="mean of y (2/ρ - 1) l₊ + (1-y) l₋",
    description="Weighs positives by how often they are observed: a bound above the unbiased form, and bounded itself.",
    convex=True,
)
class Bounded(PropensityWeighted):
    """The form that bounds the other from above."""

    form = "bounded"
