"""Features of all images, extracted once and kept in a file that survives any crash."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from onepair.data.images import normalise
from onepair.data.labeltable import LabelTable
from onepair.data.loading import image_batches
from onepair.data.preprocessing import Preprocessing
from onepair.data.problems import DataError
from onepair.files import locked, write_atomically
from onepair.labels import Indices

ROWS_PER_COMMIT = 512  # at most so many rows are computed again after a crash

Features = NDArray[np.float16]
View = Literal["plain", "flipped"]
OnProgress = Callable[[int, int], None]  # rows done, rows in all


class Extractor(Protocol):
    """What the cache asks of a backbone."""

    name: str
    feature_dim: int

    def weights_id(self) -> str: ...
    def for_inference(self) -> torch.nn.Module: ...


def cached_features(
    table: LabelTable,
    backbone: Extractor,
    preprocessing: Preprocessing,
    *,
    folder: Path,
    rows: Indices | None = None,
    view: View = "plain",
    batch_size: int = 8,
    workers: int | None = None,
    on_progress: OnProgress | None = None,
) -> Features:
    """Features of the images of `rows` (all by default), a read-only array (N, D) mapped from a file in `folder`.

    What decides the features decides the file's name, so changed images or weights get a new file. An interrupted
    extraction goes on where it stopped; one that another process is at work on raises `BusyError`.

    Args:
        table, rows: which images, in which order.
        backbone: extracts on the device where it is, in evaluation mode.
        preprocessing: how images are scaled and normalised.
        folder: holds the caches; made if need be.
        view: "flipped" mirrors every image, to cache an augmented view beside the plain one.
        batch_size: small ones stay within a CPU's cache; a GPU is faster with more.
        workers: as in `image_batches`.
        on_progress: called after each batch with the rows done and the rows in all.
    """
    chosen = np.arange(len(table)) if rows is None else np.asarray(rows)
    if len(chosen) == 0:
        raise DataError("there are no images to extract features of")
    description = _describe(table, chosen, backbone, preprocessing, view)
    file = folder / f"{backbone.name}-{_digest(description)[:32]}.npy"
    if _rows_done(file) < len(chosen):
        folder.mkdir(parents=True, exist_ok=True)
        with locked(file.with_suffix(".npy.lock")):
            done = _rows_done(file) or _create(file, (len(chosen), backbone.feature_dim), description)
            batches = image_batches(
                table, chosen[done:], preprocessing, batch_size=batch_size, training=False, workers=workers
            )
            network = backbone.for_inference()
            blocks = (_extract(network, batch.images, preprocessing, view) for batch in batches)
            for done in _write(file, blocks):
                if on_progress:
                    on_progress(done, len(chosen))
    features: Features = np.load(file, mmap_mode="r")
    return features


def _describe(
    table: LabelTable, rows: Indices, backbone: Extractor, preprocessing: Preprocessing, view: View
) -> dict[str, object]:
    """All that decides the features. Mirroring in training does not."""
    scaling = asdict(preprocessing)
    del scaling["flip"]
    return {
        "backbone": backbone.name,
        "weights": backbone.weights_id(),
        "preprocessing": scaling,
        "view": view,
        "dtype": "float16",
        "images": _digest([_image_id(table, row) for row in rows.tolist()]),
    }


def _image_id(table: LabelTable, row: int) -> list[object]:
    """What tells an image from any other: its name, size and time of change, or its pixels if they are in memory.

    To read all files would take minutes for each look into the cache of a large dataset. A dataset may be moved to
    another folder; where copying changes the times, its features are extracted again.
    """
    if table.pixels is not None:
        return [hashlib.sha256(table.pixels[row].tobytes()).hexdigest(), *table.pixels[row].shape]
    try:
        stat = table.path(row).stat()
    except OSError as error:
        raise DataError(f"{table.path(row)}: {error.strerror}") from None
    return [table.files[row], stat.st_size, stat.st_mtime_ns]


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


def _marker(file: Path) -> Path:
    return file.with_suffix(".json")


def _rows_done(file: Path) -> int:
    """How many rows of a cache are safely on disk; 0 where there is none."""
    if not (file.exists() and _marker(file).exists()):
        return 0
    return int(json.loads(_marker(file).read_bytes())["rows_done"])


def _mark(file: Path, rows_done: int, description: dict[str, object]) -> None:
    write_atomically(_marker(file), json.dumps({**description, "rows_done": rows_done}, indent=1).encode())


def _create(file: Path, shape: tuple[int, int], description: dict[str, object]) -> int:
    """Make an empty cache and return the number of its rows that are done: none."""
    _marker(file).unlink(missing_ok=True)
    np.lib.format.open_memmap(file, "w+", dtype=np.float16, shape=shape).flush()
    _mark(file, 0, description)
    return 0


def _write(file: Path, blocks: Iterable[Features]) -> Iterator[int]:
    """Append blocks of rows and yield the number of rows written so far, at the start too.

    The marker moves on only after the rows before it have reached the disk, so it never claims a row that is not there.
    """
    description = json.loads(_marker(file).read_bytes())
    features = np.lib.format.open_memmap(file, "r+")
    done = committed = int(description.pop("rows_done"))
    yield done
    for block in blocks:
        features[done : done + len(block)] = block
        done += len(block)
        if done - committed >= ROWS_PER_COMMIT or done == len(features):
            features.flush()
            _mark(file, done, description)
            committed = done
        yield done


@torch.inference_mode()
def _extract(network: torch.nn.Module, images: Tensor, preprocessing: Preprocessing, view: View) -> Features:
    seen = images.flip(-1) if view == "flipped" else images
    device = next(network.parameters()).device
    features: Features = network(normalise(seen.to(device), preprocessing)).half().cpu().numpy()
    if not np.isfinite(features).all():
        raise ValueError("the backbone's features are not finite in half precision; are its weights the right ones?")
    return features
