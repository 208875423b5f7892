"""The features of all rows as the solver takes them: columns in their own units, in the basis of their covariance."""
# ruff: noqa: N803 (X is the name that users of scikit-learn know)

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse
from torch import Tensor

from onepair.labels import Indices

_MOST_DIRECTIONS = 4096  # of a covariance that is decomposed, which takes the third power of their number
_FILLED = 0.5  # a matrix with a smaller share of values other than 0 is sparse, and so is a column of it
_ROUNDING = 1e-6  # of a column's largest value: it is constant if it varies by less
_FARTHEST = 10.0  # times the median column that a sparse one may be from 0: words are within 5, salaries are not
_SMALL = 2**25  # values of a sparse matrix that is taken as a dense one: its directions are worth more than its zeros
_ROWS, _PARTS = 1024, 16  # rows that a thread computes with at least, and parts of all rows at most
_BLOCK = 2**20  # values that are looked at at once


Run = Callable[[Callable[[Any], Any], Iterable[Any]], list[Any]]  # a map, perhaps over threads


def in_order(compute: Callable[[Any], Any], parts: Iterable[Any]) -> list[Any]:
    """One after the other."""
    return [compute(part) for part in parts]


@dataclass(frozen=True, eq=False)
class Columns:
    """Where each column of X has its origin, and its unit: what a solver sees is (X - centre) / unit."""

    centre: NDArray[np.float64]  # (D,)
    unit: NDArray[np.float64]  # (D,)

    def to_features(self, weights: NDArray[Any], intercept: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """The coefficients (…, L, D) and intercepts (…, L) for X, of weights (…, D, L) for what a solver sees."""
        coef = np.swapaxes(np.asarray(weights, np.float64) / self.unit[:, None], -1, -2)
        return coef, np.asarray(intercept, np.float64) - coef @ self.centre


def measure_columns(X: Any, *, one_unit: bool = False) -> Columns:
    """The origin and the unit of every column of X (N, D), dense or sparse.

    Of a dense matrix these are mean and standard deviation, so that neither the unit nor the offset of a column
    matters. In a sparse one, columns that are mostly 0 keep their units relative to each other, but for one that is
    beyond measure, and the others are brought to the same size. A column that does not vary is left out: its unit is
    infinite. With `one_unit` all columns have one unit, the root mean square of their spreads: for components of an
    SVD, whose sizes say how much they matter.
    """
    peak = _peaks(X)
    mean, squares, about, filled = _moments(X, np.where(peak > 0, peak, 1))
    spread, size = np.sqrt(about) * peak, np.sqrt(squares / np.maximum(filled, 1e-300)) * peak
    varies = spread > _ROUNDING * peak
    unit = np.where(varies, spread, np.inf)
    if one_unit and varies.any():
        return Columns(mean * peak, np.where(varies, np.sqrt(np.square(spread[varies]).mean()), np.inf))
    if issparse(X) or filled.mean() < _FILLED:
        thin = varies & (filled <= _FILLED)
        if thin.any():
            usual = float(np.median(size[thin]))
            unit = np.where(varies, spread / usual, np.inf)
            unit[thin] = np.maximum(size[thin] / (_FARTHEST * usual), 1.0)
    return Columns(mean * peak, unit)


def _peaks(X: Any) -> NDArray[np.float64]:
    """The largest absolute value of every column: in units of these no square is beyond the numbers there are."""
    if issparse(X):
        return np.asarray(abs(X).max(0).toarray().ravel(), np.float64)
    return np.asarray(np.max([np.maximum(block.max(0), -block.min(0)) for block in _blocks(X)], axis=0), np.float64)


def _moments(X: Any, unit: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
    """Of every column in its unit: the mean, the mean square, the variance, and the share of values that are not 0."""
    rows = X.shape[0]
    if issparse(X):
        scaled = X.multiply(1 / unit).tocsr()
        mean, squares = np.asarray(scaled.mean(0)).ravel(), np.asarray(scaled.multiply(scaled).mean(0)).ravel()
        filled = np.bincount(X.indices[X.data != 0], minlength=X.shape[1]) / rows  # a 0 may be stored
        return mean, squares, np.maximum(squares - mean**2, 0), filled
    filled, mean, about = np.zeros((3, X.shape[1]))
    for block in _blocks(X):
        mean += (block.sum(0, dtype=np.float64) / unit) / rows
        filled += np.count_nonzero(block, axis=0) / rows
    for block in _blocks(X):
        about += np.square(block / unit - mean).sum(0, dtype=np.float64) / rows
    return mean, about + mean**2, about, filled


def _blocks(X: Any) -> Iterator[Any]:
    """Rows of a matrix, some at a time, in single precision or better."""
    size = max(1, _BLOCK // X.shape[1])
    for start in range(0, X.shape[0], size):
        yield X[start : start + size].astype(np.promote_types(X.dtype, np.float32), copy=False)


@dataclass(frozen=True, eq=False)
class Design:
    """The features of N rows, by R directions: `scores = (matrix - shift) @ weights + intercept`.

    Directions are those of the covariance, where these can be had: then the curvature of any loss is nearly diagonal,
    and ridge regression is a division. The weights of features are `basis @ weights`.
    """

    matrix: Tensor | csr_array  # (N, R)
    shift: Tensor  # (R,), the mean row: zeros of a dense matrix
    spread: Tensor  # (R,), the sums of squares about it
    basis: Tensor | None  # (D, R), orthonormal columns; None: directions are columns
    columns: Columns

    @classmethod
    def of(cls, X: Any, *, one_unit: bool = False, run: Run = in_order) -> "Design":
        """The design of features X (N, D), dense or sparse; `run` maps over threads."""
        columns = measure_columns(X, one_unit=one_unit)
        dtype = torch.float64 if X.dtype == np.float64 else torch.float32
        shift = torch.from_numpy(columns.centre / columns.unit).to(dtype)
        rows, width = X.shape
        if issparse(X) and rows * width > _SMALL:
            matrix = csr_array(X.multiply(1 / columns.unit)).astype(str(dtype).removeprefix("torch."))
            squares = torch.from_numpy(np.asarray(matrix.multiply(matrix).sum(0)).ravel()).to(dtype)
            return cls(matrix, shift, (squares - rows * shift.square()).clamp(min=0), None, columns)
        standard, start = torch.empty(rows, width, dtype=dtype), 0
        for block in _blocks(X):
            dense = block.toarray() if issparse(block) else block
            standard[start : start + len(dense)] = torch.from_numpy((dense - columns.centre) / columns.unit)
            start += len(dense)
        if width <= min(rows, _MOST_DIRECTIONS):
            parts = torch.split(standard, max(_ROWS, -(-rows // _PARTS)))
            products = run(lambda part: part.T @ part, parts)
            spread, basis = torch.linalg.eigh(torch.stack(products).sum(0))
            run(lambda part: part.copy_(part @ basis), torch.split(standard, _ROWS))
            return cls(standard, torch.zeros_like(spread), spread.clamp(min=0), basis, columns)
        if rows <= _MOST_DIRECTIONS:
            spread, along = torch.linalg.eigh(standard @ standard.T)
            kept = spread > 50 * torch.finfo(dtype).eps * spread.max()  # what is below is rounding
            lengths = spread[kept].sqrt()
            basis = standard.T @ along[:, kept] / lengths
            return cls(along[:, kept] * lengths, torch.zeros_like(lengths), spread[kept], basis, columns)
        return cls(standard, torch.zeros_like(shift), standard.square().sum(0), None, columns)

    @property
    def width(self) -> int:
        """D, the number of columns."""
        return len(self.columns.unit)

    def __len__(self) -> int:
        return int(self.matrix.shape[0])

    @property
    def directions(self) -> int:
        return int(self.matrix.shape[1])

    @property
    def dtype(self) -> torch.dtype:
        return self.spread.dtype

    def take(self, rows: Indices) -> "Design":
        """The same of some rows."""
        chosen = self.matrix[torch.from_numpy(rows)] if isinstance(self.matrix, Tensor) else self.matrix[rows]
        return replace(self, matrix=chosen, spread=self.spread * (len(rows) / max(1, len(self))))

    def every(self, start: int, step: int) -> "Design":
        """The same of every so many-th row: a view, where the matrix is dense."""
        return replace(self, matrix=self.matrix[start::step])

    def scores(self, weights: Tensor, intercept: Tensor) -> Tensor:
        """The scores (N, L) by weights (R, L)."""
        if isinstance(self.matrix, Tensor):
            return torch.addmm(intercept, self.matrix, weights)
        found = torch.from_numpy(self.matrix @ weights.numpy())
        return found.add_(intercept - self.shift @ weights)

    def gradient(self, by_score: Tensor) -> Tensor:
        """The gradient in the weights (R, L), by that in the scores (N, L)."""
        if isinstance(self.matrix, Tensor):
            return self.matrix.T @ by_score
        found = torch.from_numpy(self.matrix.T @ by_score.numpy())
        return found.sub_(torch.outer(self.shift, by_score.sum(0)))

    def feature_weights(self, weights: Tensor) -> Tensor:
        """The weights (…, D, L) of columns, of those of directions."""
        return weights if self.basis is None else self.basis @ weights
