"""Features of images, each extracted once: whichever datasets an image is in, its features are found again.

They lie in a folder that grows, written by any number of processes and whole after any crash.

A store is a folder of segments. Each belongs to the process that made it and to no other, and is a pair of files:
`*.features` holds float16 rows (n, D), `*.keys` a record for every row that is safely on disk. A row counts if its
record is there and its checksum is right; all others are as if they had never been computed.
"""

import hashlib
import json
import os
import shutil
import tempfile
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import IO, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from onepair.data.images.blocks import Computer, images_of, stream_images
from onepair.data.images.decode import Preprocessing
from onepair.data.images.image_files import SIZE, digests_of
from onepair.data.label_table import LabelTable, Problem, Report, raise_problem
from onepair.errors import DataError
from onepair.files import is_abandoned, replacing, signature, write_atomically, writing
from onepair.labels import Indices

View = Literal["plain", "flipped"]
OnProgress = Callable[[int, int], None]  # rows done, rows in all
ROWS_PER_COMMIT = 512  # at most so many rows are computed again after a crash

Features = NDArray[np.float16]
Keys = NDArray[np.void]  # (N,) of SIZE bytes each

_KEY = np.dtype((np.void, SIZE))
_RECORD = np.dtype([("key", _KEY), ("check", np.uint32), ("spare", np.uint32)])
ROWS_AT_ONCE = 4096  # that are written to a file of somebody's own
_IN_MEMORY = 256 * 2**20  # bytes; larger results are mapped from a file
_AT_ONCE = 64 * 2**20  # bytes that are copied


class Found(NamedTuple):
    """Where images are."""

    segment: NDArray[np.int32]  # (N,) index of a segment, -1 where an image is in none
    row: NDArray[np.int64]  # (N,) in it


