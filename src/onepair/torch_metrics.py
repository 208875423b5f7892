"""Metrics that are shown a batch at a time, for training loops, Lightning's log and collections of torchmetrics.

They are metrics of torchmetrics where that is installed, and otherwise modules with the same verbs.
"""

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from onepair.metrics import matrices, mean_average_precision

if TYPE_CHECKING:
    from torchmetrics import Metric
else:
    try:
        from torchmetrics import Metric
    except ImportError:

        class Metric(nn.Module):
            """What is used here of `torchmetrics.Metric`: states that are lists, on the CPU and in one process."""

            device = torch.device("cpu")

            def __init__(self) -> None:
                super().__init__()
                self._states: list[str] = []

            def add_state(self, name: str, default: list[Any], dist_reduce_fx: str) -> None:
                self._states.append(name)
                setattr(self, name, default)

            def reset(self) -> None:
                for name in self._states:
                    setattr(self, name, [])

            def forward(self, *args: Any) -> Any:
                """Add a batch, and return the metric of it alone."""
                earlier = {name: getattr(self, name) for name in self._states}
                self.reset()
                self.update(*args)
                value = self.compute()
                for name, blocks in earlier.items():
                    setattr(self, name, blocks + getattr(self, name))
                return value


class MeanAveragePrecision(Metric):
    """`mean_average_precision` of batches that come one after the other, exact over all of them together.

    Usable as `self.log("mAP", metric)` in Lightning, and in a `torchmetrics.MetricCollection`; with torchmetrics, the
    batches of all processes are gathered.

    Args:
        empty: a class without known positives is left out ("skip") or counts as 0 ("zero").

    Examples:
        >>> metric = MeanAveragePrecision()
        >>> metric.update(torch.tensor([[0.9, 0.1]]), torch.tensor([[1, 0]]))
        >>> metric.update(torch.tensor([[0.2, 0.8]]), torch.tensor([[0, 1]]))
        >>> metric.compute()
        tensor(1., dtype=torch.float64)
    """

    is_differentiable = False
    higher_is_better = True
    full_state_update = False
    scores: list[Tensor]
    labels: list[Tensor]

    def __init__(self, *, empty: Literal["skip", "zero"] = "skip", **options: Any) -> None:
        if empty not in ("skip", "zero"):
            raise ValueError(f"empty must be 'skip' or 'zero', got {empty!r}")
        super().__init__(**options)
        self.empty = empty
        self.add_state("scores", default=[], dist_reduce_fx="cat")
        self.add_state("labels", default=[], dist_reduce_fx="cat")

    def update(self, scores: Any, labels: Any) -> None:
        """Add a batch.

        Args:
            scores: (B, L) or (B, T, L), logits or probabilities, torch or numpy. An empty batch adds nothing.
            labels: of the same shape, of 1, 0, and -1 or NaN for unknown.
        """
        if 0 in np.shape(scores)[:-1] and np.shape(scores) == np.shape(labels):
            return
        score_matrix, label_matrix = matrices(scores, labels)
        self.scores.append(torch.from_numpy(score_matrix.copy()).to(self.device))
        self.labels.append(torch.from_numpy(label_matrix.copy()).to(self.device))

    def compute(self) -> Tensor:
        """Return the mean average precision of all batches since the last reset.

        Raises:
            ValueError: if there are none, or no class has both a known positive and a known negative.
        """
        if len(self.scores) == 0:
            raise ValueError("there is no mean average precision before the first batch; call update first")
        scores, labels = (
            torch.cat(list(each)) if isinstance(each, list) else each for each in (self.scores, self.labels)
        )
        return torch.tensor(mean_average_precision(scores, labels, empty=self.empty).value, dtype=torch.float64)
