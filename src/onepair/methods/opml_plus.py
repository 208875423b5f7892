"""OPML+: one set of options from single positives to full labels, by trusting unknown labels as far as they deserve."""

import torch
from torch import Tensor

from onepair.labels import POSITIVE, UNKNOWN
from onepair.losses.batch import check_batch, reduce
from onepair.losses.opml import odds
from onepair.losses.plus import opml_plus_rows
from onepair.methods.method import Method, Observed, count, register


@register(
    name="opml-plus",
    title="OPML+",
    paper="onepair's own, on the ground of Li, Wang, Chen 2023",
    equation="Σ log(α + exp(-s)) of known positives + Σ v BCE(s, p*) of the others,  p* = β / (α + β)",
    description="OPML-SP that keeps labels low, not negative, and trusts unknown ones by how many are missing.",
    convex=True,
)
class OPMLPlus(Method):
    """OPML's pull on known positives, and a weighted cross entropy that keeps all other labels low.

        L = Σ_{p∈Ωp} log(α + exp(-s_p)) - Σ_{others} v [p* log σ(s) + (1-p*) log(1-σ(s))]
        p* = β / (α+β)
        v = 1 for a known negative, and for an unknown label t / (t + R)
        R = missing positives for every observed one;   t = `trust`

    α and β are the odds of `alpha` and `beta`. What differs from OPML-SP, and why:

    - Soft OPML's two terms, without AP^ε, which would push the highest unknowns down the hardest, those most likely
      missing positives, and without a gradient through γ, are a spring: they hold a label near p*, low rather than
      negative, and one that is already low they let be. The cross entropy is that spring for each label by itself:
      its gradient is v (σ(s) - p*). Known negatives are kept so, too: that is worth as much with full labels.
    - Not coupled: in soft OPML the labels of a row share one sum, and one that is likely lifts the others with it.
      With many rare labels that costs more than it gives.
    - v. Where one positive in ten is missing, an unknown label is as good as a negative; where nine in ten are, pushing
      it down would undo what the tenth has taught. With t / (t + R), pulls and pushes of a sample whose chance is 1 - t
      stand to each other as they would if all labels were known: a positive is observed with the chance ρ = 1 / (1+R),
      and v (1 - ρp) / ρp = (1 - p) / p at p = 1 - t. R is estimated on the way, from the class priors.
    - Every positive counts by itself, so that nothing changes on the way from one to all of them.
    """

    needs_priors = True
    sums_labels = True

    missing: Tensor  # R

    def __init__(self, *, alpha: float = 0.3, beta: float = 0.15, trust: float = 0.1) -> None:
        super().__init__()
        self.alpha = odds(alpha=alpha)
        self.rest = odds(beta=beta) / (self.alpha + odds(beta=beta))
        odds(trust=trust)  # lies between 0 and 1, too
        self.trust = trust

    def begin(self, observed: Observed) -> None:
        super().begin(observed)
        self.register_buffer("missing", torch.ones((), device=observed.device))  # until priors are known

    def take_priors(self, priors: Tensor) -> None:
        observed = self.observed
        shown, unknown = (count(observed, value).to(priors.device) for value in (POSITIVE, UNKNOWN))
        missing = (len(observed) * priors - shown).clamp(min=0).minimum(unknown)
        self.missing.copy_(missing.sum() / shown.sum().clamp(min=1))

    def forward(self, logits: Tensor, rows: Tensor) -> Tensor:
        scores, labels = check_batch(logits, self.observed[rows], unknown="ignore")
        trusted = (self.trust / (self.trust + self.missing)).to(scores.dtype)
        return reduce(opml_plus_rows(scores, labels, alpha=self.alpha, rest=self.rest, trusted=trusted), "mean")
