"""Are the figures true that `evaluate` and `decide` print where labels have holes? Real sets, judged by all labels.

    python benchmarks/figures.py DATA_FOLDER [--sets emotions yeast] [--cache FOLDER] [--out results/figures.csv]

DATA_FOLDER, sets, splits and scaling are those of methods_on_tables.py. A linear layer learns from one positive of each
training row with OPML+, as `onepair train` would: class priors and the best epoch come from validation rows of which
one positive is known. Then labels of validation and test rows are hidden in six ways. Thresholds are chosen on what is
left of the validation labels; precision, recall, F1 and mAP at these thresholds are estimated from what is left, of
test rows as by `evaluate` and of validation rows as by `decide`, and compared with those by all labels; mAP is that of
the classes of which a positive is left.
What is in the file and not measured anew is kept.

Aim: 90 % of the intervals of 95 % hold the truth, of each figure. What had to be chosen was chosen on every other
set; the others confirm it.
"""

import argparse
import csv
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from hiding import Process, cells_at_random, complete_rows, positives_at_random, positives_per_row
from methods_on_tables import SETS, Parts, learn, read_parts
from real_sets import write_csv
from torch import nn

from onepair.labels import POSITIVE, UNKNOWN, Labels, observe_positives
from onepair.methods import create_method
from onepair.metrics import Floats
from onepair.probability import fit_decisions
from onepair.probability.evaluation import estimated_map, evaluate
from onepair.probability.infer import class_priors
from onepair.probability.intervals import WIDEST

PROCESSES = {
    "one positive a row": Process(positives_per_row, (1,)),
    "two positives a row": Process(positives_per_row, (2,)),
    "half of the positives": Process(positives_at_random, (0.5,)),
    "a tenth of the cells": Process(cells_at_random, (0.1,)),
    "half of the cells": Process(cells_at_random, (0.5,)),
    "200 rows in full, else one positive": Process(complete_rows, (200,)),
}
FIGURES = ("map", "precision", "recall", "f1")
CHOSEN_ON = SETS[::2]
EPOCHS = 16
_NUMBERS = ("true", "estimate", "low", "high")

Record = dict[str, Any]


class Split(NamedTuple):
    """Scores of rows that the model was not fitted to, and their full labels."""

    name: str  # "validation" or "test"
    scores: Floats
    labels: Labels


def train(parts: Parts) -> tuple[Floats, Floats]:
    """Scores of validation and test rows, by the epoch that seems best."""
    observed, shown = (observe_positives(part.labels) for part in (parts.train, parts.validation))
    features = parts.train.features
    torch.manual_seed(0)
    layer = nn.Linear(features.shape[1], observed.shape[1])
    method = create_method("opml-plus")
    method.begin(torch.from_numpy(observed))
    optimiser = torch.optim.Adam(layer.parameters(), lr=parts.rates[1], fused=True)
    best, kept = -1.0, (np.empty(0), np.empty(0))
    for epoch in range(1, EPOCHS + 1):
        learn(layer, method, optimiser, features)
        with torch.no_grad():
            scores, test_scores = (layer(part.features).double().numpy() for part in (parts.validation, parts.test))
        if epoch.bit_count() == 1:
            method.take_priors(torch.from_numpy(class_priors(scores, shown).value))
        if (found := estimated_map(scores, shown)) > best:
            best, kept = found, (scores, test_scores)
    return kept


def splits(folder: Path, name: str, cache: Path | None) -> list[Split]:
    parts, path = read_parts(folder, name), cache and cache / f"{name}.npz"
    if path is None or not path.exists():
        scores = train(parts)
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            np.savez(path, *scores)
    else:
        with np.load(path, allow_pickle=False) as file:
            scores = file["arr_0"], file["arr_1"]
    return [Split("validation", scores[0], parts.validation.labels), Split("test", scores[1], parts.test.labels)]


