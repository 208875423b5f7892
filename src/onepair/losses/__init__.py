"""Losses for multi-label classification with positive, negative and unknown labels.

Each is a pure function `loss(logits, labels, *, ..., unknown=..., reduction="mean")` and a module that fixes its
options. Logits, never probabilities; float16 and bfloat16 are computed and returned in float32.
"""

from onepair.losses.batch import Loss, Reduction, Unknown
from onepair.losses.bce import BCELoss, EntropyMaximizationLoss, bce_loss, entropy_maximization_loss, propensity_loss
from onepair.losses.focal import AsymmetricLoss, FocalLoss, HillLoss, asymmetric_loss, focal_loss, hill_loss
from onepair.losses.opml import (
    OPMLLoss,
    OPMLPlusLoss,
    SoftOPMLLoss,
    high_rank_penalty,
    opml_loss,
    opml_plus_loss,
    soft_opml_loss,
)
from onepair.losses.zlpr import TwoWayLoss, ZLPRLoss, two_way_loss, zlpr_loss

__all__ = [
    "AsymmetricLoss",
    "BCELoss",
    "EntropyMaximizationLoss",
    "FocalLoss",
    "HillLoss",
    "Loss",
    "OPMLLoss",
    "OPMLPlusLoss",
    "Reduction",
    "SoftOPMLLoss",
    "TwoWayLoss",
    "Unknown",
    "ZLPRLoss",
    "asymmetric_loss",
    "bce_loss",
    "entropy_maximization_loss",
    "focal_loss",
    "high_rank_penalty",
    "hill_loss",
    "opml_loss",
    "opml_plus_loss",
    "propensity_loss",
    "soft_opml_loss",
    "two_way_loss",
    "zlpr_loss",
]
