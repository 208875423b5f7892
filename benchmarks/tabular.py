"""OPMLClassifier on tabular sets from one positive per row, against logistic regression and nearest neighbours.

    python benchmarks/tabular.py DATA_FOLDER [--sets emotions yeast] [--out results/tabular.csv]

DATA_FOLDER holds a file NAME.npz for each set: X (rows, features), Y (rows, classes) of 0 and 1, and perhaps split, for
each row "train" or "test"; without it, 70 % of a random permutation train. All contestants get the same features: dense
ones standardised, sparse ones scaled to rows of length 1. Each is measured as it comes, then with the best of six
settings on validation, a fifth of the training rows with all their labels. Test mAP is the mean over three draws of the
one positive; times are seconds of one processor to fit and to score the test rows, the best of the three.
"""

import argparse
import csv
import io
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import Normalizer, StandardScaler
from threadpoolctl import threadpool_limits

from onepair import OPMLClassifier, mean_average_precision, observe_positives, split_validation
from onepair.files import write_atomically
from onepair.labels import Labels

SETS = ("emotions", "scene", "yeast", "mirflickr7", "medical", "enron", "arts", "science", "corel5k", "bibtex")
SEEDS = (1200, 1201, 1202)
SPARSE = 0.2  # share of entries that are not 0, below which features are sparse


class Data(NamedTuple):
    """Features and full labels, to train and to test."""

    features: Any
    labels: Labels
    test_features: Any
    test_labels: Labels


class Contestant(NamedTuple):
    """A model with options, how it is fitted to observed labels, and the settings to choose from on validation."""

    make: Callable[..., Any]
    settings: Sequence[dict[str, Any]]
    assumes_negative: bool = True


def one_vs_rest(**options: Any) -> Any:
    return OneVsRestClassifier(LogisticRegression(max_iter=2000, **options))


def nearest(**options: Any) -> Any:
    return KNeighborsClassifier(**{"n_neighbors": 10, **options})


CONTESTANTS = {
    "one-vs-rest": Contestant(one_vs_rest, [{"C": C} for C in (0.003, 0.01, 0.1, 1, 3, 10)]),
    "k-NN": Contestant(nearest, [{"n_neighbors": k} for k in (5, 10, 20, 40, 80, 160)]),
    "OPML": Contestant(
        OPMLClassifier,
        [{"C": C, "method": method} for C in (1, 3, 10) for method in ("opml-plus", "opml-ls")],
        assumes_negative=False,
    ),
}


def read(path: Path) -> Data:
    """A set, split and scaled."""
    with np.load(path, allow_pickle=False) as file:
        features, labels = file["X"], file["Y"].astype(np.int8)
        split = file.get("split")
    classes = labels.shape[1]
    if features.shape[1] > classes and np.array_equal(features[:, -classes:], labels):
        print(f"{path.name}: the last {classes} features are the labels themselves, and are left out", flush=True)
        features = features[:, :-classes]
    if split is None:
        order = np.random.RandomState(0).permutation(len(features))
        train, test = np.split(order, [round(0.7 * len(order))])
    else:
        train, test = np.flatnonzero(split == "train"), np.flatnonzero(split == "test")
    is_sparse = (features != 0).mean() < SPARSE
    given = csr_array(features) if is_sparse else features
    scaler = (Normalizer() if is_sparse else StandardScaler()).fit(given[train])
    return Data(scaler.transform(given[train]), labels[train], scaler.transform(given[test]), labels[test])


class Outcome(NamedTuple):
    test_map: float
    fit_seconds: float
    score_seconds: float


def run(contestant: Contestant, options: dict[str, Any], data: Data, observed: Labels) -> Outcome:
    # Labels of one-vs-rest are int64: with int8 it confuses the classes after the 127th.
    targets = np.maximum(observed, 0).astype(np.int64) if contestant.assumes_negative else observed
    model = contestant.make(**options)
    start = time.process_time()
    model.fit(data.features, targets)
    fitted = time.process_time()
    scores = score(model, data.test_features)
    end = time.process_time()
    return Outcome(100 * mean_average_precision(scores, data.test_labels).value, fitted - start, end - fitted)


