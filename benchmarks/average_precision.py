"""Average precision against scikit-learn and torchmetrics, at the sizes of the papers' test sets (`make bench`).

Scores are random: sorting them takes longer than sorting those of a trained model, for everyone.
"""

import tracemalloc

import numpy as np
import torch
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
    print("| test set | onepair | scikit-learn / onepair | torchmetrics / onepair | peak memory / scores |")
    print("|---|---|---|---|---|")
    for name, (rows, classes, cardinality) in TEST_SETS.items():
        seconds, memory = compare(rows, classes, cardinality)
        ours = seconds["onepair"]
        ratios = " | ".join(f"{seconds[other] / ours:.1f} ×" for other in ("scikit-learn", "torchmetrics"))
        print(f"| {name} {rows} × {classes} | {1e3 * ours:.1f} ms | {ratios} | {memory:.2f} × |")


if __name__ == "__main__":
    main()
