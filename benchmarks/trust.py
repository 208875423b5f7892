"""Can what `find` says be trusted? Its ranks, its probabilities and its counts, for labels as people give them.

    python benchmarks/trust.py DATA_FOLDER --cache FOLDER [--sets coco80 ccp] [--draws 3] [--out results/trust.csv]

DATA_FOLDER holds voc2012 with boxes.csv, coco80.npz, cub312.npz, ccp and the folder tabular. Features of ccp are read
from FOLDER/ccp.npy: `onepair features DATA_FOLDER/ccp/labels.csv --out FOLDER/ccp.npy`. A draw is 2,000 random rows at
most, whose labels are hidden by a process; `fit_linear` with the default method gives out-of-fold scores, and `judge`
what `find` would say. Of the first 100, 500 and 2,000 suggestions the share that is right is compared with that of the
raw scores. What shows clearly, and is tagged sooner, is what a ridge regression on all labels scores high out of fold.

Each case is measured in stages: before anybody said anything, after audits of 30, 100 and 300 random rows, and after a
review of the first 30 and 100 suggestions. Scores are the same in all of them, and what is told is not counted.

What had to be chosen was chosen on the rows or sets of the first half; the other half confirms it. Cases of other sets
that are in the file are kept: `--sets` alone prints what they all come to.
"""

import argparse
import csv
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from hiding import BY_SIZE, PROCESSES, SALIENT, UNEVEN, Process, missing, positives_at_random, three_tags
from linear_methods import read as read_split
from numpy.typing import NDArray
from real_sets import TABLES, read_voc_rows, write_csv
from threadpoolctl import threadpool_limits

from onepair.data.formats.research import read_voc
from onepair.label_matrix import LabelMatrix
from onepair.labels import POSITIVE, UNKNOWN, Labels
from onepair.linear.fit import fit_linear
from onepair.methods import METHODS, create_method
from onepair.metrics import Floats
from onepair.probability.cell_posterior import Judgement, judge

TOPS, ABOVE, FEWEST_ABOVE = (100, 500, 2_000), (0.9, 0.5), 30
STAGES = ("none", "audit 30", "audit 100", "audit 300", "review 30", "review 100")
RARE = 5  # positives that a rare class shows at most
NOISE = 5.0  # points
SHARES = ("find", "low", "high")  # columns of the share of the first suggestions that is right, and of its interval
WHOLE = ("draw", "classes", "missing", "total_holds")
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
    **UNEVEN,
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


def prepare(case: Case, data: Data, cache: Path) -> tuple[Floats, Labels, Labels]:
    """Scores, observed labels and the truth; fits are kept in the cache."""
    rows = rows_of(case, data)
    path = cache / f"{case.data}-{case.process}-{case.setting:g}-{case.draw}-0.npz".replace(" ", "_")
    if path.exists():
        with np.load(path) as file:
            return file["scores"].astype(np.float64), file["observed"], file["truth"]
    features, truth = data.features[rows], data.labels[rows]
    present = truth.sum(0) >= 2
    truth = truth[:, present]
    clear = np.zeros(truth.shape)
    if case.process in BY_SIZE and data.sizes is not None:
        clear = data.sizes[rows][:, present]
    elif case.process in (*SALIENT, "two at most, salient"):
        clear = _clearness(case, features, truth, cache)
    random = np.random.default_rng(100 + case.draw)
    hidden = WAYS[case.process].hide(truth, clear, case.setting, random)
    observed = hidden.observed
    if hidden.drops_empty:
        kept = (observed == POSITIVE).any(1)
        rows, features, truth, observed = rows[kept], features[kept], truth[kept], observed[kept]
    scores = scores_of(features, observed)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, scores=scores.astype(np.float32), observed=observed, truth=truth)
    return scores, observed, truth


def _clearness(case: Case, features: Any, truth: Labels, cache: Path) -> Floats:
    """How clearly labels show: out-of-fold scores of a ridge regression on all labels."""
    path = cache / f"{case.data}-clear-{case.half}-{case.draw}.npy"
    if not path.exists():
        np.save(path, scores_of(features, truth, "ridge").astype(np.float32))
    return np.asarray(np.load(path), np.float64)


