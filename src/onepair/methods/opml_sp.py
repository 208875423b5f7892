"""OPML, OPML-SP (high-rank penalty, adaptive label smoothing, label correction: Algorithm 1) and OPML+."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from onepair.label_matrix import LabelMatrix
from onepair.labels import POSITIVE, UNKNOWN
from onepair.losses import Loss, OPMLLoss, SoftOPMLLoss, high_rank_penalty
from onepair.losses.batch import check_at_least_zero, check_batch, reduce
from onepair.losses.opml import odds, opml_plus_rows
from onepair.methods.method import (
    Method,
    Observed,
    SparseCorrected,
    SparseObserved,
    at_least_single,
    blocks_of,
    count,
    register,
)
from onepair.metrics import Floats, HighestUnknown, ScoreBlocks, rank_positives


def label_correction(
    scores: ScoreBlocks, observed: LabelMatrix, *, label_num: float | None
) -> tuple[Floats, LabelMatrix]:
    """The average precision of every class, and the labels where the highest-scored unknowns of each are positive.

        Cornum_l = Obsnum_l · label_num · (1 - AP_l), rounded

    For AP, whatever was not observed positive counts as negative; without positives it is 0. Among equal scores the
    first rows win.

    Args:
        scores: (N, L), in blocks of rows; they are gone through twice.
        observed: (N, L).
        label_num: 0.8 on VOC, 1.2 on COCO, 1.1 on NUS, 22 on CUB in the paper; None: the labels stay as they are.

    Returns:
        AP (L,) and the labels (N, L).

    Examples:
        >>> from onepair.metrics import one_block
        >>> observed = LabelMatrix.of([[1], [1], [-1], [-1], [0]])
        >>> scores = np.array([[5.0], [1.0], [2.0], [3.0], [4.0]])
        >>> class_ap, corrected = label_correction(one_block(scores), observed, label_num=1.5)
        >>> class_ap, corrected.tolist()
        (array([0.7]), [[1], [1], [-1], [1], [0]])
    """
    shown = observed.count(POSITIVE)
    highest = None
    if label_num is not None:
        most = np.minimum(_counts(shown, label_num, np.zeros(len(shown))), observed.count(UNKNOWN))
        highest = HighestUnknown(observed, most)
    ranks = rank_positives(scores, observed, highest=highest)
    class_ap = np.zeros(len(shown))
    for label in np.flatnonzero(shown).tolist():
        positive, _, reached = ranks.of(label)
        class_ap[label] = np.mean(positive / reached)
    if highest is None or label_num is None:
        return class_ap, observed
    row, column, _ = highest.found(np.minimum(_counts(shown, label_num, class_ap), highest.most))
    return class_ap, observed.with_entries(row, column, POSITIVE)


def _counts(shown: NDArray[Any], label_num: float, class_ap: Floats) -> NDArray[np.int_]:
    """Cornum (L,), how many labels of each class are corrected."""
    return np.rint(shown * label_num * (1 - class_ap)).astype(int)


LI = "Li, Wang, Chen 2023"


class OPMLFamily(Method):
    """OPML (Eq. 7) with any of its three companions; each is left out while its option is None.

        high_rank_weight λ: + λ R_HR of the batch's predictions (Eq. 8)
        epsilon ε:          soft OPML (Eq. 9) with γ_l = sigmoid(s_l) · AP_l^ε for unknown labels l
        smoothing γ:        soft OPML (Eq. 9) with one γ for all unknown labels
        label_num:          Algorithm 1: the Obsnum_l · label_num · (1 - AP_l) highest-scored unknowns become positives

    AP_l is taken on the training set after every epoch, where whatever was not observed positive counts as negative; it
    is 0 before the first epoch ends and for a class without positives, which turns smoothing off. Corrections start
    after epoch `correction_start` and are made anew every epoch. `gamma_gradient` lets the gradient through γ.
    """

    sums_labels = True

    class_ap: Tensor  # (L,)
    targets: Tensor | SparseCorrected  # (N, L) int8: the observed labels, corrected

    def __init__(
        self,
        *,
        alpha: float,
        beta: float,
        high_rank_weight: float | None = None,
        epsilon: float | None = None,
        smoothing: float | None = None,
        gamma_gradient: bool = True,
        label_num: float | None = None,
        correction_start: int = 1,
    ) -> None:
        check_at_least_zero(high_rank_weight=high_rank_weight or 0, label_num=label_num or 0)
        if epsilon is not None and not epsilon > 0:
            raise ValueError(f"epsilon must be above 0, got {epsilon}")
        if not 0 <= (smoothing or 0) < 1:
            raise ValueError(f"smoothing must be at least 0 and below 1, got {smoothing}")
        super().__init__()
        soft = epsilon is not None or smoothing
        self.loss: Loss = (SoftOPMLLoss if soft else OPMLLoss)(alpha=alpha, beta=beta)
        self.smoothing = smoothing
        self.high_rank_weight = high_rank_weight
        self.epsilon = epsilon
        self.gamma_gradient = gamma_gradient
        self.label_num = label_num
        self.correction_start = correction_start
        self.needs_scores = epsilon is not None or label_num is not None

    def begin(self, observed: Observed) -> None:
        super().begin(observed)
        if not self.needs_scores:
            return
        self.register_buffer("class_ap", torch.zeros(observed.shape[1], device=observed.device))
        if isinstance(observed, SparseObserved):
            self._labels = observed.labels
            if self.label_num is not None:
                self.targets = SparseCorrected(observed)
        else:
            self._labels = LabelMatrix.of(observed.cpu().numpy())
            if self.label_num is not None:
                self.register_buffer("targets", observed.clone())

    def forward(self, logits: Tensor, rows: Tensor) -> Tensor:
        logits = at_least_single(logits)
        targets = (self.observed if self.label_num is None else self.targets)[rows]
        predicted = logits.sigmoid()
        gamma = self._gamma(predicted)
        loss: Tensor = self.loss(logits, targets, **({} if gamma is None else {"gamma": gamma}))
        return loss if self.high_rank_weight is None else loss + self.high_rank_weight * high_rank_penalty(predicted)

    def _gamma(self, predicted: Tensor) -> Tensor | None:
        if self.epsilon is None:
            return torch.full_like(predicted, self.smoothing) if self.smoothing else None
        return (predicted if self.gamma_gradient else predicted.detach()) * self.class_ap**self.epsilon

    def end_epoch(self, epoch: int, scores: Tensor | ScoreBlocks | None) -> None:
        if not self.needs_scores:
            return
        label_num = self.label_num if epoch >= self.correction_start else None
        class_ap, corrected = label_correction(blocks_of(scores), self._labels, label_num=label_num)
        self.class_ap.copy_(torch.from_numpy(class_ap))
        if label_num is None:
            return
        if isinstance(self.targets, SparseCorrected):
            self.targets.take(corrected)
        else:
            self.targets.copy_(torch.from_numpy(corrected.dense()))


@register(
    name="opml",
    title="OPML",
    paper=LI,
    equation="log(α + Σ exp(-s_p)) + log(β + Σ exp(s_n))",
    description="Pushes only the closest pair of a positive and an assumed negative label apart.",
    convex=True,
)
class OPML(OPMLFamily):
    """OPML alone; the paper's best (alpha, beta) are (0.7, 0.4) on VOC and (0.9, 0.5) on CUB."""

    def __init__(self, *, alpha: float = 0.6, beta: float = 0.4) -> None:
        super().__init__(alpha=alpha, beta=beta)


