"""A linear classifier on fixed features, with out-of-fold scores of every row and a penalty that chooses itself."""
# ruff: noqa: N803, N806 (X and C are the names that users of scikit-learn know)

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse, vstack
from torch import Tensor

from onepair.errors import ConfigError
from onepair.label_matrix import LabelMatrix
from onepair.labels import POSITIVE, UNKNOWN, Indices, Labels, fold_groups
from onepair.linear.solver import Design, Objective, Run, Solution, in_order, measure_columns, solve, workers
from onepair.methods import Method
from onepair.methods.cross_entropy import Ridge
from onepair.methods.method import as_observed
from onepair.metrics import one_block
from onepair.models.backbone import Kernel
from onepair.probability.evaluation import estimated_map_by_blocks
from onepair.probability.infer import class_priors
from onepair.probability.observation import Process

Floats = NDArray[np.floating]
Strength = float | Literal["auto"]
FOLDS = 5
FIRST_C = 3.0  # where the search for the penalty begins, and what it is where nothing can be told
_LOOSE, _TIGHT = 1e-2, 1e-3  # tolerance while a strength is judged, and in the end
_RATIO = 10**0.5  # between neighbouring strengths that are tried
_FARTHEST = 6  # steps from the first
_ENOUGH_ROWS = 1000  # held out, to judge a strength by
_JUDGED_CELLS = 2**22  # at most, that a strength is judged by
_MOST_CLASSES = 512  # that a strength is judged by
_FEWEST_ROWS = 200  # that class priors are estimated by, if there are so many
_PRIOR_CELLS = 2**13  # at most, that class priors are estimated by
_ROUND_STEPS = 20  # at most, before targets are made anew
LANDMARKS = 2000
_MOST_CELLS = 2**28  # rows × landmarks: 1 GB, and the solver has two more of it
_ROWS = 1024  # that a thread computes with
_WIDTH = 2.0  # of the kernel, in medians of the squared distances between landmarks
_LEAST = 1e-6  # eigenvalue of the kernel of the landmarks, relative to the highest


class RidgeTargets(NamedTuple):
    """The targets of method ridge, less those of an unknown label: 0 but for the labels that are known."""

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


class Trial(NamedTuple):
    """A strength of the penalty that was tried."""

    C: float
    estimated_map: float  # out of fold, or of the validation rows


@dataclass(frozen=True, eq=False)
class LinearFit:
    """A solved classifier, for features as they are: `scores = X @ coef.T + intercept`, or kernel(X) in place of X."""

    coef: Floats  # (L, D)
    intercept: Floats  # (L,)
    fold_coef: Floats  # (K, L, D), of the models that were fitted without one fold each
    fold_intercept: Floats  # (K, L), levelled: a fold's positives are missing in its own model
    fold: Indices  # (N,), which of them was fitted without each row
    C: float
    priors: Floats | None  # (L,), the shares of positives that the method was told, if it asks for them
    trials: Sequence[Trial]
    iterations: int
    residual: float  # about how much scores would still change, in the root mean square
    converged: bool
    kernel: Kernel | None = None  # between features and landmarks, where the head is one: then D is their number

    def scores(self, X: Any) -> NDArray[np.float32]:
        """The scores (n, L) of features X (n, D)."""
        scores: NDArray[np.float32] = self._seen(X) @ self.coef.T + self.intercept
        return scores

    def out_of_fold(self, X: Any, rows: Indices | None = None) -> NDArray[np.float32]:
        """The scores (n, L) of rows of the training matrix, each by the model that was not fitted to it.

        Args:
            X: (n, D), the features of these rows.
            rows: (n,), which they are; None: all, in order.
        """
        fold = self.fold if rows is None else self.fold[rows]
        scores = np.empty((len(fold), len(self.intercept)), np.float32)
        for number in np.unique(fold).tolist():
            own = np.flatnonzero(fold == number)
            scores[own] = self._seen(X[own]) @ self.fold_coef[number].T + self.fold_intercept[number]
        return scores

    def _seen(self, X: Any) -> Any:
        return X if self.kernel is None else self.kernel(torch.from_numpy(X)).numpy()


