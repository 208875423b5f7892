"""Methods with equal solvers and penalties: from one positive per row to all labels. Which one is the default?

    python benchmarks/linear_methods.py DATA_FOLDER [--sets voc2012 emotions] [--methods opml-plus bce] [--draws 3]
        [--rows 2000] [--out results/linear_methods.csv]

DATA_FOLDER holds voc2012, coco80.npz, cub312.npz and the folder tabular. Every method is fitted by `fit_linear`: all
training rows, columns in units of their own, the penalty by estimated mAP out of fold; options are the defaults. Where
a set names no test rows, three tenths are. Labels of training rows are hidden by four processes: one positive of each
row; a tenth and three tenths of all labels known; and none hidden. Sets of more training rows than --rows are cut to so
many. What is in the file is not measured anew; benchmarks/tables.py makes tables of it.
"""

import argparse
import csv
import time
import warnings
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from real_sets import SPARSE, Data, read_voc_rows, write_csv
from scipy.sparse import csr_array

from onepair import mean_average_precision, observe_fraction, observe_positives
from onepair.label_matrix import LabelMatrix
from onepair.labels import UNKNOWN, Labels
from onepair.linear.fit import fit_linear
from onepair.methods import METHODS, create_method

TABLES = ("arts", "bibtex", "corel5k", "emotions", "enron", "medical", "mirflickr7", "scene", "science", "yeast")
SETS = ("voc2012", "coco80", "cub312", *TABLES)
FAST = ("opml-plus", "opml-ls", "bce", "bce-known", "ridge", "entmax", "opml", "zlpr")
SLOW = ("gr", "opml-sp", "ll-r", "role")
KNOWN = ("single", "10 %", "30 %", "all")
FIELDS = ("set", "known", "draw", "method", "map", "penalty", "seconds")


def read(folder: Path, name: str, rows: int) -> Data:
    """A set by its name, with at most so many training rows."""
    if name == "voc2012":
        features, labels, split = read_voc_rows(folder / name)
    else:
        path = folder / (f"{name}.npz" if name in ("coco80", "cub312") else f"tabular/{name}.npz")
        with np.load(path, allow_pickle=False) as file:
            features, labels = file["X"], file["Y"].astype(np.int8)
            split = file.get("split")
    if split is None:
        order = np.random.RandomState(0).permutation(len(labels))
        split = np.full(len(labels), "train")
        split[order[round(0.7 * len(labels)) :]] = "test"
    train, test = np.flatnonzero(split == "train"), np.flatnonzero(split != "train")
    if len(train) > rows:
        train = np.sort(np.random.RandomState(0).choice(train, rows, replace=False))
    matrix = features.astype(np.float32)
    if (features != 0).mean() < SPARSE:
        matrix = csr_array(matrix)
    return Data(matrix[train], labels[train], matrix[test], labels[test])


def hide(labels: Labels, known: str, draw: int) -> Labels:
    """What is seen of full labels; those of CUB have one positive a row already."""
    if known == "all" or (labels == UNKNOWN).any():
        return labels
    if known == "single":
        return observe_positives(labels, seed=1200 + draw)
    return observe_fraction(labels, known=float(known.split()[0]) / 100, seed=1200 + draw)


def measure(data: Data, observed: Labels, method: str) -> tuple[float, float, float]:
    """Test mAP, the penalty, and the seconds that the fit and out-of-fold scores took."""
    info = METHODS[method]
    options = info.run_options(epochs=info.rounds)
    began = time.perf_counter()
    found = fit_linear(
        data.features, LabelMatrix.of(observed), make=lambda: create_method(method, **options), rounds=info.rounds
    )
    seconds = time.perf_counter() - began
    scores: NDArray[Any] = data.test_features @ found.coef.T + found.intercept
    return mean_average_precision(scores, data.test_labels).value, 1 / found.C, seconds


def cells(sets: Sequence[str], methods: Sequence[str], draws: int) -> Iterator[tuple[str, str, int, str]]:
    """All that is measured, what matters most first."""
    for draw in range(draws):
        for name, known, method in product(sets, KNOWN, methods):
            if (known == "all" and draw > 0) or (name == "cub312" and (known != "single" or draw > 0)):
                continue  # nothing is drawn
            yield name, known, draw, method


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--sets", nargs="+", default=SETS, choices=SETS)
    parser.add_argument("--methods", nargs="+", default=(*FAST, *SLOW), choices=sorted(METHODS))
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--out", type=Path, default=Path("results/linear_methods.csv"))
    options = parser.parse_args()
    rows: list[dict[str, str]] = []
    if options.out.exists():
        with options.out.open(newline="") as file:
            rows = list(csv.DictReader(file))
    done = {(row["set"], row["known"], int(row["draw"]), row["method"]) for row in rows}
    at_hand: dict[str, Data] = {}
    for cell in cells(options.sets, options.methods, options.draws):
        if cell in done:
            continue
        name, known, draw, method = cell
        if name not in at_hand:
            at_hand = {name: read(options.data, name, options.rows)}
        observed = hide(at_hand[name].labels, known, draw)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value, penalty, seconds = measure(at_hand[name], observed, method)
        row = dict(zip(FIELDS, (*map(str, cell), f"{value:.6f}", f"{penalty:.4g}", f"{seconds:.2f}"), strict=True))
        rows.append(row)
        print(f"{name:10} {known:6} {draw} {method:10} mAP {100 * value:6.2f}  {seconds:5.1f} s", flush=True)
        write_csv(options.out, rows)


if __name__ == "__main__":
    main()
