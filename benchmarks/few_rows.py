"""Is the learning rate of a classifier on fixed features the right one where there are few rows, or large batches?

    python benchmarks/few_rows.py DATA_FOLDER [--sets voc2012] [--out results/few_rows.csv]

DATA_FOLDER is that of methods_on_tables.py, of which this takes the sets of images, and trains as it does with --held:
from one positive a row, as `onepair train` would, on some of the training rows, a quarter as many validation rows and
all test rows. The rate is the default, and a half, a quarter, two and four times as much. Test mAP, and validation mAP
in the file, is the mean over three draws of rows and positives.
"""

import argparse
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from methods_on_tables import CONTESTANTS, IMAGES, Part, Parts, read_parts, run
from tabular import SEEDS, write

from onepair.runs.stages import LinearConfig, LinearOptimiserConfig

FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
ROWS = ((50, 16), (200, 16), (800, 16), (800, 256))  # and the batch size
METHODS = ("bce", "gr", "opml-plus")


def some(parts: Parts, rows: int, seed: int) -> Parts:
    def few(part: Part, count: int) -> Part:
        chosen = np.random.default_rng(seed).permutation(len(part.labels))[:count]
        return Part(part.features[chosen], part.labels[chosen])

    return parts._replace(train=few(parts.train, rows), validation=few(parts.validation, max(rows // 4, 20)))


def measure(name: str, parts: Parts, rows: int, batch: int) -> Iterator[dict[str, Any]]:
    rate = LinearConfig().optimiser.lr
    for method in METHODS:
        record: dict[str, Any] = {"set": name, "rows": rows, "batch": batch, "method": method}
        for factor in FACTORS:
            stage = LinearConfig(batch_size=batch, optimiser=LinearOptimiserConfig(lr=factor * rate))
            outcomes = [run(CONTESTANTS[method], stage, some(parts, rows, seed), seed) for seed in SEEDS]
            record[f"test_{factor:g}"] = f"{statistics.mean(each.test_map for each in outcomes):.2f}"
            record[f"validation_{factor:g}"] = f"{statistics.mean(each.validation_map for each in outcomes):.2f}"
        yield record


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--sets", nargs="*", default=IMAGES, choices=IMAGES)
    parser.add_argument("--out", type=Path, default=Path("results/few_rows.csv"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    records: list[dict[str, Any]] = []
    print(f"| set | rows | batch | method | {' | '.join(f'{factor:g} ×' for factor in FACTORS)} |")
    print("|---|---:|---:|---" + "|---:" * len(FACTORS) + "|")
    for name in arguments.sets:
        parts = read_parts(arguments.data, name)
        for rows, batch in ROWS:
            for record in measure(name, parts, rows, batch):
                records.append(record)
                write(arguments.out, records)
                maps = " | ".join(record[f"test_{factor:g}"] for factor in FACTORS)
                print(f"| {name} | {rows:,} | {batch} | {record['method']} | {maps} |", flush=True)


if __name__ == "__main__":
    main()