class ValidationRows(NamedTuple):
    """Rows that nothing is fitted to, to choose the penalty by."""

    X: Any  # (M, D)
    labels: LabelMatrix  # (M, L)


@dataclass(frozen=True, eq=False)
class _Problem:
    """What is to be learned: features and observed labels of N rows, and the method."""

    design: Design
    observed: LabelMatrix
    make: Callable[[], Method]
    rounds: int
    max_iter: int
    run: Run
    row_weights: Tensor | None = None
    class_weights: Tensor | None = None
    priors: Tensor | None = None

    @cached_property
    def ridge(self) -> RidgeTargets | None:
        """The targets of ridge regression, if that is the method and has a closed form here."""
        plain = self.row_weights is None and self.class_weights is None
        if not (isinstance(self.make(), Ridge) and plain and self.design.basis is not None):
            return None
        share = self._begun(None).get_buffer("share").to(self.design.dtype)
        return RidgeTargets.of(self.design, self.observed, share)

    def solve(
        self, C: float, start: Tensor, tolerance: float, *, left_out: Indices | None = None, run: Run | None = None
    ) -> Solution:
        """The solution of all rows; or of all but some, by a penalty that is as strong for each row."""
        design, strength = self.design, self.design.width / C
        if left_out is not None and len(left_out) == len(design):  # of no rows, which is what one row leaves
            return Solution(torch.zeros_like(start), 0, 0.0)
        if left_out is not None:
            strength *= 1 - len(left_out) / len(design)
        if self.ridge is not None:
            if left_out is None:
                return Solution(ridge_solution(design, self.ridge, strength), 1, 0.0)
            return Solution(ridge_without(design, self.ridge, strength, torch.from_numpy(left_out)), 1, 0.0)
        kept = None if left_out is None else np.delete(np.arange(len(design)), left_out)
        method = self._begun(kept)
        objective = Objective(
            design if kept is None else design.take(kept),
            method,
            self.observed.shape[1],
            strength=strength,
            run=run or self.run,
            row_weights=_taken(self.row_weights, kept),
            class_weights=self.class_weights,
        )
        steps = 0
        for number in range(1, self.rounds + 1):
            last = number == self.rounds
            tolerated = tolerance if last else max(tolerance, _LOOSE)
            most = self.max_iter if last else min(self.max_iter, _ROUND_STEPS)
            found = solve(objective, start, tolerance=tolerated, max_iter=most)
            start, steps = found.weights, steps + found.iterations
            if not last:
                objective.visit(start)
                method.end_epoch(number, objective.scores(start) if method.needs_scores else None)
        return replace(found, iterations=steps)

    def _begun(self, rows: Indices | None) -> Method:
        """The method, begun with the labels of all rows or of some."""
        method = self.make()
        labels = self.observed if rows is None else self.observed.take(rows)
        method.begin(as_observed(labels))
        if method.needs_priors and self.priors is not None:
            method.take_priors(self.priors)
        return method.eval()


def _taken(weights: Tensor | None, rows: Indices | None) -> Tensor | None:
    return weights if weights is None or rows is None else weights[torch.from_numpy(rows)]


