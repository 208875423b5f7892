"""Can what `find` says be trusted? Its ranks, its probabilities and its counts, for labels as people give them.

    python benchmarks/trust.py DATA_FOLDER --cache FOLDER [--sets coco80 ccp] [--draws 3] [--out results/trust.csv]

DATA_FOLDER holds voc2012 with boxes.csv, coco80.npz, cub312.npz, ccp and the folder tabular. Features of ccp are read
from FOLDER/ccp.npy: `onepair features DATA_FOLDER/ccp/labels.csv --out FOLDER/ccp.npy`. A draw is 2,000 random rows at
most, whose labels are hidden by a process; `fit_linear` with the default method gives out-of-fold scores, and `judge`
what `find` would say. Of the first 100, 500 and 2,000 suggestions the share that is right is compared with that of the
raw scores. What shows clearly, and is tagged sooner, is what a ridge regression on all labels scores high out of fold.
With --full, so many of the rows have all labels, as after an audit.

What had to be chosen was chosen on the rows or sets of the first half; the other half confirms it.
"""

import argparse
import csv
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from hiding import BY_SIZE, PROCESSES, SALIENT, Process, missing, positives_at_random, three_tags
from linear_methods import read as read_split
from numpy.typing import NDArray
from real_sets import TABLES, read_voc_rows, write_csv
from threadpoolctl import threadpool_limits

from onepair.data.formats.voc import read as read_voc
from onepair.label_matrix import LabelMatrix
from onepair.labels import POSITIVE, UNKNOWN, Labels
from onepair.linear.fit import fit_linear
from onepair.methods import METHODS, create_method
from onepair.metrics import Floats
from onepair.probability.cell_posterior import judge

TOPS = (100, 500, 2_000)
ROWS = 2_000
SETS = ("coco80", "voc2012", "ccp", "cub312", *TABLES)
CHOSEN_ON = TABLES[::2]
WAYS: dict[str, Process] = {
    "single positive": PROCESSES["single positive"],
    "positives kept": Process(
        lambda truth, scores, setting, random: positives_at_random(truth, scores, setting, random), (0.4,)
    ),
    "three tags": Process(three_tags, (0.5,)),
    **SALIENT,
    **BY_SIZE,
}


class Data(NamedTuple):
    features: Any  # (N, D)
    labels: Labels  # (N, L), all known
    sizes: Floats | None = None  # (N, L), the largest object of each class, as a share of its picture


class Case(NamedTuple):
    data: str
    half: str  # "chosen" or "confirmed"
    process: str
    setting: float
    draw: int


def read(folder: Path, cache: Path, name: str) -> Data:
    """A set by its name, with all rows whose labels are all known."""
    if name == "voc2012":
        features, labels, _ = read_voc_rows(folder / name)
        return Data(features.astype(np.float32), labels, _sizes(folder / name, labels.shape))
    if name == "ccp":
        with (folder / name / "labels.csv").open(newline="", encoding="utf-8") as file:
            labels = np.array([row[1:] for row in list(csv.reader(file))[1:]], np.int8)
        return Data(np.load(cache / "ccp.npy").astype(np.float32), labels)
    found = read_split(folder, name, 10**9)
    if name == "cub312":
        return Data(found.test_features, found.test_labels)
    if isinstance(found.features, np.ndarray):
        return Data(
            *(
                np.concatenate(each)
                for each in ((found.features, found.test_features), (found.labels, found.test_labels))
            )
        )
    return Data(found.features, found.labels)


def _sizes(folder: Path, shape: tuple[int, int]) -> Floats:
    """The largest object of each class, rows in the order of all file names."""
    table = read_voc(folder / "VOCdevkit")
    row_of = {name: row for row, name in enumerate(sorted(Path(file).name for file in table.files))}
    column_of = {name: column for column, name in enumerate(table.classes)}
    sizes = np.zeros(shape)
    with (folder / "boxes.csv").open(newline="", encoding="utf-8") as file:
        for box in csv.DictReader(file):
            left, top, right, bottom = (float(box[name]) for name in ("xmin", "ymin", "xmax", "ymax"))
            row, column = row_of[box["file"]], column_of[box["class"]]
            sizes[row, column] = max(sizes[row, column], (right - left) * (bottom - top))
    return sizes


def cases(name: str, data: Data, ways: Sequence[str], draws: int) -> Iterator[Case]:
    for draw in range(draws):
        for way in ways:
            if way in BY_SIZE and data.sizes is None:
                continue
            half = "chosen" if (name in CHOSEN_ON if name in TABLES else draw % 2 == 0) else "confirmed"
            settings = WAYS[way].settings
            for setting in settings:
                yield Case(name, half, way, setting, draw)


def rows_of(case: Case, data: Data) -> NDArray[np.intp]:
    """Random rows with a positive, of the half of the set that is the case's, if the set has enough for two."""
    rows = np.flatnonzero((data.labels == POSITIVE).any(1))
    rows = np.random.default_rng(0).permutation(rows)
    if case.data not in TABLES and len(rows) >= 2 * ROWS:
        rows = rows[(case.half == "confirmed") :: 2]
    return np.sort(np.random.default_rng(case.draw).permutation(rows)[:ROWS])


