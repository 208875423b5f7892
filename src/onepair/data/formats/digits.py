"""The embedded dataset: scenes of handwritten digits, composed from those that scikit-learn ships."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onepair.data.formats import register_reader
from onepair.data.label_table import LabelTable, Report, raise_problem
from onepair.data.text_files import exists
from onepair.label_matrix import LabelMatrix
from onepair.labels import Labels

CLASSES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")

_DIGIT = 8  # pixels across a digit
_CELL = 10  # a digit lies anywhere in its cell, so no two overlap
_CELLS = 3  # across a scene
_SCENE = 32  # pixels across a scene; the grid of cells lies anywhere in it
_TRAIN_SAMPLES = 1200  # of the 1,797 handwritten digits; test scenes use the others


def detect(path: Path) -> bool:
    """Whether `path` is the word digits, and no file or folder has that name."""
    return path == Path("digits") and not exists(path)


@register_reader(
    "digits",
    detect=detect,
    description="scenes of handwritten digits, embedded in the package",
    layout="the word digits in place of a path",
)
def read(path: Path, *, report: Report = raise_problem) -> LabelTable:
    """Return the embedded dataset; see `read_digits`."""
    return read_digits()


def read_digits(*, train: int = 3000, test: int = 1000, seed: int = 0) -> LabelTable:
    """Compose scenes of one to five different digits, 2.6 on average; the labels say which digits appear.

    Training and test scenes share no handwritten digit. scikit-learn keeps the digits in the order they were
    collected, writer by writer, so most test digits are by writers that training never sees.

    Args:
        train, test: how many scenes of each split.
        seed: of the composition; the same seed gives the same scenes.

    >>> table = read_digits(train=20, test=10)
    >>> table.pixels.shape, table.labels.shape
    ((30, 32, 32, 3), (30, 10))
    """
    from sklearn.datasets import load_digits

    if train < 1 or test < 1:
        raise ValueError(f"train and test must be at least 1 scene each, got {train} and {test}")
    images, digits = load_digits(return_X_y=True)
    ink = np.round(images.reshape(-1, _DIGIT, _DIGIT) * (255 / 16)).astype(np.uint8)
    parts = [
        _compose(ink[samples], digits[samples], scenes, np.random.default_rng([seed, part]))
        for part, (samples, scenes) in enumerate(
            [(slice(0, _TRAIN_SAMPLES), train), (slice(_TRAIN_SAMPLES, None), test)]
        )
    ]
    pixels, labels = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return LabelTable(
        files=tuple(f"{split}/{i:05}.png" for split, n in (("train", train), ("test", test)) for i in range(n)),
        classes=CLASSES,
        labels=LabelMatrix.of(labels),
        split=np.repeat(["train", "test"], [train, test]),
        root=Path("digits"),
        pixels=pixels,
    )


def _compose(
    ink: NDArray[np.uint8], digits: NDArray[Any], scenes: int, random: np.random.Generator
) -> tuple[NDArray[np.uint8], Labels]:
    """Scenes (N, H, W, 3) in dark ink on white, and their labels (N, 10)."""
    samples_of = [np.flatnonzero(digits == digit) for digit in range(len(CLASSES))]
    canvas = np.zeros((scenes, _SCENE, _SCENE), np.uint8)
    labels = np.zeros((scenes, len(CLASSES)), np.int8)
    for scene, row in zip(canvas, labels, strict=True):
        shown = random.choice(len(CLASSES), size=1 + random.binomial(4, 0.4), replace=False)
        cells = random.choice(_CELLS**2, size=len(shown), replace=False)
        grid = random.integers(0, _SCENE - _CELLS * _CELL + 1, size=2)
        for digit, cell in zip(shown, cells, strict=True):
            top, left = grid + np.array(divmod(cell, _CELLS)) * _CELL + random.integers(0, _CELL - _DIGIT + 1, size=2)
            scene[top : top + _DIGIT, left : left + _DIGIT] = ink[random.choice(samples_of[digit])]
            row[digit] = 1
    return np.repeat(255 - canvas[..., None], 3, axis=-1), labels
