"""The solver: a method's loss of all rows plus an l2 penalty, by L-BFGS in units of the curvature.

    minimise  Σ_rows loss(scores)  +  D / 2C · ‖W‖²

All rows are cut into the same batches however many threads there are, each batch is computed by one thread, and what
they give is summed in one order: the result does not depend on the number of threads.
"""
# ruff: noqa: N803 (X is the name that users of scikit-learn know)

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse
from torch import Tensor, nn

from onepair.labels import Indices
from onepair.methods import Method

_BATCH = 2**18  # cells of a batch, at most: enough for the work on it to be more than the calls
_FEWEST_ROWS = 64  # of a batch
_MEMORY = 8  # steps that L-BFGS remembers
_LEAST_CURVATURE = 1e-3  # of a class, relative to the highest
_MEASURED_AFTER = (3, 10)  # steps, when the curvature is measured again
_LONGEST = 5.0  # change of scores, in the root mean square, that is tried in one step
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


@contextmanager
def workers() -> Iterator[Run]:
    """A map over threads, each of which computes by itself: as many as torch has now."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    pool: Executor | None = None
    try:
        if threads == 1:
            yield in_order
        else:
            pool = ThreadPoolExecutor(threads)
            mapped = pool.map
            yield lambda compute, parts: list(mapped(compute, parts))
    finally:
        if pool is not None:
            pool.shutdown()
        torch.set_num_threads(threads)


@dataclass(frozen=True)
class Solution:
    """Where the solver ended."""

    weights: Tensor  # (R + 1, L): those of the directions, and the intercepts
    iterations: int
    residual: float  # what is left of the gradient: about the root mean square by which scores would still change


class Objective:
    """The gradient of a method's loss on the rows of a design, and of the penalty.

    Args:
        design: the features of N rows.
        method: has begun with the observed labels of these rows.
        strength: of the penalty, D / C.
        run: maps over threads, see `workers`.
        row_weights: (N,), how much each row counts.
        class_weights: (L,), how much each class counts.
    """

    def __init__(
        self,
        design: Design,
        method: Method,
        classes: int,
        *,
        strength: float,
        run: Run,
        row_weights: Tensor | None = None,
        class_weights: Tensor | None = None,
    ) -> None:
        self.design, self.method, self.classes, self.strength, self.run = design, method, classes, strength, run
        number = 2 ** max(1, math.ceil(math.log2(len(design) * classes / _BATCH)))
        number = min(number, max(1, len(design) // _FEWEST_ROWS))
        rows = torch.arange(len(design))
        self.batches = [
            _Batch(design.every(start, number), rows[start::number], _part(row_weights, start, number), class_weights)
            for start in range(number)
        ]
        self.own = [each for each in method.parameters() if each.requires_grad]
        self.penalises = type(method).penalty is not Method.penalty

    def gradient(self, weights: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The gradient (R + 1, L) at weights, and those of the method's own parameters."""
        parts = self.run(lambda batch: batch.gradient(self.method, weights, self.own), self.batches)
        total, own = parts[0]
        for each, others in parts[1:]:
            total += each
            for mine, other in zip(own, others, strict=True):
                mine += other
        total[:-1] += self.strength * weights[:-1]
        if self.penalises:
            total[:-1] += self._penalty_gradient(weights[:-1])
        return total, own

    def _penalty_gradient(self, weights: Tensor) -> Tensor:
        """Of what the method adds for the weights of the classifier, which are those of standardised features."""
        basis = self.design.basis
        classifier = nn.Linear(self.design.width, self.classes, bias=False, dtype=weights.dtype)
        with torch.no_grad():
            classifier.weight.copy_(self.design.feature_weights(weights).T)
        penalty = self.method.penalty(classifier)
        if penalty is None:
            return torch.zeros_like(weights)
        rows = len(self.design) * (1 if self.method.sums_labels else self.classes)
        (found,) = torch.autograd.grad(penalty * rows, classifier.weight)
        return found.T if basis is None else basis.T @ found.T

    def curvature(self, weights: Tensor) -> Tensor:
        """The mean over the rows of the second derivative in each class's score, (L,), by a random direction."""
        sums = self.run(lambda batch: batch.curvature(self.method, weights), self.batches)
        mean = (torch.stack(sums).sum(0) / len(self.design)).abs()  # of a loss that is not convex it may be below 0
        return mean.clamp(min=max(_LEAST_CURVATURE * float(mean.max()), 1e-9))

    def scores(self, weights: Tensor) -> Tensor:
        """The scores (N, L) of all rows."""
        found = torch.empty(len(self.design), self.classes, dtype=weights.dtype)
        parts = self.run(lambda batch: batch.design.scores(weights[:-1], weights[-1]), self.batches)
        for batch, part in zip(self.batches, parts, strict=True):
            found[batch.rows] = part
        return found

    def visit(self, weights: Tensor) -> None:
        """Show the method every batch once in training mode, in which it may change its mind."""
        self.method.train()
        with torch.no_grad():
            for batch in self.batches:
                self.method(batch.design.scores(weights[:-1], weights[-1]), batch.rows)
        self.method.eval()


def _part(weights: Tensor | None, start: int, step: int) -> Tensor | None:
    return None if weights is None else weights[start::step, None]


