"""A dataset of 46 images that a network of four convolutions learns in moments, and runs on it."""

import itertools
import logging
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from lightning_fabric import fabric
from PIL import Image

from onepair.runs.config import build_config, merge, parse_setting
from onepair.runs.folder import RunFolder
from onepair.training.callbacks import Callback
from onepair.training.hardware import Hardware
from onepair.training.run import train

CLASSES = ("red", "green", "blue", "striped")
fabric._load_external_callbacks = lambda group: []  # which looks through all installed packages, at every run
TRAIN, TEST, SIZE = 37, 9, 16  # odd numbers, so that batches and their parts are uneven

ADAM = ("optimiser.name=adam", "optimiser.lr=0.01", "optimiser.weight_decay=0.001", "batch_size=8")
SETTINGS = (
    "data.observe=single-positive",
    "model.backbone=small-cnn",
    f"model.image_size={SIZE}",
    "model.mode=linear",
    "method.name=bce",
    *(f"{stage}.{setting}" for stage in ("linear", "finetune") for setting in ADAM),
    "finetune.optimiser.head_lr_multiplier=1",
    "finetune.epochs=2",
    "linear.epochs=3",
    "linear.protocol=epochs",
    "seed=3",
)


def labels_of(rows: int) -> np.ndarray:
    """Every row has a positive, every class positives and negatives in each dozen rows."""
    combinations = [row for row in itertools.product((0, 1), repeat=len(CLASSES)) if any(row)]
    order = np.random.default_rng(5).integers(len(combinations), size=rows)
    return np.array(combinations, np.int8)[order]


def picture(labels: np.ndarray, random: np.random.Generator) -> np.ndarray:
    pixels = random.integers(0, 90, (SIZE, SIZE, 3))
    pixels[..., np.flatnonzero(labels[:3])] += 120
    pixels[::4] += 40 * labels[3]
    return pixels.astype(np.uint8)


def write_table(path: Path, splits: list[str], labels: np.ndarray) -> Path:
    """A CSV for images that are called by their row; unknown labels are blank."""
    lines = [",".join(("file", "split", *CLASSES))]
    for row, (split, values) in enumerate(zip(splits, labels.tolist(), strict=True)):
        lines.append(",".join((f"{row:02}.png", split, *("" if value < 0 else str(value) for value in values))))
    path.write_text("\n".join(lines) + "\n")
    return path


def write_images(folder: Path) -> Path:
    random, labels = np.random.default_rng(7), labels_of(TRAIN + TEST)
    for row, values in enumerate(labels):
        Image.fromarray(picture(values, random)).save(folder / f"{row:02}.png")
    return write_table(folder / "labels.csv", ["train"] * TRAIN + ["test"] * TEST, labels)


SOLVED = "linear.protocol=solve"


def tiny_config(source, *settings):
    """A configuration by epochs, but for what `settings` say; with `SOLVED` among them, of a classifier solved for."""
    usual = [text for text in SETTINGS if not (SOLVED in settings and text.startswith("linear."))]
    return build_config(merge([parse_setting(text) for text in (f"data.source='{source}'", *usual, *settings)]))


class Listener(Callback):
    """Takes down all that a run tells, and all messages up to the next listener."""

    handler = logging.Handler()

    def __init__(self) -> None:
        logger = logging.getLogger("onepair")
        logger.removeHandler(Listener.handler)
        Listener.handler = logging.Handler(logging.INFO)
        Listener.handler.emit = lambda record: self.said.append(record.getMessage())
        logger.addHandler(Listener.handler)
        logger.setLevel(logging.INFO)
        self.said: list[str] = []
        self.batches: list[dict[str, Any]] = []
        self.epochs: list[dict[str, Any]] = []

    def on_batch_end(self, **facts):
        self.batches.append(facts)

    def on_epoch_end(self, record):
        self.epochs.append(record)


class Done(NamedTuple):
    results: dict[str, Any]
    folder: RunFolder
    listener: Listener

    @property
    def weights(self) -> bytes:
        return (self.folder.path / "model.safetensors").read_bytes()


def train_tiny(source, *settings, out, cache, listener=None):
    listener, folder = listener or Listener(), RunFolder(out)
    hardware = Hardware(accelerator="cpu", devices=1, workers=0, cache=cache)
    return Done(
        train(tiny_config(source, *settings), folder, hardware=hardware, callbacks=[listener]), folder, listener
    )
