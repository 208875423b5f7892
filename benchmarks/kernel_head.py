"""A kernel head: Nyström features of an RBF kernel against linear ones, on the same solver.

    python benchmarks/kernel_head.py DATA_FOLDER [--sets voc2012 coco80] [--scales columns rows] [--factors 1 2 4]
        [--landmarks 1000] [--draws 3] [--rows 8000] [--out results/kernel_head.csv]

DATA_FOLDER is that of linear_methods.py. Features x are scaled, either each column by its standard deviation or each
row to length 1, and then  φ(x) = k(x, Z) k(Z, Z)^-½,  k(x, z) = exp(-|x - z|² / (factor · median |x - z|²)),  with as
many random training rows Z as landmarks. Both are fitted by `fit_linear` with a penalty that chooses itself. What is in
the file is not measured anew.
"""

import argparse
import csv
import time
import warnings
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from linear_methods import hide, read
from numpy.typing import NDArray
from real_sets import Data, write_csv
from scipy.linalg import eigh
from scipy.sparse import issparse

from onepair import mean_average_precision
from onepair.label_matrix import LabelMatrix
from onepair.linear.fit import fit_linear
from onepair.methods import create_method

FIELDS = ("set", "rows", "known", "draw", "method", "scale", "factor", "landmarks", "map", "penalty", "seconds")


def nystroem(data: Data, scale: str, factor: float, landmarks: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Features of training and test rows."""
    train, test = (x.toarray() if issparse(x) else x for x in (data.features, data.test_features))
    if scale == "rows":
        train, test = (x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12) for x in (train, test))
    else:
        mean, spread = train.mean(0), train.std(0)
        train, test = ((x - mean) / np.where(spread > 1e-6, spread, np.inf) for x in (train, test))
    rng = np.random.default_rng(0)
    centres = train[np.sort(rng.choice(len(train), min(landmarks, len(train)), replace=False))]
    between = squared_distances(centres, centres)
    bandwidth = factor * np.median(between[np.triu_indices(len(centres), 1)])
    values, vectors = eigh(np.exp(-between / bandwidth).astype(np.float64))
    kept = values > 1e-6 * values.max()
    whiten = (vectors[:, kept] / np.sqrt(values[kept])).astype(np.float32)
    found = [np.exp(-squared_distances(x, centres) / bandwidth) @ whiten for x in (train, test)]
    return found[0], found[1]


def squared_distances(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    found: NDArray[Any] = np.maximum((a * a).sum(1)[:, None] + (b * b).sum(1) - 2 * a @ b.T, 0)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--sets", nargs="+", default=("voc2012", "coco80"))
    parser.add_argument("--known", nargs="+", default=("single", "all"))
    parser.add_argument("--methods", nargs="+", default=("opml-plus", "bce"))
    parser.add_argument("--scales", nargs="+", default=("columns", "rows"))
    parser.add_argument("--factors", nargs="+", type=float, default=(1.0, 2.0, 4.0))
    parser.add_argument("--landmarks", nargs="+", type=int, default=(1000,))
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--rows", type=int, default=8000)
    parser.add_argument("--out", type=Path, default=Path("results/kernel_head.csv"))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows: list[dict[str, str]] = []
    if options.out.exists():
        with options.out.open(newline="") as file:
            rows = list(csv.DictReader(file))
    done = {tuple(row[field] for field in FIELDS[:8]) for row in rows}
    heads = [("linear", 0.0, 0), *product(options.scales, options.factors, options.landmarks)]
    for name in options.sets:
        data = read(options.data, name, options.rows)
        for (scale, factor, landmarks), known, method in product(heads, options.known, options.methods):
            train, test = data.features, data.test_features
            began, bent = time.perf_counter(), 0.0
            for draw in range(options.draws if known == "single" else 1):
                cell = (name, str(len(data.labels)), known, str(draw), method, scale, f"{factor:g}", str(landmarks))
                if cell in done:
                    continue
                if scale != "linear" and not bent:
                    train, test = nystroem(data, scale, factor, landmarks)
                    bent = time.perf_counter() - began
                observed = LabelMatrix.of(hide(data.labels, known, draw))
                began = time.perf_counter()
                found = fit_linear(train, observed, make=partial(create_method, method), one_unit=scale != "linear")
                seconds = time.perf_counter() - began + bent
                value = mean_average_precision(test @ found.coef.T + found.intercept, data.test_labels).value
                told = (*cell, f"{value:.6f}", f"{1 / found.C:.4g}", f"{seconds:.2f}")
                rows.append(dict(zip(FIELDS, told, strict=True)))
                print("  ".join(f"{each:>9}" for each in told), flush=True)
                write_csv(options.out, rows)


if __name__ == "__main__":
    main()
