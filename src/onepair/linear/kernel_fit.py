"""Classifiers that bend: Nyström features of an RBF kernel, on the solver of linear ones."""
# ruff: noqa: N803, N806 (X is the name that users of scikit-learn know)

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import issparse
from torch import Tensor

from onepair.errors import ConfigError
from onepair.label_matrix import LabelMatrix
from onepair.labels import Indices
from onepair.linear.design import measure_columns
from onepair.linear.fit import LinearFit, ValidationRows, fit_linear
from onepair.linear.solver import workers
from onepair.models.kernel import Kernel

LANDMARKS = 2000
_MOST_CELLS = 2**28  # rows × landmarks: 1 GB, and the solver has two more of it
_ROWS = 1024  # that a thread computes with
_WIDTH = 2.0  # of the kernel, in medians of the squared distances between landmarks
_LEAST = 1e-6  # eigenvalue of the kernel of the landmarks, relative to the highest


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
