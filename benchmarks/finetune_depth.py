"""Fine-tuning by depth: how many images a second learn if the network is frozen up to a stage, against all of it.

Through the training loop, with what it takes from memory: random images for the whole network, random activations from
a stage on, random features for the head alone. Data make no difference to the times. Seconds of a processor are
counted, which hardly depend on who else uses the machine.

    python benchmarks/finetune_depth.py [BACKBONE] [--stages blocks.2,blocks.5] [--size 224] [--batch 16] [--turns 3]
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from training import CLASSES, make_task, make_trainer

from onepair.data.label_table import LabelTable
from onepair.models import Backbone, Classifier, create_backbone
from onepair.models.backbone import TrainableSuffix, split_at
from onepair.runs.config import Config, FinetuneConfig, LinearConfig
from onepair.runs.task import Task
from onepair.training.loop import Group, Progress, Stage, Trainer
from onepair.training.sources import ActivationSource, CachedActivations, FeatureSource, ImageSource

CPU = torch.device("cpu")
STAGES = "blocks.2,blocks.3,blocks.4,blocks.5,blocks.6,conv_head"


def with_pixels(task: Task, size: int) -> LabelTable:
    """The task's table with random images in memory."""
    table = task.table
    pixels = np.random.default_rng(0).integers(0, 256, (len(table), size, size, 3)).astype(np.uint8)
    return LabelTable(table.files, table.classes, table.labels, table.split, table.root, pixels)


def kept(rows: int, features: int) -> CachedActivations:
    return CachedActivations(np.random.default_rng(0).random((rows, features)).astype(np.float16), np.arange(rows))


def stage_of(depth: str, backbone: Backbone, task: Task, batch: int) -> tuple[Stage, int]:
    """What learns at a depth, and the bytes that are kept of an image and its mirrored self."""
    classifier = Classifier(backbone, [str(number) for number in range(CLASSES)])
    groups, rows = [Group(classifier.backbone), Group(classifier.head)], len(task.table)
    if depth == "head":
        features = torch.rand(rows, backbone.feature_dim).half()
        config = LinearConfig(batch_size=batch)
        head = classifier.head
        return Stage("linear", head, head, FeatureSource(features), groups[1:], config, 64), 2 * backbone.feature_dim
    learning = FinetuneConfig(batch_size=batch)
    if depth == "all":
        images = ImageSource(with_pixels(task, backbone.preprocessing.size), backbone.preprocessing, CPU, workers=0)
        return Stage("finetune", classifier, classifier.head, images, groups, learning, 64), 0
    cut = split_at(backbone, depth)
    size = cut.backbone.feature_dim
    source = ActivationSource(kept(rows, size), kept(rows, size), 0.5, CPU)
    return Stage("finetune", TrainableSuffix(classifier, cut), classifier.head, source, groups, learning, 64), 4 * size


def epoch_seconds(trainer: Trainer) -> float:
    trainer.progress = Progress()
    start = time.process_time()
    trainer.train_epoch(1)
    return time.process_time() - start


def arguments() -> Any:
    parser = argparse.ArgumentParser()
    parser.add_argument("backbone", nargs="?", default="tf_efficientnet_lite0")
    parser.add_argument("--stages", default=STAGES)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--turns", type=int, default=3)
    return parser.parse_args()


def main() -> None:
    asked = arguments()
    task = make_task(4 * asked.batch, 1)
    depths = ["all", *asked.stages.split(","), "head"]
    print(f"{asked.backbone} at {asked.size} pixels, batch {asked.batch}, {torch.get_num_threads()} threads")
    print("| learns from | images a processor second | / all | kept of an image |")
    print("|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        trainers, sizes = {}, {}
        for depth in depths:
            backbone = create_backbone(asked.backbone, weights="none", image_size=asked.size)
            stage, sizes[depth] = stage_of(depth, backbone, task, asked.batch)
            trainers[depth] = make_trainer("bce", task, stage, Config(), str(Path(folder)))
            epoch_seconds(trainers[depth])
        times = {depth: float("inf") for depth in depths}
        for _ in range(asked.turns):
            for depth, trainer in trainers.items():
                times[depth] = min(times[depth], epoch_seconds(trainer))
    for depth in depths:
        speed, room = len(task.train) / times[depth], f"{sizes[depth] / 1e3:,.0f} kB" if sizes[depth] else "–"
        print(f"| {depth} | {speed:,.1f} | {times['all'] / times[depth]:.1f} × | {room} |")


if __name__ == "__main__":
    main()