def measure(name: str, of: Sequence[Split], seed: int) -> Iterator[Record]:
    """A record of every figure."""
    classes = [str(number) for number in range(of[0].labels.shape[1])]
    for process, (hide, (setting,), *_) in PROCESSES.items():
        random = np.random.default_rng(seed)
        left = [hide(split.labels, split.scores, setting, random).observed for split in of]
        decisions = fit_decisions(of[0].scores, left[0])
        for split, observed in zip(of, left, strict=True):
            if (observed != UNKNOWN).all():
                continue  # so few rows that all labels are known: figures are exact
            start = time.process_time()
            found = evaluate(split.scores, observed, decisions, classes)
            seconds = time.process_time() - start
            truth = evaluate(split.scores, split.labels, decisions, classes)
            averaged = (observed == POSITIVE).any(0)  # the classes that the estimate of the mAP is of
            class_ap = np.array([each.ap for each in truth.classes.values()])
            truth = truth._replace(map=float(class_ap[averaged].mean()))
            for figure in FIGURES:
                true, (value, low, high) = getattr(truth, figure), getattr(found.estimated, figure)
                yield {
                    "set": name,
                    "process": process,
                    "split": split.name,
                    "seed": seed,
                    "figure": figure,
                    "true": f"{100 * true:.2f}",
                    "estimate": f"{100 * value:.2f}",
                    "low": f"{100 * low:.2f}",
                    "high": f"{100 * high:.2f}",
                    "holds": int(low - 5e-5 <= true <= high + 5e-5),
                    "seconds": f"{seconds:.2f}",
                }


def table(records: Sequence[Record]) -> str:
    """Markdown: the figures of the test rows, with the first draw of what is hidden; misses are bold."""
    lines = ["| set | known | mAP | precision | recall | F1 |", "|---" * 6 + "|"]
    shown = [each for each in records if each["split"] == "test" and each["seed"] == 0]
    for name, process in dict.fromkeys((each["set"], each["process"]) for each in shown):
        cells = []
        for each in shown:
            if (each["set"], each["process"]) == (name, process):
                true, value, low, high = (float(each[key]) for key in _NUMBERS)
                mark = "" if each["holds"] else "**"
                cells.append(f"{mark}{true:.0f}: {value:.0f} ({low:.0f} to {high:.0f}){mark}")
        lines.append(f"| {name} | {process} | {' | '.join(cells)} |")
    return "\n".join(lines)


def coverage(records: Sequence[Record]) -> str:
    """Markdown: how many intervals hold, and how wide they are at the median, by process and in all."""
    lines = ["| known | n | mAP | precision | recall | F1 |", "|---" * 6 + "|"]
    groups = {process: [each for each in records if each["process"] == process] for process in PROCESSES}
    halves = {
        f"all, of {words}": [each for each in records if (each["set"] in CHOSEN_ON) == chosen]
        for words, chosen in (("sets chosen on", True), ("sets confirmed on", False))
    }
    for title, group in {**groups, **halves, "all": list(records)}.items():
        cells = []
        for figure in FIGURES:
            rows = [each for each in group if each["figure"] == figure]
            if rows:
                width = np.median([float(each["high"]) - float(each["low"]) for each in rows])
                cells.append(f"{np.mean([each['holds'] for each in rows]):.0%}, {width:.0f} wide")
        if cells:
            lines.append(f"| {title} | {len(group) // len(FIGURES)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def claims(records: Sequence[Record]) -> str:
    """How many figures are a sentence in place of a number, and how many numbers are far off beyond their interval."""
    true, value, low, high = (np.array([float(each[key]) for each in records]) for key in _NUMBERS)
    told = high - low <= 100 * WIDEST
    far = told & (np.maximum(true, value) >= 2 * np.minimum(true, value)) & ((true < low) | (true > high))
    return (
        f"{(~told).sum()} of {len(records)} figures are not told, for their intervals are too wide; "
        f"{far.sum()} that are told are off by a factor of two or more and not in their interval"
    )


def read_records(path: Path) -> dict[str, list[Record]]:
    """What was measured before, by set."""
    if not path.exists():
        return {}
    with path.open(newline="", encoding="utf-8") as file:
        records = [{**each, "seed": int(each["seed"]), "holds": int(each["holds"])} for each in csv.DictReader(file)]
    return {name: [each for each in records if each["set"] == name] for name in SETS}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--sets", nargs="*", default=SETS, choices=SETS)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--out", type=Path, default=Path("results/figures.csv"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    kept = read_records(arguments.out)
    for name in arguments.sets:
        of = splits(arguments.data, name, arguments.cache)
        kept[name] = [record for seed in range(arguments.seeds) for record in measure(name, of, seed)]
        records = [record for each in SETS for record in kept.get(each, [])]
        write_csv(arguments.out, records)
        print(f"{name} done", flush=True)
    print(f"\n{table(records)}\n\n{coverage(records)}\n\n{claims(records)}")


if __name__ == "__main__":
    main()
