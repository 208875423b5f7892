"""The training loop: epochs of linear runs against a plain loop, fine-tuning steps against a bare step (`make bench`).

Random features and images of the sizes of VOC 2012, so that no data is needed: the times do not depend on them.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from onepair.data.labeltable import LabelTable
from onepair.labels import Indices, observe_positives
from onepair.methods import METHODS, create_method
from onepair.metrics import mean_average_precision
from onepair.models import Classifier, create_backbone
from onepair.training.config import Config, OptimiserConfig
from onepair.training.folder import RunFolder
from onepair.training.loop import Phase, Trainer
from onepair.training.run import Machine, Silence
from onepair.training.sources import FeatureSource, Inputs, Shard
from onepair.training.task import Task

TRAIN, VALIDATION, CLASSES, FEATURES, BATCH = 4574, 1143, 20, 1280, 16
ADAM = OptimiserConfig(name="adam", lr=3e-4, weight_decay=0.0)


def make_task(train: int, validation: int) -> Task:
    rows = train + validation
    labels = (np.random.default_rng(0).random((rows, CLASSES)) < 0.075).astype(np.int8)
    labels[:, 0] |= ~labels.any(1)  # no image without a positive
    return Task(
        table=LabelTable(
            files=tuple(map(str, range(rows))),
            classes=tuple(f"class {i}" for i in range(CLASSES)),
            labels=labels,
            split=np.full(rows, "train"),
            root=Path(),
        ),
        train=np.arange(train),
        validation=np.arange(train, rows),
        test=np.arange(0),
        observed=observe_positives(labels[:train]),
        validation_labels=labels[train:],
        selected_on="made-up labels",
    )


def make_trainer(name: str, task: Task, phase: Phase, config: Config, folder: str) -> Trainer:
    method = create_method(name, **({"epochs": phase.epochs} if METHODS[name].needs_epochs else {}))
    method.begin(torch.from_numpy(task.observed))
    fabric = Machine(accelerator="cpu", devices=1).fabric("32-true")
    return Trainer(fabric, phase, method, task, config, folder=RunFolder(Path(folder)), watch=Silence(), earlier=[])


def linear_epoch(name: str, task: Task, features: Tensor, epochs: int) -> float:
    """Seconds an epoch of a linear run takes, with its validation, its method's scores and its checkpoint."""
    head = nn.Linear(FEATURES, CLASSES)
    phase = Phase("linear", head, head, FeatureSource(features), [(head.parameters(), 1.0)], epochs, ADAM.lr, 4096)
    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(name, task, phase, Config(optimiser=ADAM, batch_size=BATCH), folder)
        start = time.perf_counter()
        trainer.run()
        return (time.perf_counter() - start) / epochs


def plain_epoch(task: Task, features: Tensor, epochs: int) -> float:
    """The same by a loop as one would write it, with binary cross entropy."""
    head = nn.Linear(FEATURES, CLASSES)
    optimiser = torch.optim.Adam(head.parameters(), lr=3e-4)
    targets = torch.from_numpy(task.observed).clamp(min=0).float()
    start = time.perf_counter()
    for _ in range(epochs):
        for rows in torch.randperm(TRAIN).split(BATCH):  # type: ignore[no-untyped-call]
            loss = binary_cross_entropy_with_logits(head(features[rows].float()), targets[rows])
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        with torch.no_grad():
            mean_average_precision(head(features[TRAIN:].float()), task.validation_labels)
    return (time.perf_counter() - start) / epochs


class RandomImages:
    """A source of images that are already in memory."""

    def __init__(self, batches: int, size: int) -> None:
        self.images = torch.rand(batches, 8, 3, size, size)

    def batches(
        self, rows: Indices, *, batch_size: int, shard: Shard, training: bool, seed: int = 0, epoch: int = 0
    ) -> Iterator[Inputs]:
        for number, images in enumerate(self.images):
            yield Inputs(images.contiguous(memory_format=torch.channels_last), torch.arange(8) + 8 * number)


def step_times(name: str | None, task: Task, images: RandomImages, folder: str) -> Callable[[], float]:
    """A function that trains over the images once and returns the seconds; None is the bare loop of timm's model."""
    classifier = Classifier(create_backbone("tf_efficientnet_lite0", weights="none"), task.table.classes)
    if name is None:
        optimiser = torch.optim.SGD(classifier.parameters(), lr=1e-4, momentum=0.9, weight_decay=1e-3, fused=True)
        targets = torch.from_numpy(task.observed).clamp(min=0).float()

        def bare() -> float:
            classifier.train()
            start = time.perf_counter()
            for inputs in images.batches(task.train, batch_size=8, shard=Shard(), training=True):
                loss = binary_cross_entropy_with_logits(classifier(inputs.inputs), targets[inputs.rows])
                optimiser.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
            return time.perf_counter() - start

        return bare
    phase = Phase("finetune", classifier, classifier.head, images, [(classifier.parameters(), 1.0)], 15, 1e-4, 64)
    trainer = make_trainer(name, task, phase, Config(batch_size=8), folder)

    def train() -> float:
        start = time.perf_counter()
        trainer.train_epoch(1)
        return time.perf_counter() - start

    return train


def main() -> None:
    task = make_task(TRAIN, VALIDATION)
    features = torch.randn(TRAIN + VALIDATION, FEATURES).half()
    print(f"linear: {TRAIN} × {FEATURES} features, batch {BATCH}, with validation; {torch.get_num_threads()} threads")
    print("| loop | seconds an epoch | / plain loop |")
    print("|---|---|---|")
    names = ["plain loop", "bce", "opml", "opml-sp"]
    times: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(3):
        for name in names:
            seconds = plain_epoch(task, features, 5) if name == names[0] else linear_epoch(name, task, features, 5)
            times[name].append(seconds)
    for name in names:
        best = min(times[name])
        print(f"| {name} | {best:.3f} | {best / min(times[names[0]]):.2f} |")

    images = RandomImages(batches=4, size=160)
    small = make_task(32, 8)
    print("\nfinetune: EfficientNet-Lite0 at 160 pixels, batch 8, images in memory")
    print("| method | step / bare step | state / label matrix |")
    print("|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        bare = step_times(None, small, images, folder)
        for name in METHODS:
            train = step_times(name, small, images, folder)
            ratios = [train() / bare() for _ in range(4)][1:]
            print(f"| {name} | {median(ratios):.3f} | {state_size(name, task):.0f} × |")


def state_size(name: str, task: Task) -> float:
    """The bytes of a method's state for the labels of VOC, relative to the int8 label matrix."""
    method = create_method(name, **({"epochs": 15} if METHODS[name].needs_epochs else {}))
    method.begin(torch.from_numpy(task.observed))
    return float(sum(each.nbytes for each in method.state_dict().values()) / task.observed.nbytes)


if __name__ == "__main__":
    main()