def tell(stage: str, observed: Labels, truth: Labels, before: Floats) -> tuple[Labels, NDArray[np.bool_]]:
    """The labels that are known at a stage, and which of them were asked for; `before` is what was said at first."""
    kind, _, number = stage.partition(" ")
    asked, told = np.zeros(observed.shape, bool), np.zeros(observed.shape, bool)
    if kind == "audit":
        told[np.random.default_rng(0).permutation(len(truth))[: int(number)]] = True
    elif kind == "review":
        first = np.argsort(-np.where(observed == UNKNOWN, before, -1), axis=None, kind="stable")[: int(number)]
        told.flat[first] = asked.flat[first] = True
    return np.where(told, truth, observed).astype(np.int8), asked


def measure(case: Case, scores: Floats, given: Labels, truth: Labels) -> Iterator[dict[str, Any]]:
    before = np.empty(0)
    for stage in STAGES:
        observed, asked = tell(stage, given, truth, before)
        start = time.process_time()
        found = judge(observed, scores, asked=asked)
        seconds = time.process_time() - start
        before = found.probabilities if stage == "none" else before
        yield {**case._asdict(), "stage": stage, **figures(found, scores, observed, truth), "seconds": seconds}


def figures(found: Judgement, scores: Floats, observed: Labels, truth: Labels) -> dict[str, Any]:
    unknown = observed == UNKNOWN
    right, probabilities = truth[unknown] == POSITIVE, found.probabilities[unknown]
    order, raw = (np.argsort(-each, kind="stable") for each in (probabilities, scores[unknown]))
    row: dict[str, Any] = {"classes": truth.shape[1], "missing": int(right.sum())}
    for top in TOPS:
        there = top <= right.sum()  # more cannot be right
        row |= {
            f"find@{top}": 100 * right[order[:top]].mean() if there else np.nan,
            f"raw@{top}": 100 * right[raw[:top]].mean() if there else np.nan,
            f"said@{top}": 100 * probabilities[order[:top]].mean() if there else np.nan,
        }
        share = found.correction.share(probabilities[order[:top]])
        row |= {f"{end}@{top}": 100 * getattr(share, end) if there else np.nan for end in ("low", "high")}
    for least in ABOVE:
        above = probabilities >= least
        there = above.sum() >= FEWEST_ABOVE
        row |= {
            f"right above {least:g}": 100 * right[above].mean() if there else np.nan,
            f"said above {least:g}": 100 * probabilities[above].mean() if there else np.nan,
        }
    true = missing(truth, observed)
    holes, rare = unknown.any(0), (observed == POSITIVE).sum(0) <= RARE
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


Row = dict[str, Any]


def summary(rows: Sequence[Row]) -> Row:
    """Shares that hold, in per cent of the cases, and medians."""
    ranks = np.concatenate([[row[f"find@{top}"] - row[f"raw@{top}"] for row in rows] for top in TOPS])
    pairs = [(f"said@{top}", f"find@{top}") for top in TOPS]
    pairs += [(f"said above {least:g}", f"right above {least:g}") for least in ABOVE]
    off = np.abs(np.concatenate([[row[said] - row[right] for row in rows] for said, right in pairs]))
    right, low, high = (np.array([[row[f"{word}@{top}"] for row in rows] for top in TOPS]) for word in SHARES)
    within = (low - 0.5 <= right) & (right <= high + 0.5)
    return {
        "cases": len(rows),
        "totals hold": 100 * np.mean([row["total_holds"] for row in rows]),
        "classes hold": np.mean([row["classes_hold"] for row in rows]),
        "rare hold": _mean([row["rare_hold"] for row in rows]),
        "high / low": np.median([row["high"] / max(row["low"], 1) for row in rows]),
        "said within 5": 100 * _mean(np.where(np.isnan(off), np.nan, off <= 5)),
        "said off by": np.nanmedian(off) if not np.isnan(off).all() else np.nan,
        "shares hold": 100 * _mean(np.where(np.isnan(right), np.nan, within)),
        "high - low": _mean(high - low),
        "rank against raw": _mean(ranks),
        "worst": np.nanmin(ranks) if not np.isnan(ranks).all() else np.nan,
    }


