"""The training loop: epochs of linear runs against a plain loop, fine-tuning steps against a bare step (`make bench`).

Random features and images of the sizes of VOC 2012, so that no data is needed: the times do not depend on them.
"""

import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from onepair.data.label_table import LabelTable
from onepair.label_matrix import LabelMatrix
from onepair.labels import observe_positives
from onepair.methods import METHODS, create_method
from onepair.metrics import mean_average_precision
from onepair.models import Classifier, create_backbone
from onepair.runs.config import Config, LinearConfig, StageConfig
from onepair.runs.folder import RunFolder
from onepair.runs.task import Task
from onepair.training.checkpoint import StopRequests
from onepair.training.hardware import Hardware
from onepair.training.loop import Group, Progress, Stage, Trainer
from onepair.training.sources import BatchPlan, FeatureSource

TRAIN, VALIDATION, CLASSES, FEATURES, BATCH = 4574, 1143, 20, 1280, 16


def make_task(train: int, validation: int) -> Task:
    rows = train + validation
    labels = (np.random.default_rng(0).random((rows, CLASSES)) < 0.075).astype(np.int8)
    labels[:, 0] |= ~labels.any(1)  # no image without a positive
    return Task(
        table=LabelTable(
            files=tuple(map(str, range(rows))),
            classes=tuple(f"class {i}" for i in range(CLASSES)),
            labels=LabelMatrix.of(labels),
            split=np.full(rows, "train"),
            root=Path(),
        ),
        train=np.arange(train),
        validation=np.arange(train, rows),
        test=np.arange(0),
        observed=LabelMatrix.of(observe_positives(labels[:train])),
        validation_labels=LabelMatrix.of(labels[train:]),
        selected_on="made-up labels",
    )


def make_trainer(name: str, task: Task, stage: Stage, config: Config, folder: str) -> Trainer:
    method = create_method(name, **METHODS[name].run_options(epochs=stage.config.epochs))
    method.begin(torch.from_numpy(task.observed.dense()))
    fabric = Hardware(accelerator="cpu", devices=1).fabric("32-true")
    return Trainer(
        fabric,
        stage,
        method,
        task,
        config,
        folder=RunFolder(Path(folder)),
        callbacks=(),
        earlier=[],
        requests=StopRequests(),
    )


def linear_epoch(name: str, task: Task, features: Tensor, epochs: int) -> float:
    """Seconds an epoch of a linear run takes, with its validation, its method's scores and its checkpoint."""
    head, config = nn.Linear(FEATURES, CLASSES), LinearConfig(epochs=epochs, batch_size=BATCH)
    stage = Stage("linear", head, head, FeatureSource(features), [Group(head)], config, 4096)
    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(name, task, stage, Config(), folder)
        start = time.perf_counter()
        trainer.run()
        return (time.perf_counter() - start) / epochs


def plain_epoch(task: Task, features: Tensor, epochs: int) -> float:
    """The same by a loop as one would write it, with binary cross entropy."""
    head = nn.Linear(FEATURES, CLASSES)
    optimiser = torch.optim.Adam(head.parameters(), lr=3e-4)
    targets = torch.from_numpy(task.observed.dense()).clamp(min=0).float()
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


def bare_step() -> float:
    """Seconds of a fine-tuning step as one would write it: EfficientNet-Lite0 at 160 pixels, batch 8, torch's BCE."""
    model = Classifier(create_backbone("tf_efficientnet_lite0", weights="none"), [str(i) for i in range(CLASSES)])
    optimiser = torch.optim.SGD(model.train().parameters(), lr=1e-4, momentum=0.9, weight_decay=1e-3, fused=True)
    images = torch.rand(8, 3, 160, 160).contiguous(memory_format=torch.channels_last)
    targets = torch.zeros(8, CLASSES)

    def step() -> float:
        start = time.perf_counter()
        loss = binary_cross_entropy_with_logits(model(images), targets)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        return time.perf_counter() - start

    return min(step() for _ in range(12))


def added_to_a_step(name: str, task: Task) -> float:
    """Seconds that the loop and a method add to every step, whatever the network.

    Measured with a model that costs next to nothing: the noise of a network's own step is larger than what is sought.
    """
    features = torch.rand(len(task.table), 1)
    head, plain = nn.Linear(1, CLASSES), nn.Linear(1, CLASSES)
    config = StageConfig(epochs=15, batch_size=8)
    stage = Stage("finetune", head, head, FeatureSource(features), [Group(head)], config, 4096)
    optimiser = torch.optim.SGD(plain.parameters(), lr=1e-4, momentum=0.9, weight_decay=1e-3, fused=True)
    targets = torch.from_numpy(task.observed.dense()).clamp(min=0).float()
    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(name, task, stage, Config(), folder)
        differences = []
        for _ in range(4):
            start = time.perf_counter()
            trainer.progress = Progress()
            trainer.train_epoch(1)
            middle = time.perf_counter()
            for inputs in stage.source.batches(BatchPlan(task.train, batch_size=8, training=True)):
                loss = binary_cross_entropy_with_logits(plain(inputs.inputs), targets[inputs.rows])
                optimiser.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
            differences.append(2 * middle - start - time.perf_counter())
    return median(differences[1:]) / -(-len(task.train) // 8)


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

    bare = bare_step()
    print(f"\nfinetune: EfficientNet-Lite0 at 160 pixels, batch 8; a bare step takes {1000 * bare:.0f} ms")
    print("| method | added to a step | step / bare step | state / label matrix |")
    print("|---|---|---|---|")
    for name in METHODS:
        added = added_to_a_step(name, task)
        print(f"| {name} | {1000 * added:.2f} ms | {1 + added / bare:.4f} | {state_size(name, task):.0f} × |")


def state_size(name: str, task: Task) -> float:
    """The bytes of a method's state for the labels of VOC, relative to the int8 label matrix."""
    method = create_method(name, **METHODS[name].run_options(epochs=15))
    method.begin(torch.from_numpy(task.observed.dense()))
    return float(sum(each.nbytes for each in method.state_dict().values()) / task.observed.size)


if __name__ == "__main__":
    main()
