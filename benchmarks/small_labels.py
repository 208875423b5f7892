"""What labels by their known entries cost where a plain array would do: small sets.

    python benchmarks/small_labels.py

For the sizes of digits, VOC 2012 and COCO 2014, with full labels and with single positives: to make a `LabelMatrix` of
an array, to take half of the rows, to have all of it as an array again, and to count positives, beside the same of a
plain int8 array; and all four together as a share of one epoch of a linear classifier on 1,280 features, the least that
a run does. Of every figure the best of some repetitions, in one run.
"""

import time
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from onepair.label_matrix import LabelMatrix
from onepair.labels import POSITIVE, Indices, Labels, observe_positives
from onepair.losses import bce_loss

SIZES = {"digits": (4_000, 10, 2.6), "VOC 2012": (11_540, 20, 1.5), "COCO 2014": (122_218, 80, 2.9)}
WIDTH, BATCH, EPOCH_ROWS = 1280, 16, 2_000


def best(call: Callable[[], object], repetitions: int = 5) -> float:
    """Milliseconds."""
    times = []
    for _ in range(repetitions):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1000 * min(times)


def epoch(rows: int, classes: int) -> float:
    """Milliseconds of one epoch, from those of a part of it."""
    model = nn.Linear(WIDTH, classes)
    optimiser = torch.optim.Adam(model.parameters())
    features, labels = torch.randn(EPOCH_ROWS, WIDTH), torch.zeros(EPOCH_ROWS, classes, dtype=torch.int8)

    def some() -> None:
        for inputs, targets in zip(torch.split(features, BATCH), torch.split(labels, BATCH), strict=True):
            optimiser.zero_grad()
            torch.autograd.backward(bce_loss(model(inputs), targets))
            optimiser.step()

    return best(some, 2) * rows / EPOCH_ROWS


def compare(labels: Labels, chosen: Indices) -> tuple[list[float], list[float]]:
    """Milliseconds by known entries: made, taken, dense, counted; and of an array: taken, counted."""
    matrix = LabelMatrix.of(labels)
    entries = (
        lambda: LabelMatrix.of(labels),
        lambda: matrix.take(chosen),
        matrix.dense,
        lambda: matrix.count(POSITIVE),
    )
    array = (lambda: labels[chosen], lambda: (labels == POSITIVE).sum(0))
    return [best(call) for call in entries], [best(call) for call in array]


def main() -> None:
    torch.set_num_threads(1)
    random = np.random.default_rng(0)
    print("set         labels             made  taken  dense  counted   (array: taken, counted)   of an epoch")
    for name, (rows, classes, positives) in SIZES.items():
        full = (random.random((rows, classes)) < positives / classes).astype(np.int8)
        chosen, whole = np.sort(random.permutation(rows)[: rows // 2]), epoch(rows // 2, classes)
        for kind, labels in (("full", full), ("single positives", observe_positives(full))):
            own, plain = compare(labels, chosen)
            times, beside = " ".join(f"{each:6.2f}" for each in own), ", ".join(f"{each:.2f}" for each in plain)
            print(f"{name:10}  {kind:16} {times} ms   ({beside} ms)   {100 * sum(own) / whole:.2f} %")


if __name__ == "__main__":
    main()
