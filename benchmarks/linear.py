"""Fixed features: the solver against scikit-learn's one-vs-rest logistic regression, ridge and SGD.

    python benchmarks/linear.py DATA_FOLDER [--sets coco80 voc2012] [--rows 2000] [--out results/linear.csv]

DATA_FOLDER holds voc2012, coco80.npz, and the folder tabular. Of every training row one positive is known, the rest is
unknown, which scikit-learn's estimators take for negative. Each fits all training rows and gives out-of-fold scores of
them, by five folds, on standardised columns, with a penalty that is given: C = 3, and what it comes to for the others.
`fit_linear` with the default method also chooses its penalty. Times are ratios to the latter.

Then, in the same run: `train` and `find` of 2,000 × 1,280 × 80 on features at hand, over five fits with a given
penalty; the same with four busy processes beside it; and 1, 2 and 4 threads, whose scores must not differ.
"""

import argparse
import csv
import multiprocessing
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from linear_methods import hide, read
from numpy.typing import NDArray
from real_sets import Data
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, Ridge, SGDClassifier
from sklearn.model_selection import KFold
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from onepair import mean_average_precision
from onepair.label_matrix import LabelMatrix
from onepair.labels import NEGATIVE, Labels
from onepair.linear.fit import LinearFit, fit_linear
from onepair.methods import create_method
from onepair.probability import fit_decisions
from onepair.probability.cell_posterior import judge

SETS = ("coco80", "voc2012", "scene", "yeast", "mirflickr7")
METHOD, C = "opml-plus", 3.0
FIELDS = ("set", "estimator", "map", "seconds", "ratio")


def ours(data: Data, observed: Labels, penalty: float | None, method: str = METHOD) -> LinearFit:
    return fit_linear(
        data.features, LabelMatrix.of(observed), make=lambda: create_method(method), C="auto" if penalty is None else C
    )


def rivals(rows: int, width: int) -> dict[str, Any]:
    """scikit-learn's estimators, with penalties that are about as strong as C = 3."""
    strength = width / C
    return {
        "logistic": OneVsRestClassifier(LogisticRegression(C=1 / strength, max_iter=200)),
        "ridge": Ridge(alpha=10 * strength),
        "SGD": OneVsRestClassifier(SGDClassifier(loss="log_loss", alpha=strength / rows, random_state=0)),
    }


def theirs(data: Data, labels: Labels, estimator: Any) -> NDArray[Any]:
    """Fit all rows and score them out of fold; test scores."""
    scores = np.empty(labels.shape)
    for kept, left_out in KFold(5, shuffle=True, random_state=0).split(labels):
        fold = clone(estimator).fit(data.features[kept], labels[kept])
        scores[left_out] = _scores(fold, data.features[left_out])
    return _scores(estimator.fit(data.features, labels), data.test_features)


def _scores(estimator: Any, features: Any) -> NDArray[Any]:
    found: NDArray[Any] = (
        estimator.decision_function if hasattr(estimator, "decision_function") else estimator.predict
    )(features)
    return found


def timed(compute: Callable[[], Any]) -> tuple[Any, float]:
    began = time.perf_counter()
    return compute(), time.perf_counter() - began


def compare(data: Data, name: str) -> list[dict[str, str]]:
    """Rows of the table for a set."""
    observed, rows = hide(data.labels, "single", 0), []
    measured = {}
    for title, penalty in (("chosen", None), ("given", C)):
        found, seconds = timed(partial(ours, data, observed, penalty))
        measured[f"onepair, {title}"] = data.test_features @ found.coef.T + found.intercept, seconds
    for title, plain in rivals(*data.features.shape).items():
        estimator = make_pipeline(StandardScaler(), plain)
        measured[title] = timed(partial(theirs, data, np.maximum(observed, NEGATIVE), estimator))
    base = measured["onepair, chosen"][1]
    for title, (scores, seconds) in measured.items():
        value = mean_average_precision(scores, data.test_labels).value
        row = (name, title, f"{100 * value:.2f}", f"{seconds:.2f}", f"{seconds / base:.2f}")
        rows.append(dict(zip(FIELDS, row, strict=True)))
        print("  ".join(f"{each:>15}" for each in row), flush=True)
    return rows


def train_and_find(data: Data, observed: Labels) -> None:
    """What `onepair train` and `onepair find` compute once features are at hand."""
    found = ours(data, observed, None)
    scores = found.out_of_fold(data.features)
    fit_decisions(scores, observed)
    judge(observed, scores)


def _busy() -> None:
    while True:
        sum(range(10_000))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--sets", nargs="*", default=SETS)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--out", type=Path, default=Path("results/linear.csv"))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = [row for name in options.sets for row in compare(read(options.data, name, options.rows), name)]
    if rows:
        with options.out.open("w", newline="") as file:
            writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    data = read(options.data, "coco80", 2000)
    observed = hide(data.labels, "single", 0)
    _, five = timed(lambda: [ours(data, observed, C, "opml-ls") for _ in range(5)])
    began = time.process_time()
    _, quiet = timed(lambda: train_and_find(data, observed))
    print(
        f"train and find of 2,000 × 1,280 × 80: {quiet / five:.1f} × five fits with folds and a given penalty,", end=" "
    )
    print(f"{quiet:.1f} s, {time.process_time() - began:.1f} CPU s")
    busy = [multiprocessing.Process(target=_busy, daemon=True) for _ in range(4)]
    for each in busy:
        each.start()
    _, loaded = timed(lambda: train_and_find(data, observed))
    for each in busy:
        each.terminate()
    print(f"with four busy processes beside it: {loaded / quiet:.1f} × the quiet time")
    threads, scores = torch.get_num_threads(), []
    for number in (1, 2, 4):
        torch.set_num_threads(number)
        found = ours(data, observed, None)
        scores.append(data.test_features @ found.coef.T + found.intercept)
    torch.set_num_threads(threads)
    off = max(float(np.abs(each - scores[0]).max()) for each in scores)
    print(f"1, 2 and 4 threads: scores differ by {off} at most")


if __name__ == "__main__":
    main()