def fit_linear(
    X: Any,
    observed: LabelMatrix,
    *,
    make: Callable[[], Method],
    rounds: int = 1,
    C: Strength = "auto",
    folds: int = FOLDS,
    groups: Indices | None = None,
    validation: ValidationRows | None = None,
    one_unit: bool = False,
    process: Process = "auto",
    asked: LabelMatrix | None = None,
    row_weights: NDArray[Any] | None = None,
    class_weights: NDArray[Any] | None = None,
    tolerance: float = _TIGHT,
    max_iter: int = 500,
    seed: int = 0,
    on_trial: Callable[[Trial], None] = lambda trial: None,
) -> LinearFit:
    """Solve for a linear classifier on features X (N, D), dense or sparse.

        minimise  Σ_rows loss(X W + b, observed)  +  D / 2C · ‖W‖²     columns in units of their own

    Args:
        X: as numpy or scipy.sparse.csr_array.
        observed: (N, L).
        make: a new method each time it is called.
        rounds: how often its targets are made anew; see `MethodInfo.rounds`.
        C: inverse strength of the penalty; "auto" tries some, and takes the one with the highest estimated mAP.
        folds: how many models give out-of-fold scores, each fitted without one part of the rows.
        groups: the group of each row, which no fold cuts apart.
        validation: rows to judge strengths by, in place of those that a fold leaves out.
        one_unit: whether columns keep their sizes relative to each other, as for `measure_columns`.
        process, asked: how labels came to be known, as for `onepair.probability.observation.recognise`.
        row_weights, class_weights: (N,) and (L,), how much each counts.
        tolerance: by how much scores may still change, in the root mean square.
        max_iter: steps of a solution at most.
        seed: of the folds.
        on_trial: is told of every strength that is tried.
    """
    rows = len(observed)
    with workers() as run:
        design = Design.of(X, one_unit=one_unit, run=run)
        weights = (
            None if each is None else torch.as_tensor(each).to(design.dtype) for each in (row_weights, class_weights)
        )
        problem = _Problem(design, observed, make, rounds, max_iter, run, *weights)
        search = _Search(problem, _folds(rows, folds, seed, groups), process, asked, validation, on_trial)
        search.estimate_priors()
        strength = search.best_strength() if C == "auto" else float(C)
        whole = search.solve_all(strength, tolerance)
        parts = search.solve_folds(range(search.parts), strength, tolerance)
    stacked = torch.stack([each.weights for each in (whole, *parts)])
    by_column = design.feature_weights(stacked[:, :-1]).numpy()
    # The mean row has the score of the intercept: by one for all folds, none of them scores higher than the others.
    level = stacked[1:, -1].mean(0, keepdim=True).expand(len(parts), -1)
    coef, intercept = design.columns.to_features(by_column, torch.cat([stacked[:1, -1], level]).numpy())
    kind = np.float64 if design.dtype == torch.float64 else np.float32
    coef, intercept = coef.astype(kind), intercept.astype(kind)
    return LinearFit(
        coef=coef[0],
        intercept=intercept[0],
        fold_coef=coef[1:],
        fold_intercept=intercept[1:],
        fold=search.fold,
        C=strength,
        priors=None if search.problem.priors is None else search.problem.priors.numpy(),
        trials=search.trials,
        iterations=whole.iterations,
        residual=whole.residual,
        converged=whole.residual <= tolerance,
    )


def _folds(rows: int, folds: int, seed: int, groups: Indices | None = None) -> Indices:
    """Which of so many folds each row is in; rows of a group are in one."""
    if groups is not None:
        return fold_groups(groups, folds=folds, seed=seed)
    fold = np.zeros(rows, np.intp)
    fold[np.random.RandomState(seed).permutation(rows)] = np.arange(rows) % max(1, min(folds, rows))
    return fold