class FeatureStore:
    """The features of images, all computed in one way.

    Args:
        folder: made if need be.
        dim: how many features an image has.
        description: what was computed, for whoever looks into the folder.
    """

    def __init__(self, folder: Path, dim: int, description: dict[str, object]) -> None:
        self.folder, self.dim = folder, dim
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "store.json").exists():
            write_atomically(folder / "store.json", json.dumps({**description, "features": dim}, indent=1).encode())
        self._open()

    def _open(self) -> None:
        """Look at all segments there are; later ones come last."""
        self.segments: list[Features] = []
        self.checks: list[NDArray[np.uint32]] = []
        keys: list[Keys] = []
        for file in sorted(self.folder.glob("*.keys")):
            content = file.read_bytes()
            records = np.frombuffer(content, _RECORD, len(content) // _RECORD.itemsize)  # the last may be torn
            rows = _mapped(file.with_suffix(".features"), self.dim)
            count = min(len(records), len(rows))
            if count:
                self.segments.append(rows[:count])
                self.checks.append(records["check"][:count])
                keys.append(records["key"][:count])
        lengths = list(map(len, keys))
        every = np.concatenate(keys) if keys else np.empty(0, _KEY)
        # Of an image that is there twice the last counts: it was computed again for a reason.
        self._keys, first = np.unique(every[::-1], return_index=True)
        index = len(every) - 1 - first
        self._segment = np.repeat(np.arange(len(keys), dtype=np.int32), lengths)[index]
        self._row = np.concatenate([np.arange(length) for length in lengths] or [np.empty(0, np.int64)])[index]

    def find(self, keys: Keys) -> Found:
        """Where the features of images are, those of damaged rows left out."""
        index = np.minimum(np.searchsorted(self._keys, keys), max(len(self._keys) - 1, 0))
        there = self._keys[index] == keys if len(self._keys) else np.zeros(len(keys), bool)
        segment = np.full(len(keys), -1, np.int32)
        row = np.zeros(len(keys), np.int64)
        segment[there], row[there] = self._segment[index[there]], self._row[index[there]]
        plain = [np.asarray(rows) for rows in self.segments]  # a row of a memmap takes longer to get than to check
        for at in np.flatnonzero(there).tolist():
            each, which = segment[at], row[at]
            if zlib.crc32(plain[each][which]) != self.checks[each][which]:
                segment[at] = -1
        return Found(segment, row)

    def read(self, found: Found) -> Features:
        """The features (N, D) of images, read-only; NaN for those that are not there.

        Where they lie one after another they are mapped from the segment. Elsewhere they are brought together: in
        memory, or if they are large in a file that goes away with the array.
        """
        segment, row = found
        if len(row) and segment[0] >= 0 and (segment == segment[0]).all() and (np.diff(row) == 1).all():
            mapped: Features = self.segments[segment[0]][row[0] : row[0] + len(row)]
            return mapped
        features = _empty((len(row), self.dim), self.folder)
        at_once = max(1, _AT_ONCE // (2 * self.dim))
        for start in range(0, len(row), at_once):
            part = slice(start, start + at_once)
            features[part] = np.nan
            for each in np.unique(segment[part][segment[part] >= 0]).tolist():
                wanted = np.flatnonzero(segment[part] == each)
                features[start + wanted] = self.segments[each][row[part][wanted]]
        features.flags.writeable = False
        return features

    def refresh(self) -> None:
        """Look again, at what this process and others have added."""
        self._open()


class Segment:
    """A segment that this process writes: a context manager, so that all rows it was given are there in the end."""

    def __init__(self, store: FeatureStore) -> None:
        self._store = store
        self._waiting: list[tuple[bytes, Features]] = []
        self._files: tuple[IO[bytes], IO[bytes]] | None = None

    def add(self, keys: list[bytes], features: Features) -> None:
        """Append rows (n, D); they reach the disk at the next commit."""
        self._waiting += zip(keys, features, strict=True)
        if len(self._waiting) >= ROWS_PER_COMMIT:
            self.commit()

    def commit(self) -> None:
        """Write what waits: first the features, and only when these are on disk the records that count on them."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []  # what fails half-way must not be written once more behind that half
        features = np.stack([row for _, row in waiting])
        record = np.zeros(len(features), _RECORD)
        record["key"] = np.array([key for key, _ in waiting], _KEY)
        record["check"] = [zlib.crc32(row) for row in features]
        with writing(self._store.folder):
            rows, records = self._files or self._create()
            for file, content in ((rows, features.tobytes()), (records, record.tobytes())):
                file.write(content)
                file.flush()
                os.fsync(file.fileno())

    def _create(self) -> tuple[IO[bytes], IO[bytes]]:
        _remove_abandoned(self._store.folder)
        stem = f"{time.time_ns():020}-{signature()}"  # later segments have later names
        rows, records = ((self._store.folder / f"{stem}.{kind}").open("xb") for kind in ("features", "keys"))
        self._files = rows, records
        return rows, records

    def __enter__(self) -> "Segment":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.commit()
        finally:
            for file in self._files or ():
                with suppress(OSError):  # of what could not be written before
                    file.close()


def _remove_abandoned(folder: Path) -> None:
    """Remove the segments of processes that were killed before they had committed a row."""
    for rows in folder.glob("*.features"):
        records = rows.with_suffix(".keys")
        if is_abandoned(rows) and not (records.exists() and records.stat().st_size):
            records.unlink(missing_ok=True)
            rows.unlink(missing_ok=True)


def _mapped(file: Path, dim: int) -> Features:
    """The rows that a file holds."""
    try:
        rows = file.stat().st_size // (2 * dim)
        return np.memmap(file, np.float16, "r", shape=(rows, dim)) if rows else np.empty((0, dim), np.float16)
    except OSError:
        return np.empty((0, dim), np.float16)


def _empty(shape: tuple[int, int], folder: Path) -> Features:
    if 2 * shape[0] * shape[1] <= _IN_MEMORY:
        return np.empty(shape, np.float16)
    with writing(folder), tempfile.TemporaryFile(dir=folder) as file:
        if hasattr(os, "posix_fallocate"):  # or the process would end where a mapped file has no room
            os.posix_fallocate(file.fileno(), 0, 2 * shape[0] * shape[1])
        return np.memmap(file, np.float16, "w+", shape=shape)


def as_keys(digests: list[bytes]) -> Keys:
    """Digests as an array."""
    return np.array(digests, _KEY)


def unique_rows(keys: Keys) -> Indices:
    """The first row of each image, in their order."""
    return np.sort(np.unique(keys, return_index=True)[1])


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

    def write(self, path: str | Path) -> None:
        """Write the features to a .npy file; the array may be larger than memory."""
        # By writing, since a disk that is full ends the process where a mapped file has no room.
        with replacing(Path(path)) as file:
            np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(self.features))
            for start in range(0, len(self.features), ROWS_AT_ONCE):
                file.write(self.features[start : start + ROWS_AT_ONCE].tobytes())


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
    for index, digest in enumerate(digests_of(images_of(table, rows), memory=memory)):
        if isinstance(digest, DataError):
            file = str(table.path(rows[index]))
            report(Problem("unreadable image", file, str(digest).removeprefix(f"{file}: ")))
            readable[index] = False
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