@dataclass(frozen=True, eq=False)
class _Batch:
    """Some rows, whose loss a method gives."""

    design: Design
    rows: Tensor  # (B,)
    row_weights: Tensor | None  # (B, 1)
    class_weights: Tensor | None  # (L,)

    def gradient(self, method: Method, weights: Tensor, own: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        scores = self.design.scores(weights[:-1], weights[-1])
        by_score, others = self._by_score(method, scores, own)
        return torch.cat([self.design.gradient(by_score), by_score.sum(0, keepdim=True)]), others

    def curvature(self, method: Method, weights: Tensor) -> Tensor:
        scores = self.design.scores(weights[:-1], weights[-1])
        # Signs that differ from cell to cell: what cells do to each other cancels, on average.
        signs = torch.randint(0, 2, scores.shape, generator=torch.Generator().manual_seed(0)).to(scores.dtype) * 2 - 1
        step = 0.01
        there, _ = self._by_score(method, scores + step * signs, [])
        back, _ = self._by_score(method, scores - step * signs, [])
        return (signs * (there - back)).sum(0) / (2 * step)

    def _by_score(self, method: Method, scores: Tensor, own: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """The derivative (B, L) of the summed loss in the scores, and in the method's own parameters."""
        with torch.enable_grad():
            moving = scores.detach().requires_grad_()
            loss = method(moving, self.rows) * (len(self.rows) * (1 if method.sums_labels else scores.shape[1]))
            by_score, *others = torch.autograd.grad(loss, [moving, *own])
        if self.row_weights is not None:
            by_score = by_score * self.row_weights
        if self.class_weights is not None:
            by_score = by_score * self.class_weights
        return by_score, others


def solve(objective: Objective, start: Tensor, *, tolerance: float, max_iter: int) -> Solution:
    """Go to where the gradient is 0, from weights (R + 1, L).

    Steps are judged by the gradient alone: it tells more than the value in single precision, and is all there is of a
    method whose weights carry no gradient. In the directions of the covariance, in units of the root of the curvature,
    a step of length 1 is nearly Newton's, and the first one from 0 nearly ridge regression. From there the curvature is
    measured again after a few steps, for it may be far from what it is in the end.
    """
    found, steps = start, 0
    for most in (max_iter,) if start.any() else (*_MEASURED_AFTER, max_iter):
        # Of the first steps from 0 none is left out: what a batch-wise penalty says there is beyond measure.
        tolerated = tolerance if start.any() or steps else 0.0
        solution = _descend(objective, found, tolerance=tolerated, max_iter=min(most, max_iter - steps))
        found, steps = solution.weights, steps + solution.iterations
        if solution.residual <= tolerated or steps >= max_iter:
            break
    return replace(solution, iterations=steps)


def _descend(objective: Objective, start: Tensor, *, tolerance: float, max_iter: int) -> Solution:
    """So many steps of L-BFGS in units of the curvature at the start."""
    rows, own = len(objective.design), objective.own
    curvature = objective.curvature(start)
    along = objective.design.spread[:, None] * curvature + objective.strength
    unit = torch.cat([along, (rows * curvature)[None]]).rsqrt()
    size = unit.numel()

    def at(point: Tensor) -> Tensor:
        with torch.no_grad():
            start = size
            for each in own:
                each.copy_(point[start : start + each.numel()].view_as(each))
                start += each.numel()
        gradient, others = objective.gradient(point[:size].view_as(unit) * unit)
        return torch.cat([(gradient * unit).flatten(), *(each.flatten() for each in others)])

    point = torch.cat([(start / unit).flatten(), *(each.detach().flatten() for each in own)])
    gradient = at(point)
    # A gradient of this length, in these units, would change scores by 1 in the root mean square.
    usual = float((rows * curvature.sum()).sqrt())
    memory: deque[tuple[Tensor, Tensor, Tensor]] = deque(maxlen=_MEMORY)
    iterations = 0
    while iterations < max_iter and float(gradient.norm()) > tolerance * usual:
        direction = _direction(gradient, memory)
        slope = float(torch.dot(gradient, direction))
        if slope >= 0:  # what is remembered does not fit any more
            memory.clear()
            direction, slope = -gradient, -float(torch.dot(gradient, gradient))
        step = min(1.0, _LONGEST * usual / float(direction.norm()))
        for _ in range(10):
            moved = point + step * direction
            there = at(moved)
            onward = float(torch.dot(there, direction))
            if onward <= -0.9 * slope:  # not far beyond the lowest place
                break
            step *= min(0.5, max(0.1, slope / (slope - onward)))
        change, difference = moved - point, there - gradient
        product = torch.dot(change, difference)
        if float(product) > 1e-8 * float(change.norm() * difference.norm()):
            memory.append((change, difference, product))
        point, gradient = moved, there
        iterations += 1
    return Solution(point[:size].view_as(unit) * unit, iterations, float(gradient.norm()) / usual)


def _direction(gradient: Tensor, memory: deque[tuple[Tensor, Tensor, Tensor]]) -> Tensor:
    """The way down by what earlier steps have told of the curvature."""
    found, shares = -gradient, []
    for change, difference, product in reversed(memory):
        share = torch.dot(change, found) / product
        shares.append(share)
        found = found - share * difference
    if memory:
        _, difference, product = memory[-1]
        found = found * (product / torch.dot(difference, difference))
    for (change, difference, product), share in zip(memory, reversed(shares), strict=True):
        found = found + (share - torch.dot(difference, found) / product) * change
    return found
