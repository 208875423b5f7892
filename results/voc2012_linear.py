"""All methods on VOC 2012 from single positives: linear classifiers on EfficientNet-Lite0 features.

    python results/voc2012_linear.py VOCdevkit [--methods bce opml-sp] [--seeds 3] [--out results/FILE.csv]

Hyper-parameters are chosen on validation mAP with seed 0, over the grids below; the chosen ones are then run with every
seed, and the test set is scored at the best validation epoch of each. Adam, batch 16, 25 epochs, no weight decay.
"""

import argparse
import csv
import io
import itertools
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from onepair.cli.progress import Narration
from onepair.data.features import cached_features
from onepair.files import cache_folder, write_atomically
from onepair.methods import METHODS, create_method
from onepair.metrics import mean_average_precision
from onepair.models import create_backbone
from onepair.training.config import Config, DataConfig, MethodConfig, OptimiserConfig
from onepair.training.folder import RunFolder
from onepair.training.gathering import score
from onepair.training.loop import Phase, Trainer
from onepair.training.run import Machine, Silence
from onepair.training.sources import FeatureSource
from onepair.training.task import Task, prepare_task

BACKBONE = "tf_efficientnet_lite0"
EPOCHS = 25
LEARNING_RATES = (3e-4, 1e-3)
FULL_LABELS = "bce (full labels)"
TILDE: dict[str, Sequence[Any]] = {"alpha": (0.4, 0.7), "beta": (0.4, 0.7)}
GRIDS: dict[str, dict[str, Sequence[Any]]] = {
    "bce-l1": {"weight": (1e-6, 1e-5, 1e-4)},
    "bce-l2": {"weight": (1e-5, 1e-4, 1e-3)},
    "focal": {"alpha": (0.25, None)},
    "asl": {"gamma_positive": (0.0, 1.0)},
    "ll-r": {"delta": (5e-4, 2e-3, 5e-3)},
    "ll-ct": {"delta": (5e-4, 2e-3, 5e-3)},
    "ll-cp": {"delta": (5e-4, 2e-3, 5e-3)},
    "entmax": {"entropy_weight": (0.1, 0.2, 0.4)},
    "entmax-apl": {"entropy_weight": (0.1, 0.2, 0.4), "weight": (0.02, 0.2)},
    "opml": TILDE,
    "opml-hr": TILDE,
    "opml-soft": {**TILDE, "gamma_gradient": (False, True)},
    "opml-correct": {**TILDE, "label_num": (0.8, 1.6)},
    "opml-sp": {**TILDE, "gamma_gradient": (False, True), "label_num": (0.8, 1.6)},
}


class Bench:
    """The dataset, its features, and one way to train on them."""

    def __init__(self, source: str) -> None:
        self.fabric = Machine(accelerator="cpu", devices=1).fabric("32-true")
        data = DataConfig(source=source, observe="single-positive")
        self.tasks = {
            "as given": prepare_task(data),
            "single positive and all negatives": prepare_task(data, with_all_negatives=True),
            FULL_LABELS: prepare_task(replace(data, observe="given")),
        }
        self.config = Config(data=data, linear_epochs=EPOCHS, batch_size=16)
        backbone = create_backbone(BACKBONE)
        with Narration() as narration:
            features = cached_features(
                self.tasks["as given"].table,
                backbone,
                backbone.preprocessing,
                folder=cache_folder() / "features",
                on_progress=narration.extraction(),
            )
        self.features = torch.from_numpy(np.array(features))

    def train(self, name: str, options: dict[str, Any], lr: float, seed: int) -> tuple[float, Trainer, Task]:
        method_name = "bce" if name == FULL_LABELS else name
        info = METHODS[method_name]
        task = self.tasks[FULL_LABELS if name == FULL_LABELS else info.observes]
        config = replace(
            self.config,
            method=MethodConfig(method_name, options),
            optimiser=OptimiserConfig(name="adam", lr=lr, weight_decay=0.0),
            seed=seed,
        )
        torch.manual_seed(seed)
        head = torch.nn.Linear(self.features.shape[1], len(task.table.classes))
        method = create_method(method_name, **options, **({"epochs": EPOCHS} if info.needs_epochs else {}))
        method.begin(torch.from_numpy(task.observed))
        phase = Phase("linear", head, head, FeatureSource(self.features), [(head, 1.0)], EPOCHS, lr, 4096)
        with tempfile.TemporaryDirectory() as folder:
            trainer = Trainer(
                self.fabric, phase, method, task, config, folder=RunFolder(Path(folder)), watch=Silence(), earlier=[]
            )
            trainer.run()
        return trainer.progress.best_map, trainer, task

    def test(self, trainer: Trainer, task: Task) -> float:
        head = trainer.phase.model
        head.load_state_dict(trainer.best)
        scores = score(self.fabric, head, trainer.phase.source, task.test, batch_size=4096)
        return mean_average_precision(scores, task.table.labels[task.test]).value


def candidates(name: str) -> Iterator[tuple[dict[str, Any], float]]:
    grid = GRIDS.get(name, {})
    for values in itertools.product(*grid.values()):
        for lr in LEARNING_RATES:
            yield dict(zip(grid, values, strict=True)), lr


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--methods", nargs="*", default=[FULL_LABELS, *METHODS])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("results/voc2012_linear_efficientnet_lite0.csv"))
    arguments = parser.parse_args()
    bench = Bench(arguments.data)
    rows: list[dict[str, Any]] = []
    for name in arguments.methods:
        tried = [(bench.train(name, options, lr, 0)[0], options, lr) for options, lr in candidates(name)]
        validation, options, lr = max(tried, key=lambda each: each[0])
        tests = [100 * bench.test(*bench.train(name, options, lr, seed)[1:]) for seed in range(arguments.seeds)]
        rows.append(
            {
                "method": name,
                "test_map": f"{statistics.mean(tests):.2f}",
                "std": f"{statistics.stdev(tests) if len(tests) > 1 else 0:.2f}",
                "validation_map": f"{100 * validation:.2f}",
                "lr": lr,
                "options": " ".join(f"{key}={value}" for key, value in options.items()),
                "tried": len(tried),
            }
        )
        print(rows[-1], flush=True)
        write(arguments.out, rows)


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(path, text.getvalue().encode())


if __name__ == "__main__":
    main()
