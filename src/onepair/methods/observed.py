"""Observed labels that are too many for a matrix, in the place of one."""

from typing import Any

import torch
from torch import Tensor, nn

from onepair.label_matrix import LabelMatrix
from onepair.labels import POSITIVE


class ObservedRows:
    """What a method sees of the observed labels (N, L) where these are kept by their entries: `[rows]`, as of a tensor.

    They stay in the memory of the machine; the labels of a batch are made dense, and moved to where its rows are.
    """

    device = torch.device("cpu")

    def __init__(self, labels: LabelMatrix) -> None:
        self.labels = labels

    @property
    def shape(self) -> torch.Size:
        return torch.Size(self.labels.shape)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: Tensor) -> Tensor:
        return torch.from_numpy(self.labels[rows.cpu().numpy()]).to(rows.device, non_blocking=True)


class CorrectedRows(nn.Module):
    """Observed labels, some of which are corrected: a method's state, kept by the entries that differ."""

    def __init__(self, observed: ObservedRows) -> None:
        super().__init__()
        self._observed = observed
        self._corrected = observed

    def __getitem__(self, rows: Tensor) -> Tensor:
        return self._corrected[rows]

    @property
    def labels(self) -> LabelMatrix:
        return self._corrected.labels

    def take(self, corrected: LabelMatrix) -> None:
        """Take labels that differ from the observed ones by more positives."""
        self._corrected = ObservedRows(corrected)

    def get_extra_state(self) -> dict[str, Tensor]:
        rows, columns = (torch.from_numpy(each) for each in self.labels.positives())
        return {"rows": rows, "columns": columns}

    def set_extra_state(self, state: Any) -> None:
        self.take(self._observed.labels.with_entries(state["rows"].numpy(), state["columns"].numpy(), POSITIVE))


Observed = Tensor | ObservedRows


def count(observed: Observed, value: int) -> Tensor:
    """How many labels of each class, (L,), hold a value."""
    if isinstance(observed, ObservedRows):
        return torch.from_numpy(observed.labels.count(value))
    return (observed == value).sum(0)
