"""What each change of OPML+ to OPML-SP is worth: one undone at a time, on VOC 2012 from single positives.

    python benchmarks/opml_plus.py VOCdevkit [--runs DIR] [--out results/voc2012/opml_plus.csv]

Linear classifiers on EfficientNet-Lite0 features, Adam at 3e-4, batch 16, 25 epochs. Every variant gets the best alpha
and beta of the same nine pairs by validation mAP with seed 0, and is then run with three seeds. The last is OPML-SP
itself, the best of sixty among all readings of the paper: whether the gradient goes through γ, the exponent of the AP,
how many labels are corrected and from when on, the high-rank penalty, the learning rate. Runs that are done are kept;
the same command goes on.
"""

import argparse
import csv
import io
import statistics
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch import Tensor

from onepair.cli.progress import Narration
from onepair.correction import training_ap
from onepair.files import write_atomically
from onepair.labels import POSITIVE
from onepair.losses.cells import cells, unknown_cells
from onepair.methods.opml_plus import OPMLPlus
from onepair.methods.registry import register
from onepair.numerics import masked_logsumexp
from onepair.runs.config import build_config
from onepair.runs.folder import Results, RunFolder
from onepair.training.machine import Machine
from onepair.training.run import train

Options = dict[str, Any]  # of a method, and `lr`

GRID: dict[str, Sequence[Any]] = {"alpha": (0.3, 0.6, 0.9), "beta": (0.15, 0.4, 0.8)}
READINGS: dict[str, Sequence[Any]] = {
    **GRID,
    "gamma_gradient": (False, True),
    "epsilon": (0.7, 1.0, 2.0),
    "label_num": (0.0, 0.8, 1.6),
    "correction_start": (1, 4, 8),
    "high_rank_weight": (0.0, 1e-3),
    "lr": (3e-4, 1e-3),
}
TRIED = 60  # of the readings
SEEDS = (0, 1, 2)


class Variant(OPMLPlus):
    """OPML+ for rows without known negatives, with changes that can be undone."""

    means, soft_correction, by_ap, gamma_gradient = True, True, False, False

    def begin(self, observed: Tensor) -> None:
        super().begin(observed)
        self.class_ap = torch.full((observed.shape[1],), 0.0 if self.by_ap else 1.0)

    def forward(self, logits: Tensor, rows: Tensor) -> Tensor:
        observed = self.observed[rows] if self.soft_correction else self.targets[rows]
        batch = cells(logits, observed, unknown="ignore")
        unknown = unknown_cells(observed, batch.logits.dtype)
        corrected = (self.targets[rows] == POSITIVE).to(batch.logits.dtype)
        own = batch.logits if self.gamma_gradient else batch.logits.detach()
        gamma = torch.maximum(own.sigmoid() * self.class_ap, corrected)
        rest = ((-own).sigmoid() + (1 - self.class_ap) * own.sigmoid()) * (1 - corrected)  # 1 - γ, also near 0
        share = unknown / unknown.sum(1, keepdim=True).clamp(min=1) if self.means else unknown
        known_positives = masked_logsumexp(-batch.logits, batch.positive, constant=self.alpha)
        pull_up = masked_logsumexp(-batch.logits, share * gamma, constant=self.alpha)
        push_down = masked_logsumexp(batch.logits, share * rest, constant=self.beta)
        return (known_positives + pull_up + push_down).mean()

    def end_epoch(self, epoch: int, scores: Tensor | None) -> None:
        super().end_epoch(epoch, scores)
        if self.by_ap and scores is not None:
            self.class_ap = torch.from_numpy(training_ap(scores, self.observed.numpy())).float()


def variant(name: str, **changes: bool) -> str:
    """Make a variant known by its name."""
    build = type(name, (Variant,), changes)
    register(name=name, title=name, paper="an ablation", equation="", description="OPML+ with a change undone.")(build)
    return name


def points(grid: dict[str, Sequence[Any]], **fixed: Any) -> list[Options]:
    return [{**dict(zip(grid, values, strict=True)), **fixed} for values in product(*grid.values())]


VARIANTS: dict[str, tuple[str, list[Options]]] = {  # in words: the method, and the options to choose from
    "OPML+": ("opml-plus", points(GRID)),
    "without correction": ("opml-plus", points(GRID, label_num=0.0)),
    "corrected labels as full positives": (variant("plus-positives", soft_correction=False), points(GRID)),
    "sums over the unknown labels": (variant("plus-sums", means=False), points(GRID)),
    "γ times the AP of the class": (variant("plus-ap", by_ap=True), points(GRID)),
    "gradient through γ": (variant("plus-gradient", gamma_gradient=True), points(GRID)),
    "OPML-SP": ("opml-sp", Random(0).sample(points(READINGS), TRIED)),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--runs", type=Path, default=Path("runs/opml_plus"))
    parser.add_argument("--out", type=Path, default=Path("results/voc2012/opml_plus.csv"))
    arguments = parser.parse_args()
    machine = Machine(accelerator="cpu", devices=1)

    def run(method: str, values: Options, seed: int) -> Results:
        options = {name: value for name, value in values.items() if name != "lr"}
        config = build_config(
            {
                "data": {"source": arguments.data, "observe": "single-positive"},
                "model": {"backbone": "tf_efficientnet_lite0", "mode": "linear"},
                "method": {"name": method, "options": options},
                "optimiser": {"name": "adam", "lr": values.get("lr", 3e-4), "weight_decay": 0.0},
                "seed": seed,
            }
        )
        words = "-".join(f"{name}{value}" for name, value in values.items())
        with Narration(quiet=True) as narration:
            return train(
                config, RunFolder(arguments.runs / f"{method}-{words}-seed{seed}"), machine=machine, watch=narration
            )

    rows = []
    for words, (method, tried) in VARIANTS.items():
        chosen = max(tried, key=lambda options: run(method, options, SEEDS[0]).validation_map)
        maps = [100 * (run(method, chosen, seed).test_map or 0.0) for seed in SEEDS]
        rows.append(
            {
                "variant": words,
                "test_map": f"{statistics.mean(maps):.2f}",
                "std": f"{statistics.stdev(maps):.2f}",
                "chosen": " ".join(f"{name}={value}" for name, value in chosen.items()),
            }
        )
        print("| " + " | ".join(rows[-1].values()) + " |", flush=True)
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(arguments.out, text.getvalue().encode())


if __name__ == "__main__":
    main()
