"""Scores of images from a finished run."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from lightning_fabric import Fabric
from numpy.typing import NDArray

from onepair.data.decoding import FORMATS
from onepair.data.labeltable import LabelTable
from onepair.data.problems import DataError
from onepair.labels import UNKNOWN, Indices
from onepair.models import Classifier
from onepair.training.gathering import score
from onepair.training.sources import ImageSource

_SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff"}
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
    files = [file for path in paths for file in (_images_below(path) if path.is_dir() else [path])]
    if not files:
        raise DataError(f"no images to predict; they are known by their names, as of {', '.join(FORMATS)}")
    return LabelTable(
        files=tuple(map(str, files)),
        classes=tuple(classes),
        labels=np.full((len(files), len(classes)), UNKNOWN, np.int8),
        split=np.full(len(files), "test"),
        root=Path(),
    )


def _images_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in _SUFFIXES)