@register(
    name="opml-ls",
    title="OPML+LS",
    paper=LI,
    equation="log(α + Σ exp(-s_p)) + log(α + Σ γ exp(-s_u)) + log(β + Σ (1-γ) exp(s_u)), one γ for all",
    description="OPML; every unknown label is positive by the same small share.",
    convex=True,
)
class OPMLSmoothed(OPMLFamily):
    """Soft OPML with one share γ = `smoothing` for all unknown labels, which keeps it convex.

    Its beta is 0.9, not the 0.4 of `opml_loss`, which is the paper's: the method is onepair's own, made for linear
    classifiers on fixed features, and its values were chosen there.
    """

    def __init__(self, *, alpha: float = 0.6, beta: float = 0.9, smoothing: float = 0.01) -> None:
        super().__init__(alpha=alpha, beta=beta, smoothing=smoothing)


@register(
    name="opml-hr",
    title="OPML+HR",
    paper=LI,
    equation="OPML - λ log det(Y Yᵀ)",
    description="OPML; the predictions of a batch are kept from all saying the same.",
)
class OPMLHighRank(OPMLFamily):
    """OPML with the high-rank penalty; λ = 1e-3 in the paper."""

    def __init__(self, *, alpha: float = 0.6, beta: float = 0.4, high_rank_weight: float = 1e-3) -> None:
        super().__init__(alpha=alpha, beta=beta, high_rank_weight=high_rank_weight)