class _Search:
    """Solutions by strength, each started from the one before; and which strength is best."""

    def __init__(
        self,
        problem: _Problem,
        fold: Indices,
        process: Process,
        asked: LabelMatrix | None,
        validation: ValidationRows | None,
        on_trial: Callable[[Trial], None],
    ) -> None:
        self.problem, self.fold, self.process, self.asked = problem, fold, process, asked
        self.validation, self.on_trial, self.trials = validation, on_trial, list[Trial]()
        self.parts = int(fold.max(initial=0)) + 1
        self.start = torch.zeros(problem.design.directions + 1, problem.observed.shape[1], dtype=problem.design.dtype)
        self.starts: dict[int, Tensor] = {}  # of the folds

    def solve_all(self, C: float, tolerance: float) -> Solution:
        """The solution of all rows."""
        found = self.problem.solve(C, self.start, tolerance)
        self.start = found.weights
        return found

    def solve_folds(self, parts: Sequence[int], C: float, tolerance: float) -> list[Solution]:
        """The solutions of all rows but those of a fold, of each of some folds."""

        def solution(part: int) -> Solution:
            start = self.starts.get(part, self.start)
            left_out = np.flatnonzero(self.fold == part)
            return self.problem.solve(C, start, tolerance, left_out=left_out, run=in_order if len(parts) > 1 else None)

        found = self.problem.run(solution, parts) if len(parts) > 1 else [solution(part) for part in parts]
        self.starts |= {part: each.weights for part, each in zip(parts, found, strict=True)}
        return found

    def estimate_priors(self) -> None:
        """Give a method that asks for class priors those by out-of-fold scores of a first solution."""
        if not self.problem.make().needs_priors:
            return
        rows = self._sample(max(_FEWEST_ROWS, _PRIOR_CELLS // self.problem.observed.shape[1]))
        labels = self.problem.observed.take(rows)
        if not labels.has(POSITIVE):
            return
        self.solve_all(FIRST_C, _LOOSE)
        scores = self._out_of_fold(FIRST_C, rows).numpy()
        asked = None if self.asked is None else self.asked[rows] == POSITIVE
        found = class_priors(scores, labels.dense(), process=self.process, asked=asked).value
        self.problem = replace(self.problem, priors=torch.from_numpy(found).float())

    def best_strength(self) -> float:
        """The C of the highest estimated mAP: from one to its neighbour as long as that is better."""
        judged: dict[int, float] = {}

        def at(step: int) -> float:
            if step not in judged:
                C = FIRST_C * _RATIO**step
                judged[step] = self._judge(C) if abs(step) <= _FARTHEST else -math.inf
                if math.isfinite(judged[step]):
                    self.trials.append(Trial(C, judged[step]))
                    self.on_trial(self.trials[-1])
            return judged[step]

        if not math.isfinite(at(0)):  # nothing to judge by
            return FIRST_C
        best = 0
        for direction in (1, -1):
            while at(best + direction) > at(best):
                best += direction
        return float(FIRST_C * _RATIO ** (best + _vertex(at(best - 1), at(best), at(best + 1))))

    def _judge(self, C: float) -> float:
        """The estimated mAP of a strength, by the validation rows or out of fold."""
        problem = self.problem
        if self.validation is not None:
            weights = self.solve_all(C, _LOOSE).weights
            by_column = problem.design.feature_weights(weights[:-1]).numpy()
            coef, intercept = problem.design.columns.to_features(by_column, weights[-1].numpy())
            scores, labels = np.asarray(self.validation.X @ coef.T + intercept), self.validation.labels
        else:
            classes = self._judged_classes
            rows = self._sample(_JUDGED_CELLS // len(classes))
            labels = problem.observed.take(rows).of_classes(classes)
            if problem.ridge is not None:
                targets, strength = problem.ridge.of_classes(classes), problem.design.width / C
                scores = leave_one_out(problem.design, targets, strength, torch.from_numpy(rows)).numpy()
            else:
                self.solve_all(C, _LOOSE)
                scores = self._out_of_fold(C, rows)[:, torch.from_numpy(classes)].numpy()
        return estimated_map_by_blocks(one_block(scores), labels) if labels.has(POSITIVE) else math.nan

    def _sample(self, most: int) -> Indices:
        """The rows of as many folds as are enough, or so many of them."""
        number = min(self.parts, -(-_ENOUGH_ROWS * self.parts // len(self.fold)))
        rows = np.flatnonzero(self.fold < number)
        return rows if len(rows) <= most else np.sort(np.random.default_rng(0).choice(rows, most, replace=False))

    @cached_property
    def _judged_classes(self) -> Indices:
        """The classes that a strength is judged by: all, or where they are many some that have positives."""
        positives = self.problem.observed.count(POSITIVE)
        if len(positives) <= _MOST_CLASSES:
            return np.arange(len(positives))
        common = np.flatnonzero(positives >= min(10, positives.max()))
        return np.sort(np.random.default_rng(0).permutation(common)[:_MOST_CLASSES])

    def _out_of_fold(self, C: float, rows: Indices) -> Tensor:
        """The scores (n, L) of rows, each by the solution without its fold, all on one level."""
        found = torch.empty(len(rows), self.problem.observed.shape[1], dtype=self.start.dtype)
        parts = np.unique(self.fold[rows]).tolist()
        for part, solution in zip(parts, self.solve_folds(parts, C, _LOOSE), strict=True):
            own, weights = np.flatnonzero(self.fold[rows] == part), solution.weights
            found[torch.from_numpy(own)] = self.problem.design.take(rows[own]).scores(weights[:-1], self.start[-1])
        return found


def _vertex(below: float, best: float, above: float) -> float:
    """Where between its neighbours, from -½ to ½ of a step, the highest of three values would have been.

    >>> _vertex(0.0, 1.0, 0.0), _vertex(0.0, 1.0, 1.0)
    (0.0, 0.5)
    """
    if not math.isfinite(below + above) or below + above == 2 * best:
        return 0.0
    return (above - below) / (2 * (2 * best - above - below))


def fit_kernel(
    X: Any,
    observed: LabelMatrix,
    *,
    landmarks: int = LANDMARKS,
    validation: ValidationRows | None = None,
    one_unit: bool = False,
    seed: int = 0,
    **options: Any,
) -> LinearFit:
    """Solve for a classifier on an RBF kernel between features X (N, D) and some of their rows.

        φ(x) = k(x, Z) k(Z, Z)^-½,   k(x, z) = exp(-|x - z|² / (2 · median |z - z'|²)),   columns in units of their own

    Args:
        X, observed, validation, one_unit, seed: as for `fit_linear`.
        landmarks: how many rows Z are drawn, at most.
        options: others of `fit_linear`.

    Returns:
        The solution as weights of the kernel: `scores = kernel(X) @ coef.T + intercept`.

    Raises:
        ConfigError: X is sparse, or has too many rows.
    """
    rows, landmarks = len(observed), min(landmarks, len(observed))
    if issparse(X):
        raise ConfigError("a kernel head needs the distances between all rows, and X is sparse; choose a linear head")
    if rows * landmarks > _MOST_CELLS:
        raise ConfigError(
            f"a kernel head has {landmarks:,} numbers for each of {rows:,} rows, and there can be {_MOST_CELLS:,}; "
            "choose a linear head"
        )
    with workers() as run:
        kernel = _kernel_of(X, np.sort(np.random.default_rng(seed).choice(rows, landmarks, replace=False)), one_unit)
        values, vectors = torch.linalg.eigh(torch.exp(-_squared_distances(kernel.landmarks.double())))
        kept = values > _LEAST * values.max()
        whiten = (vectors[:, kept] / values[kept].sqrt()).to(kernel.scale.dtype)

        def features(some: Any) -> NDArray[np.floating]:
            parts = torch.split(torch.from_numpy(some), _ROWS)
            found: NDArray[np.floating] = torch.cat(run(lambda part: kernel(part) @ whiten, parts)).numpy()
            return found

        X = features(X)
        if validation is not None:
            validation = ValidationRows(features(validation.X), validation.labels)
    found = fit_linear(X, observed, validation=validation, one_unit=True, seed=seed, **options)
    coef, fold_coef = (each @ whiten.numpy().T for each in (found.coef, found.fold_coef))
    return replace(found, coef=coef, fold_coef=fold_coef, kernel=kernel)


def _kernel_of(X: Any, landmarks: Indices, one_unit: bool) -> Kernel:
    """The kernel of columns in units of their own, as wide as its landmarks are apart."""
    columns = measure_columns(X, one_unit=one_unit)
    centres = torch.from_numpy((X[landmarks] - columns.centre) / columns.unit)
    apart = _squared_distances(centres)[tuple(torch.triu_indices(len(centres), len(centres), 1))]
    width = (_WIDTH * float(apart.median()) if len(apart) else 0.0) or 1.0
    centre, scale = torch.from_numpy(columns.centre), torch.from_numpy(1 / columns.unit) / width**0.5
    return Kernel(centre, scale, centres / width**0.5).to(torch.float64 if X.dtype == np.float64 else torch.float32)


def _squared_distances(points: Tensor) -> Tensor:
    squares = points.square().sum(1)
    return (squares[:, None] + squares - 2 * points @ points.T).clamp(min=0)
