"""OPML+: one set of options from single positives to full labels, by trusting unknown labels as far as they deserve."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from onepair.labels import POSITIVE, UNKNOWN
from onepair.losses.cells import cells, unknown_cells
from onepair.losses.opml import odds
from onepair.methods.method import Method
from onepair.methods.observed import Observed, count
from onepair.methods.registry import register
from onepair.numerics import masked_logsumexp


@register(
    name="opml-plus",
    title="OPML+",
    paper="onepair's own, on the ground of Li, Wang, Chen 2023",
    equation="Σ log(α + exp(-s_p)) + (Σv / κ) [log(α + mean_v γ exp(-s)) + log(β + mean_v (1-γ) exp(s))]",
    description="OPML-SP that keeps labels low, not negative, and trusts unknown ones by how many are missing.",
)
class OPMLPlus(Method):
    """Soft OPML with weighted means over the labels of a row that are not known positive.

        L = Σ_{p∈Ωp} log(α + exp(-s_p)) + (Σ v / κ) [log(α + mean_v γ exp(-s)) + log(β + mean_v (1-γ) exp(s))]
        γ = sigmoid(s), without gradient
        v = 1 for a known negative, and for an unknown label t / (t + R)
        R = missing positives for every observed one;   t = `trust`;   κ = (α+β)² / (α β (1+α+β))

    α and β are the odds of `alpha` and `beta`. What differs from OPML-SP, and why:

    - γ is not multiplied by AP^ε, which would push the highest unknowns down the hardest, those most likely missing
      positives. The gradient of the bracket is κ v (p - p*) / Σ v, with a p* close to β / (α+β): it keeps a label low
      rather than negative, and one that is already low it lets be. Known negatives are kept so, too: that is worth as
      much with full labels.
    - v. Where one positive in ten is missing, an unknown label is as good as a negative; where nine in ten are, pushing
      it down would undo what the tenth has taught. With t / (t + R), pulls and pushes of a sample whose chance is 1 - t
      stand to each other as they would if all labels were known: a positive is observed with the chance ρ = 1 / (1+R),
      and v (1 - ρp) / ρp = (1 - p) / p at p = 1 - t. R is estimated on the way, from the class priors.
    - κ makes every label count as in a cross entropy, however many there are.
    - Every positive counts by itself, so that nothing changes on the way from one to all of them.
    """

    needs_priors = True

    missing: Tensor  # R

    def __init__(self, *, alpha: float = 0.3, beta: float = 0.15, trust: float = 0.1) -> None:
        super().__init__()
        self.alpha, self.beta = odds(alpha=alpha), odds(beta=beta)
        self.kappa = (self.alpha + self.beta) ** 2 / (self.alpha * self.beta * (1 + self.alpha + self.beta))
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
        observed = self.observed[rows]
        batch = cells(logits, observed, unknown="ignore")
        scores, fixed = batch.logits, batch.logits.detach()
        trusted = (self.trust / (self.trust + self.missing)).to(scores.dtype)
        counted = batch.negative + trusted * unknown_cells(observed, scores.dtype)
        total = counted.sum(1)
        share = counted / total.clamp(min=torch.finfo(scores.dtype).tiny).unsqueeze(1)
        log_alpha = math.log(self.alpha)
        positives = (batch.positive * (log_alpha - F.logsigmoid(scores + log_alpha))).sum(1)
        pull_up = masked_logsumexp(-scores, share * fixed.sigmoid(), constant=self.alpha)
        push_down = masked_logsumexp(scores, share * (-fixed).sigmoid(), constant=self.beta)
        return (positives + total / self.kappa * (pull_up + push_down)).mean()
