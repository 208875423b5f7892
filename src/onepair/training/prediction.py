"""Scores of images from a finished run."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from lightning_fabric import Fabric
from numpy.typing import NDArray

from onepair.data.labeltable import LabelTable
from onepair.labels import UNKNOWN, Indices
from onepair.models import Classifier
from onepair.prediction import image_files
from onepair.training.gathering import score
from onepair.training.sources import ImageSource

_BATCH = 32


def score_images(
    classifier: Classifier, table: LabelTable, rows: Indices, *, workers: int | None = None
) -> NDArray[np.float32]:
    """The logits (N, L) of rows of a table, on the best device at hand."""
    fabric = Fabric(accelerator="auto", devices=1)
    model = classifier.to(fabric.device)
    source = ImageSource(table, classifier.backbone.preprocessing, fabric.device, workers=workers)
    return score(fabric, model, source, rows, batch_size=_BATCH).numpy()


def table_of_files(paths: Iterable[Path], classes: Sequence[str]) -> LabelTable:
    """A table of image files, and of all those in folders and the folders below, with nothing known of their labels."""
    files = [file for path in paths for file in image_files(path)]
    return LabelTable(
        files=tuple(map(str, files)),
        classes=tuple(classes),
        labels=np.full((len(files), len(classes)), UNKNOWN, np.int8),
        split=np.full(len(files), "test"),
        root=Path(),
    )