def score(model: Any, features: Any) -> NDArray[Any]:
    if hasattr(model, "decision_function"):
        return np.asarray(model.decision_function(features))
    # One matrix (rows, 2) for each class; (rows, 1) for a class that was never seen.
    return np.stack([each[:, 1] if each.shape[1] > 1 else 0 * each[:, 0] for each in model.predict_proba(features)], 1)


def choose(contestant: Contestant, data: Data) -> dict[str, Any]:
    """The setting with the best mAP on validation rows, whose labels are all known."""
    train, validation = split_validation(data.labels.shape[0])
    part = Data(data.features[train], data.labels[train], data.features[validation], data.labels[validation])
    observed = observe_positives(part.labels, seed=SEEDS[0])
    return max(contestant.settings, key=lambda options: run(contestant, options, part, observed).test_map)


def compare(name: str, data: Data) -> list[dict[str, Any]]:
    draws = [observe_positives(data.labels, seed=seed) for seed in SEEDS]
    rows = []
    for model, contestant in CONTESTANTS.items():
        chosen = choose(contestant, data)
        for setting, options, observed in (
            ("default", {}, draws),
            ("tuned", chosen, draws),
            ("all labels", {}, [data.labels]),
        ):
            outcomes = [run(contestant, options, data, labels) for labels in observed]
            maps = [outcome.test_map for outcome in outcomes]
            rows.append(
                {
                    "set": name,
                    "rows": data.labels.shape[0],
                    "features": data.features.shape[1],
                    "classes": data.labels.shape[1],
                    "positives_per_row": f"{data.labels.sum(1).mean():.2f}",
                    "sparse": issparse(data.features),
                    "model": model,
                    "setting": setting,
                    "options": " ".join(f"{key}={value}" for key, value in options.items()),
                    "test_map": f"{statistics.mean(maps):.2f}",
                    "std": f"{statistics.stdev(maps) if len(maps) > 1 else 0:.2f}",
                    "fit_seconds": f"{min(outcome.fit_seconds for outcome in outcomes):.3f}",
                    "score_seconds": f"{min(outcome.score_seconds for outcome in outcomes):.3f}",
                }
            )
    return rows


def table(results: list[dict[str, Any]], setting: str) -> str:
    """Markdown: test mAP of each contestant, the best in bold, and the milliseconds that it took."""
    names = list(CONTESTANTS)
    lines = [
        f"| {setting} | {' | '.join(names)} | {' | '.join(f'ms, {name}' for name in names)} |",
        "|---" * (1 + 2 * len(names)) + "|",
    ]
    for name in dict.fromkeys(row["set"] for row in results):
        rows = [row for row in results if (row["set"], row["setting"]) == (name, setting)]
        best = max(float(row["test_map"]) for row in rows)
        maps = [f"**{row['test_map']}**" if float(row["test_map"]) == best else row["test_map"] for row in rows]
        times = [f"{1000 * (float(row['fit_seconds']) + float(row['score_seconds'])):,.0f}" for row in rows]
        lines.append(f"| {' | '.join([name, *maps, *times])} |")
    return "\n".join(lines)


def write(path: Path, records: list[dict[str, Any]]) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, records[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    write_atomically(path, text.getvalue().encode())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--sets", nargs="*", default=SETS)
    parser.add_argument("--out", type=Path, default=Path("results/tabular.csv"))
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", "Label .* is present in all", UserWarning)  # a class that no row has observed
    results: list[dict[str, Any]] = []
    with threadpool_limits(1):
        for name in arguments.sets:
            results += compare(name, read(arguments.data / f"{name}.npz"))
            write(arguments.out, results)
            print(f"{name} done", flush=True)
    for setting in ("default", "tuned", "all labels"):
        print("\n" + table(results, setting))


if __name__ == "__main__":
    main()