@register(
    name="opml-soft",
    title="OPML+smoothing",
    paper=LI,
    equation="log(α + Σ exp(-s_p)) + log(α + Σ γ exp(-s_u)) + log(β + Σ (1-γ) exp(s_u)), γ = p AP^ε",
    description="OPML; an unknown label is positive by a share that grows with its score and its class's precision.",
    rounds=3,
)
class OPMLSoft(OPMLFamily):
    """OPML with adaptive label smoothing; ε = 0.7 on VOC and 1 elsewhere in the paper."""

    def __init__(
        self, *, alpha: float = 0.6, beta: float = 0.4, epsilon: float = 0.7, gamma_gradient: bool = True
    ) -> None:
        super().__init__(alpha=alpha, beta=beta, epsilon=epsilon, gamma_gradient=gamma_gradient)


@register(
    name="opml-correct",
    title="OPML+correction",
    paper=LI,
    equation="OPML with the Obsnum_l × Label_num × (1 - AP_l) highest-scored unknowns as positives",
    description="OPML; after every epoch the highest-scored unknown labels become positive.",
    rounds=3,
)
class OPMLCorrected(OPMLFamily):
    """OPML with label correction; label_num as in `label_correction`."""

    def __init__(
        self, *, alpha: float = 0.6, beta: float = 0.4, label_num: float = 0.8, correction_start: int = 1
    ) -> None:
        super().__init__(alpha=alpha, beta=beta, label_num=label_num, correction_start=correction_start)


@register(
    name="opml-sp",
    title="OPML-SP",
    paper=LI,
    equation="soft OPML - λ log det(Y Yᵀ), on corrected labels",
    description="OPML with the high-rank penalty, adaptive label smoothing and label correction.",
    rounds=3,
)
class OPMLSP(OPMLFamily):
    """OPML-SP, all three; the defaults are the paper's values on VOC.

    (alpha, beta, epsilon, label_num) = (0.6, 0.4, 0.7, 0.8) on VOC, (0.4, 0.5, 1, 1.2) on COCO, (0.6, 0.4, 1, 1.1) on
    NUS, (0.6, 0.2, 1, 22) on CUB; high_rank_weight = 1e-3 everywhere.
    """

    def __init__(
        self,
        *,
        alpha: float = 0.6,
        beta: float = 0.4,
        high_rank_weight: float = 1e-3,
        epsilon: float = 0.7,
        gamma_gradient: bool = True,
        label_num: float = 0.8,
        correction_start: int = 1,
    ) -> None:
        super().__init__(
            alpha=alpha,
            beta=beta,
            high_rank_weight=high_rank_weight,
            epsilon=epsilon,
            gamma_gradient=gamma_gradient,
            label_num=label_num,
            correction_start=correction_start,
        )


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
