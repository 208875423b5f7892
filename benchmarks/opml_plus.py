"""What each part of OPML+ is worth, on VOC 2012 from single positives, from a tenth of all labels, and from all.

    python benchmarks/opml_plus.py VOCdevkit [--seeds 3] [--runs DIR] [--out results/voc2012/opml_plus.csv]

Linear classifiers on EfficientNet-Lite0 features, by the published protocol: Adam at 3e-4, batch 16, 25
epochs, all options as they come.
Runs that are done are kept; the same command goes on.
"""

import argparse
import math
import statistics
from itertools import product
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from real_sets import write_csv
from torch import Tensor

from onepair.losses.batch import loss_batch, unknown_cells
from onepair.methods.method import register
from onepair.methods.opml_plus import OPMLPlus
from onepair.numerics import masked_logsumexp
from onepair.runs.config import build_config
from onepair.runs.folder import RunFolder
from onepair.training.callbacks import ProgressCallback
from onepair.training.hardware import Hardware
from onepair.training.run import train

LABELS: dict[str, dict[str, Any]] = {
    "single positives": {"observe": "single-positive"},
    "a tenth known": {"observe": "fraction", "known": 0.1},
    "all labels": {"observe": "given"},
}


class Variant(OPMLPlus):
    """OPML+ with parts that can be changed."""

    unknown: float | None = None  # the weight of an unknown label, whatever is missing
    by_row = False  # soft OPML's sums over the labels of a row, as means

    def forward(self, logits: Tensor, rows: Tensor) -> Tensor:
        observed = self.observed[rows]
        batch = loss_batch(logits, observed, unknown="ignore")
        scores, fixed = batch.logits, batch.logits.detach()
        trusted = self.trust / (self.trust + self.missing) if self.unknown is None else self.unknown
        counted = batch.negative + trusted * unknown_cells(observed, scores.dtype)
        log_alpha = math.log(self.alpha)
        positives = (batch.positive * (log_alpha - F.logsigmoid(scores + log_alpha))).sum(1)
        if not self.by_row:
            rest = torch.full_like(scores, self.rest)
            entropies = F.binary_cross_entropy_with_logits(scores, rest, counted, reduction="none")
            return (positives + entropies.sum(1)).mean()
        total = counted.sum(1)
        share = counted / total.clamp(min=torch.finfo(scores.dtype).tiny).unsqueeze(1)
        beta = self.alpha * self.rest / (1 - self.rest)
        pull_up = masked_logsumexp(-scores, share * fixed.sigmoid(), constant=self.alpha)
        push_down = masked_logsumexp(scores, share * (-fixed).sigmoid(), constant=beta)
        stiffness = (self.alpha + beta) ** 2 / (self.alpha * beta * (1 + self.alpha + beta))  # of one label at rest
        return (positives + total / stiffness * (pull_up + push_down)).mean()


class PushedDown(Variant):
    """Labels rest nowhere: the target of the cross entropy is 0."""

    def __init__(self) -> None:
        super().__init__()
        self.rest = 0.0


def variant(name: str, base: type[Variant] = Variant, **changes: Any) -> str:
    """Make a variant known by its name."""
    build = type(name, (base,), changes)
    register(name=name, title=name, paper="an ablation", equation="", description="OPML+ with a part changed.")(build)
    return name


VARIANTS = {
    "OPML+": "opml-plus",
    "unknown labels as good as negatives": variant("plus-negative", unknown=1.0),
    "unknown labels ignored": variant("plus-ignored", unknown=0.0),
    "pushed down without end": variant("plus-pushed", PushedDown),
    "labels of a row coupled, as in soft OPML": variant("plus-row", by_row=True),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--runs", type=Path, default=Path("runs/opml_plus"))
    parser.add_argument("--out", type=Path, default=Path("results/voc2012/opml_plus.csv"))
    arguments = parser.parse_args()
    hardware = Hardware(accelerator="cpu", devices=1)

    def test_map(method: str, kind: str, seed: int) -> float:
        config = build_config(
            {
                "data": {"source": arguments.data, **LABELS[kind]},
                "model": {"backbone": "tf_efficientnet_lite0", "mode": "linear"},
                "method": {"name": method},
                "linear": {"protocol": "epochs"},
                "seed": seed,
            }
        )
        folder = RunFolder(arguments.runs / f"{method}-{kind.replace(' ', '-')}-seed{seed}")
        with ProgressCallback(quiet=True) as progress:
            return 100 * (train(config, folder, hardware=hardware, callbacks=[progress]).test_map or 0.0)

    maps: dict[tuple[str, str], list[float]] = {}
    for seed, (words, method), kind in product(range(arguments.seeds), VARIANTS.items(), LABELS):
        maps.setdefault((words, kind), []).append(test_map(method, kind, seed))
        print(f"{words}, {kind}, seed {seed}: {maps[words, kind][-1]:.2f}", flush=True)
    rows = []
    for words in VARIANTS:
        row = {"variant": words}
        for kind in LABELS:
            row[kind] = f"{statistics.mean(maps[words, kind]):.2f}"
            if arguments.seeds > 1:
                row[f"{kind}, std"] = f"{statistics.stdev(maps[words, kind]):.2f}"
        rows.append(row)
        print("| " + " | ".join(row.values()) + " |")
    write_csv(arguments.out, rows)


if __name__ == "__main__":
    main()