def scores_of(features: Any, observed: Labels, method: str = "opml-plus") -> Floats:
    """Out-of-fold scores of the default method, or another."""
    info = METHODS[method]
    options = info.run_options(epochs=info.rounds)
    made = lambda: create_method(method, **options)  # noqa: E731
    fit = fit_linear(features, LabelMatrix.of(observed), make=made, rounds=info.rounds)
    return fit.out_of_fold(features).astype(np.float64)


def prepare(case: Case, data: Data, cache: Path, full: int) -> tuple[Floats, Labels, Labels]:
    """Scores, observed labels and the truth; fits are kept in the cache."""
    rows = rows_of(case, data)
    features, truth = data.features[rows], data.labels[rows]
    present = truth.sum(0) >= 2
    truth = truth[:, present]
    path = cache / f"{case.data}-{case.process}-{case.setting:g}-{case.draw}-{full}.npz".replace(" ", "_")
    if path.exists():
        with np.load(path) as file:
            return file["scores"].astype(np.float64), file["observed"], truth
    clear = np.zeros(truth.shape)
    if case.process in BY_SIZE and data.sizes is not None:
        clear = data.sizes[rows][:, present]
    elif case.process in SALIENT:
        clear = scores_of(features, truth, "ridge")
    random = np.random.default_rng(100 + case.draw)
    observed = WAYS[case.process].hide(truth, clear, case.setting, random).observed
    audited = random.permutation(len(rows)) < full
    observed = np.where(audited[:, None], truth, observed).astype(np.int8)
    scores = scores_of(features, observed)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, scores=scores.astype(np.float32), observed=observed)
    return scores, observed, truth


def measure(case: Case, scores: Floats, observed: Labels, truth: Labels) -> dict[str, Any]:
    found = judge(observed, scores)
    unknown = observed == UNKNOWN
    right, probabilities = truth[unknown] == POSITIVE, found.probabilities[unknown]
    order, raw = (np.argsort(-each, kind="stable") for each in (probabilities, scores[unknown]))
    row: dict[str, Any] = {**case._asdict(), "classes": truth.shape[1], "missing": int(right.sum())}
    for top in TOPS:
        there = top <= right.sum()  # more cannot be right
        row |= {
            f"find@{top}": 100 * right[order[:top]].mean() if there else np.nan,
            f"raw@{top}": 100 * right[raw[:top]].mean() if there else np.nan,
            f"said@{top}": 100 * probabilities[order[:top]].mean() if there else np.nan,
        }
    true = missing(truth, observed)
    holes, rare = unknown.any(0), (observed == POSITIVE).sum(0) <= 5
    holds = (np.round(found.missing.low) <= true) & (true <= np.round(found.missing.high))
    value, low, high = (float(each) for each in found.total)
    return row | {
        "estimated": value,
        "low": low,
        "high": high,
        "total_holds": int(round(low) <= true.sum() <= round(high)),
        "classes_hold": 100 * holds[holes].mean(),
        "rare_hold": 100 * holds[holes & rare].mean() if (holes & rare).any() else np.nan,
    }


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Markdown: means over the draws."""
    head = ["set", "process", "half", "n", *(f"first {top}: find / raw / said" for top in TOPS)]
    head += ["missing", "estimated", "low", "high", "totals hold", "classes hold", "rare hold"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for key in dict.fromkeys((row["data"], row["process"], row["setting"], row["half"]) for row in rows):
        group = [row for row in rows if (row["data"], row["process"], row["setting"], row["half"]) == key]
        mean = {
            name: np.mean([row[name] for row in group]) for name in group[0] if isinstance(group[0][name], int | float)
        }
        tops = [" / ".join(f"{mean[f'{what}@{top}']:.1f}" for what in ("find", "raw", "said")) for top in TOPS]
        counts = [f"{mean[name]:,.0f}" for name in ("missing", "estimated", "low", "high")]
        holds = [f"{100 * mean['total_holds']:.0f}", f"{mean['classes_hold']:.0f}", f"{mean['rare_hold']:.0f}"]
        cells = [key[0], f"{key[1]} {key[2]:g}", key[3], str(len(group)), *tops, *counts, *holds]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--sets", nargs="*", default=SETS, choices=SETS)
    parser.add_argument("--ways", nargs="*", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("--full", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("results/trust.csv"))
    arguments = parser.parse_args()
    rows = []
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in arguments.sets:
            data = read(arguments.data, arguments.cache, name)
            for case in cases(name, data, arguments.ways, arguments.draws):
                rows.append(measure(case, *prepare(case, data, arguments.cache, arguments.full)))
                print(table(rows[-1:]).splitlines()[-1], flush=True)
                write_csv(arguments.out, rows, form=".4g")
    print(f"\n{table(rows)}")


if __name__ == "__main__":
    main()
