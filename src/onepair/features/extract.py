"""Features of images, each extracted once: whichever datasets an image is in, its features are found again."""

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from onepair.data.images.blocks import Computer, images_of, stream_images
from onepair.data.images.decode import Preprocessing
from onepair.data.images.digests import SIZE, digests_of
from onepair.data.label_table import LabelTable
from onepair.data.problems import Problem, Report, raise_problem
from onepair.errors import DataError
from onepair.features.store import Features, FeatureStore, Keys, Segment, as_keys, unique_rows
from onepair.labels import Indices

View = Literal["plain", "flipped"]
OnProgress = Callable[[int, int], None]  # rows done, rows in all


class Extractor(Protocol):
    """What the cache asks of a backbone."""

    name: str
    feature_dim: int

    def weights_id(self) -> str: ...


class Extraction(NamedTuple):
    """The features of images, and what was done to have them."""

    features: Features  # (N, D), read-only; NaN for images that cannot be read
    new: int  # images that were computed now
    there: int  # images that were there before
    unreadable: int
    folder: Path  # that they are kept in


def extract_features(
    table: LabelTable,
    backbone: Extractor,
    preprocessing: Preprocessing,
    engines: Callable[[int], Computer],
    *,
    folder: Path,
    rows: Indices | None = None,
    view: View = "plain",
    workers: int | None = None,
    report: Report = raise_problem,
    on_progress: OnProgress = lambda done, rows: None,
) -> Extraction:
    """Find the features of images, and compute those that nobody has computed before.

    An image is known by what its file holds, so a dataset may grow, be cut, moved or copied: only new images are
    computed. Several processes may do so at once, each a part of the rows or the same. One that is killed leaves all
    but its last few rows.

    Args:
        table, rows: which images, in which order.
        backbone: what is computed; its name and weights decide where features are kept.
        preprocessing: how images are scaled and normalised.
        engines: gives what computes so many images.
        folder: holds everything; made if need be.
        view: "flipped" mirrors every image, to keep an augmented view beside the plain one.
        workers: as in `image_blocks`.
        report: told of each image that cannot be read, as in `image_blocks`.
        on_progress: called with the rows done and the rows in all, first with those that were there.
    """
    chosen = np.arange(len(table)) if rows is None else np.asarray(rows)
    if len(chosen) == 0:
        raise DataError("there are no images to extract features of")
    description = _describe(backbone, preprocessing, view)
    digest = hashlib.sha256(json.dumps(description).encode()).hexdigest()[:16]
    keys, readable = _keys(table, chosen, folder / "contents.sqlite", report)
    store = FeatureStore(folder / f"{backbone.name.replace('/', '-')}-{digest}", backbone.feature_dim, description)
    found = store.find(keys)
    first = unique_rows(keys)
    missing = first[(found.segment[first] < 0) & readable[first]]
    there = int((found.segment >= 0).sum())
    if len(missing):
        _require_room(store, len(missing))
        engine, images = engines(len(missing)), images_of(table, chosen[missing])
        computed = stream_images(engine, images, preprocessing, flip=view == "flipped", workers=workers, report=report)
        done = len(chosen) - len(missing)
        with Segment(store) as segment:
            on_progress(done, len(chosen))
            for block in computed:
                segment.add([key.tobytes() for key in keys[missing[block.rows]]], _halve(block.scores))
                on_progress(done + block.seen, len(chosen))
        store.refresh()
        found = store.find(keys)
    unreadable = int((found.segment < 0).sum())
    return Extraction(store.read(found), len(chosen) - there - unreadable, there, unreadable, store.folder)


def _keys(table: LabelTable, rows: Indices, memory: Path, report: Report) -> tuple[Keys, NDArray[np.bool_]]:
    """Return what tells each image from any other, and whether its file can be read at all."""
    keys, readable = [], np.ones(len(rows), bool)
    for place, digest in enumerate(digests_of(images_of(table, rows), memory=memory)):
        if isinstance(digest, DataError):
            file = str(table.path(rows[place]))
            report(Problem("unreadable image", file, str(digest).removeprefix(f"{file}: ")))
            readable[place] = False
        keys.append(bytes(SIZE) if isinstance(digest, DataError) else digest)
    return as_keys(keys), readable


def _halve(features: NDArray[np.float32]) -> Features:
    """Round features to half precision."""
    with np.errstate(over="ignore"):
        halves: Features = features.astype(np.float16)
    if not np.isfinite(halves).all():
        raise DataError("the backbone's features are not finite in half precision; are its weights the right ones?")
    return halves


def _require_room(store: FeatureStore, rows: int) -> None:
    """Refuse to begin what the disk cannot hold."""
    needed, free = 2 * rows * store.dim, shutil.disk_usage(store.folder).free
    if needed > free:
        raise DataError(
            f"{store.folder}: {rows:,} images take {needed / 1e9:,.1f} GB there, and {free / 1e9:,.1f} GB are free; "
            "make room, or name another folder with --cache"
        )


def _describe(backbone: Extractor, preprocessing: Preprocessing, view: View) -> dict[str, object]:
    """Describe all that decides the features of an image. Mirroring in training does not."""
    scaling = asdict(preprocessing)
    del scaling["flip"]
    return {
        "backbone": backbone.name,
        "weights": backbone.weights_id(),
        "preprocessing": scaling,
        "view": view,
        "dtype": "float16",
    }
