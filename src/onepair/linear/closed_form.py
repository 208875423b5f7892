"""Ridge regression in closed form: by the directions of the covariance it is a division, for any number of labels."""

from typing import NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_array, vstack
from torch import Tensor

from onepair.label_matrix import LabelMatrix
from onepair.labels import POSITIVE, UNKNOWN, Indices, Labels
from onepair.linear.design import Design


class RidgeTargets(NamedTuple):
    """The targets of `onepair.methods.ridge`, less those of an unknown label: 0 but for the labels that are known."""

    known: csr_array  # (N, L), t - u where a label is known
    share: Tensor  # (L,), u
    mean: Tensor  # (L,), of t
    products: Tensor  # (R, L), the features times t: unknown labels have no part in it, as features have no mean

    @classmethod
    def of(cls, design: Design, observed: LabelMatrix, share: Tensor) -> "RidgeTargets":
        if (observed.row_default == UNKNOWN).all():
            values = (observed.values == POSITIVE) - share.numpy()[observed.columns]
            known = csr_array((values, observed.columns, observed.starts), observed.shape)
        else:
            known = csr_array(vstack([_known(labels, share) for _, labels in observed.blocks()], format="csr"))
        known = known.astype(share.numpy().dtype)
        mean = torch.from_numpy(np.asarray(known.sum(0)).ravel() / max(1, len(observed))).to(share.dtype)
        return cls(known, share, mean + share, torch.from_numpy((known.T @ design.matrix.numpy()).T))

    def of_classes(self, columns: Indices) -> "RidgeTargets":
        """Those of some classes."""
        if len(columns) == len(self.share):
            return self
        chosen = torch.from_numpy(columns)
        known = self.known[:, columns].tocsr()
        return RidgeTargets(known, self.share[chosen], self.mean[chosen], self.products[:, chosen])


def _known(labels: Labels, share: Tensor) -> csr_array:
    row, column = np.nonzero(labels != UNKNOWN)
    return csr_array(((labels[row, column] == POSITIVE) - share.numpy()[column], (row, column)), labels.shape)


def ridge_solution(design: Design, targets: RidgeTargets, strength: float) -> Tensor:
    """The weights (R + 1, L) of a design whose directions are those of its covariance."""
    weights = targets.products / (design.spread[:, None] + strength)
    return torch.cat([weights, targets.mean[None]])


def ridge_without(design: Design, targets: RidgeTargets, strength: float, rows: Tensor) -> Tensor:
    """The same without some of the rows, exactly: their part is taken from the normal equations."""
    matrix = design.matrix
    assert isinstance(matrix, Tensor)  # noqa: S101 (the solution has directions)
    left = torch.cat([matrix[rows], torch.ones(len(rows), 1, dtype=matrix.dtype)], 1).double()
    squares = torch.cat([design.spread, torch.full((1,), float(len(design)), dtype=matrix.dtype)]).double()
    system = torch.diag(squares) - left.T @ left
    system.diagonal()[:-1] += strength
    products = torch.cat([targets.products, targets.mean[None] * len(design)]).double()
    own = torch.from_numpy(targets.known[rows.numpy()].T @ left.numpy()).T + left.sum(0)[:, None] * targets.share
    found: Tensor = torch.linalg.solve(system, products - own).to(matrix.dtype)
    return found


def leave_one_out(design: Design, targets: RidgeTargets, strength: float, rows: Tensor) -> Tensor:
    """The scores (n, L) of some rows, each by the solution without it, exactly: of n rows in the time of one product.

    score without i = (score - h t) / (1 - h),   h = 1/N + Σ_r x_r² / (spread_r + strength)
    """
    matrix = design.matrix
    assert isinstance(matrix, Tensor)  # noqa: S101 (the solution has directions)
    weights, own = ridge_solution(design, targets, strength), matrix[rows]
    leverage = 1 / len(design) + own.square() @ (1 / (design.spread + strength))
    given = torch.from_numpy(targets.known[rows.numpy()].toarray()) + targets.share
    scores = torch.addmm(weights[-1], own, weights[:-1])
    held = leverage.clamp(max=1 - 1e-6)[:, None]
    return (scores - held * given) / (1 - held)
