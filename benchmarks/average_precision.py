"""Average precision against scikit-learn and torchmetrics, at the sizes of the papers' test sets (`make bench`).

    python benchmarks/average_precision.py [--processor "AMD EPYC, AVX-512" --out results/average_precision.csv]

Scores are random: sorting them takes longer than sorting those of a trained model, for everyone. numpy sorts by the
vector instructions of the processor; NPY_DISABLE_CPU_FEATURES="X86_V4 AVX512_ICL AVX512_SPR" leaves those of AVX2, and
with X86_V3 in the list none. With --out, the lines of a processor take the place of its earlier ones.
"""

import argparse
import csv
import tracemalloc
from pathlib import Path

import numpy as np
import torch
from real_sets import write_csv
from sklearn.metrics import average_precision_score
from timing import interleaved_seconds
from torchmetrics.functional.classification import multilabel_average_precision

from onepair import average_precision

TEST_SETS = {"VOC": (5823, 20, 1.5), "COCO": (40137, 80, 2.9), "NUS": (60260, 81, 1.9), "CUB": (5794, 312, 31.4)}


def compare(rows: int, classes: int, cardinality: float) -> tuple[dict[str, float], float]:
    random = np.random.default_rng(0)
    scores = random.normal(size=(rows, classes)).astype(np.float32)
    labels = (random.random((rows, classes)) < cardinality / classes).astype(np.int8)
    score_tensor, label_tensor = torch.tensor(scores), torch.tensor(labels).long()
    seconds = interleaved_seconds(
        {
            "onepair": lambda: average_precision(scores, labels),
            "scikit-learn": lambda: average_precision_score(labels, scores, average=None),
            "torchmetrics": lambda: multilabel_average_precision(
                score_tensor, label_tensor, num_labels=classes, average=None
            ),
        },
        seconds=1.0,
    )
    tracemalloc.start()
    average_precision(scores, labels)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return seconds, peak / scores.nbytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processor", default="")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    rows = []
    for name, (samples, classes, cardinality) in TEST_SETS.items():
        seconds, memory = compare(samples, classes, cardinality)
        others = {other: f"{seconds[other] / seconds['onepair']:.1f}" for other in ("scikit-learn", "torchmetrics")}
        size = f"{name} {samples} × {classes}"
        rows.append({"processor": arguments.processor, "test_set": size, **others, "memory": f"{memory:.2f}"})
        print(rows[-1], f"{1e3 * seconds['onepair']:.1f} ms", flush=True)
    if arguments.out:
        earlier: list[dict[str, str]] = []
        if arguments.out.exists():
            with arguments.out.open(newline="", encoding="utf-8") as file:
                earlier = [row for row in csv.DictReader(file) if row["processor"] != arguments.processor]
        write_csv(arguments.out, [*earlier, *rows])


if __name__ == "__main__":
    main()
