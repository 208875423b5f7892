"""The zero-bounded log-sum-exp pairwise ranking loss, a special case of OPML."""

from torch import Tensor

from onepair.losses.batch import Loss, Reduction, Unknown
from onepair.losses.opml import opml_loss


def zlpr_loss(
    logits: Tensor,
    labels: Tensor,
    *,
    unknown: Unknown = "negative",
    reduction: Reduction = "mean",
) -> Tensor:
    """ZLPR loss (Su et al. 2022): OPML with α̃ = β̃ = 0.5, so that α = β = 1.

        L = log(1 + Σ_{p∈Ωp} exp(-s_p)) + log(1 + Σ_{n∈Ωn} exp(s_n))

    Shapes, `unknown` and `reduction` as in `opml_loss`.

    Examples:
        >>> import torch
        >>> zlpr_loss(torch.tensor([[0.0, 0.0]]), torch.tensor([[1, 0]]))
        tensor(1.3863)
    """
    return opml_loss(logits, labels, alpha=0.5, beta=0.5, unknown=unknown, reduction=reduction)


class ZLPRLoss(Loss):
    """`zlpr_loss` as a module.

    Examples:
        >>> import torch
        >>> ZLPRLoss()(torch.zeros(1, 2), torch.tensor([[1, 0]]))
        tensor(1.3863)
    """

    function = staticmethod(zlpr_loss)