def _mean(values: Any) -> float:
    known = np.asarray(values, np.float64)
    known = known[~np.isnan(known)]
    return float(known.mean()) if len(known) else np.nan


def table(rows: Sequence[Row]) -> str:
    """Markdown: a line for every process at first, for each stage of each half of the sets, and of all."""
    first = [row for row in rows if row["stage"] == "none"]
    groups = {way: [row for row in first if row["process"] == way] for way in WAYS}
    for stage in STAGES:
        groups |= {
            f"{stage}, {half}": [row for row in rows if row["half"] == half and row["stage"] == stage]
            for half in ("chosen", "confirmed")
        }
    head = ["process", *summary(rows)]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for name, group in groups.items():
        if group:
            cells = [f"{value:.1f}" if isinstance(value, float) else str(value) for value in summary(group).values()]
            lines.append("| " + " | ".join([name, *cells]).replace("nan", "–") + " |")
    return "\n".join(lines)


def verdict(rows: Sequence[Row]) -> str:
    """Which aims are met before anybody said anything."""
    rows = [row for row in rows if row["stage"] == "none"]
    every, ways = summary(rows), {way: [row for row in rows if row["process"] == way] for way in WAYS}
    lowest = min((summary(group)["totals hold"], way) for way, group in ways.items() if group)
    aims = (
        ("intervals of totals hold", every["totals hold"], 92.0),
        ("intervals of classes hold", every["classes hold"], 92.0),
        ("intervals of rare classes hold", every["rare hold"], 88.0),
        (f"intervals of totals hold, lowest process ({lowest[1]})", lowest[0], 85.0),
        ("said within 5 points of the share that is right", every["said within 5"], 90.0),
    )
    lines = [f"| aim | measured | aimed at | |\n{'|---' * 4}|"]
    for words, value, aim in aims:
        lines.append(f"| {words} | {value:.1f} % | {aim:.0f} % | {'met' if value >= aim else 'missed'} |")
    worst = "met" if every["worst"] >= -NOISE else "missed"
    lines.append(
        f"| right of the first 100 to 2,000, against the raw scores, worst case | {every['worst']:+.1f} points | "
        f"≥ -{NOISE:g} | {worst} |"
    )
    return "\n".join(lines)


def read_rows(path: Path) -> list[Row]:
    """The cases that were measured before."""
    if not path.exists():
        return []
    words = ("data", "half", "process", "stage")
    with path.open(newline="", encoding="utf-8") as file:
        rows: list[Row] = [
            {name: value if name in words else float(value) for name, value in row.items()}
            for row in csv.DictReader(file)
        ]
    return [{name: int(value) if name in WHOLE else value for name, value in row.items()} for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--sets", nargs="*", default=SETS, choices=SETS)
    parser.add_argument("--ways", nargs="*", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("--prepare", action="store_true", help="only fill the cache")
    parser.add_argument("--out", type=Path, default=Path("results/trust.csv"))
    arguments = parser.parse_args()
    rows = [row for row in read_rows(arguments.out) if row["data"] not in arguments.sets]
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in arguments.sets:
            data = read(arguments.data, arguments.cache, name)
            for case in cases(name, data, arguments.ways, arguments.draws):
                prepared = prepare(case, data, arguments.cache)
                if arguments.prepare:
                    continue
                rows.extend(measure(case, *prepared))
                print(" · ".join(map(str, case)), flush=True)
            if not arguments.prepare:
                write_csv(arguments.out, rows, form=".4g")
    if rows:
        print(f"{verdict(rows)}\n\n{table(rows)}")


if __name__ == "__main__":
    main()
