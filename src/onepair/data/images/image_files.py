"""The images in folders: their digests, and which are the same or look nearly the same.

An object at a URL is not read for that: its address, size and version are what it is known by, where its server tells a
version (`RemotePath.version` says what is relied on). A copy of it elsewhere is another one.
"""

import contextlib
import hashlib
import os
import sqlite3
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from onepair.data.images.blocks import Source, cores
from onepair.data.images.decode import FORMATS, RAW, SUFFIXES, VIDEOS, Pixels, decode, require_no_pipe
from onepair.data.images.tar import SUFFIX, images_in_tar, in_tar
from onepair.data.text_files import is_file
from onepair.errors import DataError
from onepair.remote import NonLocalPath, all_at_once, in_threads, is_remote
from onepair.words import counted, listed

SIZE = 16  # bytes of a digest
_AT_ONCE = 500  # files, of a question to the memory
_SETTLED = 2 * 10**9  # nanoseconds after which a second change of a file cannot go unnoticed: its time has moved on
MOST_FOLDERS = 10_000  # that are looked through for files that are no images


class _State(NamedTuple):
    """A file as it was found."""

    path: str
    size: int
    changed: int  # nanoseconds


def digests_of(images: Iterable[Source], *, memory: Path) -> Iterator[bytes | DataError]:
    """The digest of each image, in their order, or what keeps it from being read.

    To read all files of a large dataset takes minutes, so digests are remembered in the file `memory` by the path, size
    and time of change. A copy of a file elsewhere is read once more, and found to be the same.
    """
    images = iter(images)
    with contextlib.closing(DigestMemory(memory)) as known, ThreadPoolExecutor(cores()) as pool:
        for some in iter(lambda: list(islice(images, _AT_ONCE)), []):
            states = list(all_at_once(_state, some, remote=any(map(is_remote, some))))
            found = known.recall([state for state in states if isinstance(state, _State)])
            digests = list(pool.map(_digest, some, states, [found.get(state) for state in states]))
            now = time.time_ns()
            known.keep(
                (state, digest)
                for state, digest in zip(states, digests, strict=True)
                if isinstance(state, _State)
                and isinstance(digest, bytes)
                and state not in found
                and state.changed < now - _SETTLED
            )
            yield from digests


def _state(image: Source) -> _State | bytes | DataError | None:
    """What a file is known by, be it its digest already."""
    if not isinstance(image, Path):
        return None
    try:
        if isinstance(image, NonLocalPath) and is_remote(image):
            version = image.version()
            return (
                None if version is None else hashlib.blake2b(f"{image}\0{version}".encode(), digest_size=SIZE).digest()
            )
        require_no_pipe(image)
        stat = image.stat()
    except (OSError, ValueError) as error:  # no file, or a name that no file system takes
        return DataError(f"{image}: {getattr(error, 'strerror', None) or error}")
    path = str(image.absolute()) if isinstance(image, NonLocalPath) else os.path.abspath(image)  # noqa: PTH100 (no links)
    return _State(path, stat.st_size, stat.st_mtime_ns)


def _digest(image: Source, state: "_State | bytes | DataError | None", known: bytes | None) -> bytes | DataError:
    if known is not None:
        return known
    if isinstance(state, DataError | bytes):
        return state
    digest = hashlib.blake2b(digest_size=SIZE)
    if not isinstance(image, Path):
        digest.update(repr(image.shape).encode())
        digest.update(image.tobytes())
        return digest.digest()
    try:
        with image.open("rb") as file:
            while part := file.read(1 << 20):
                digest.update(part)
    except OSError as error:
        return DataError(f"{image}: {error.strerror}")
    return digest.digest()


class DigestMemory:
    """Digests of files, and what images look like, in a file that processes share. One that cannot be used forgets."""

    def __init__(self, file: Path) -> None:
        self._connection: sqlite3.Connection | None = None
        with self._forgiving():
            file.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(file, timeout=10)
            self._connection.execute(
                "create table if not exists digests (path text primary key, size int, changed int, digest blob)"
            )
            self._connection.execute("create table if not exists hashes (digest blob primary key, hash blob)")

    def recall(self, states: list[_State]) -> dict[object, bytes]:
        """The digests of those files that are as they were."""
        found: dict[object, bytes] = {}
        with self._forgiving():
            if self._connection and states:
                marks = ",".join("?" * len(states))
                rows = self._connection.execute(
                    f"select path, size, changed, digest from digests where path in ({marks})",  # noqa: S608 (only marks)
                    [state.path for state in states],
                )
                found = {_State(*row[:3]): row[3] for row in rows if len(row[3]) == SIZE}
        return found

    def keep(self, digests: Iterable[tuple[_State, bytes]]) -> None:
        rows = [(*state, digest) for state, digest in digests]
        with self._forgiving():
            if self._connection and rows:
                with self._connection:
                    self._connection.executemany("insert or replace into digests values (?, ?, ?, ?)", rows)

    def hashes(self, digests: list[bytes]) -> dict[bytes, bytes]:
        """What the images of some digests look like, of those that were looked at."""
        found: dict[bytes, bytes] = {}
        with self._forgiving():
            for start in range(0, len(digests) if self._connection else 0, _AT_ONCE):
                some = digests[start : start + _AT_ONCE]
                marks = ",".join("?" * len(some))
                query = f"select digest, hash from hashes where digest in ({marks})"  # noqa: S608 (only marks)
                found |= dict(self._connection.execute(query, some)) if self._connection else {}
        return found

    def keep_hashes(self, hashes: Mapping[bytes, bytes]) -> None:
        with self._forgiving():
            if self._connection:
                with self._connection:
                    self._connection.executemany("insert or replace into hashes values (?, ?)", hashes.items())

    def close(self) -> None:
        if self._connection:
            self._connection.close()

    @contextlib.contextmanager
    def _forgiving(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError, UnicodeError):  # a digest can always be computed again
            self.close()
            self._connection = None


def image_files(path: Path) -> Iterator[Path]:
    """Yield a file itself, or all images in a folder and the folders below, sorted by the names of folders and files.

    A folder is read when its turn comes. A tar is a folder, too, whose images come in the order of the tar.
    """
    path = in_tar(path)
    is_tar = path.suffix.lower() == SUFFIX and is_file(path)
    if not is_tar and not path.is_dir():
        yield path
        return
    empty = True
    for file in images_in_tar(path) if is_tar else walk(path):
        empty = False
        yield file
    if empty:
        raise DataError(
            f"{path}: holds no images to predict; they are known by their names, as of {', '.join(FORMATS)}"
        )


def walk(folder: Path) -> Iterator[Path]:
    """Yield all images in a folder and the folders below."""
    for name, is_folder in sorted(_entries(folder)):
        if is_folder:
            yield from walk(folder / name)
        else:
            yield folder / name


def skipped_files(folder: Path) -> str:
    """Return a sentence on the videos and RAW photos in a folder and below, which are no images here; "" without any.

    >>> skipped_files(Path("there is no such folder"))
    ''
    """
    found: dict[str, list[str]] = {"video": [], "RAW photo": []}
    for _, folders, files in islice(os.walk(folder), MOST_FOLDERS):
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        for file in sorted(files):
            suffix = Path(file).suffix.lower()
            if suffix in VIDEOS or suffix in RAW:
                found["video" if suffix in VIDEOS else "RAW photo"].append(file)
    parts = [f"{counted(len(files), what)} ({listed(files)})" for what, files in found.items() if files]
    return f"left out: {' and '.join(parts)}; photos are JPEG, PNG and the like" if parts else ""


def _entries(folder: Path) -> Iterator[tuple[str, bool]]:
    """The names of the images and folders in a folder, and which are folders; links to folders are not followed."""
    try:
        if isinstance(folder, NonLocalPath):
            for each in folder.iterdir():
                is_folder = each.is_dir()
                if is_folder or each.suffix.lower() in SUFFIXES:
                    yield each.name, is_folder
            return
        with os.scandir(folder) as entries:
            for entry in entries:
                is_folder = entry.is_dir(follow_symlinks=False)
                if is_folder or (Path(entry.name).suffix.lower() in SUFFIXES and not _leads_to_folder(entry)):
                    yield entry.name, is_folder
    except (OSError, ValueError) as error:  # the second: a NUL in the name
        raise DataError(f"{folder}: cannot be read ({getattr(error, 'strerror', error)})") from None


def _leads_to_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself, which whoever reads it is told
        return False


BITS = 128  # of a look
SAME, SIMILAR = 10, 24  # bits that differ at most where two images are alike, and where they are if features agree
AGREE = 0.7  # cosine of features, less their mean over all images
BURST = 10  # images that may be alike in any collection; of a large one, up to a tenth: more are a kind of picture
_FLAT = 4.0  # standard deviation of the grey of an image without a pattern
_ROWS = 512  # that are compared with all at once

ImageHash = bytes  # empty: of an image without any pattern


def image_hash(pixels: Pixels) -> ImageHash:
    """Return a hash of what an image (H, W, 3) looks like: where it gets brighter, to the right and downwards."""
    grey = np.asarray(Image.fromarray(pixels).convert("L").resize((9, 9), Image.Resampling.BOX), np.int16)
    if grey.std() < _FLAT:
        return b""
    brighter = np.concatenate([(np.diff(grey, axis=1) > 0)[:8].ravel(), (np.diff(grey, axis=0) > 0)[:, :8].ravel()])
    return np.packbits(brighter).tobytes()


def image_hashes(
    images: Sequence[Path], *, memory: Path, progress: Callable[[Iterable[int]], Iterable[int]] = iter
) -> list[ImageHash]:
    """Return what files look like; those that cannot be read like nothing.

    Args:
        images: files on this machine.
        memory: the file that keeps what was seen before, by what the images hold.
        progress: wraps the places of those that are looked at.
    """
    digests = [digest if isinstance(digest, bytes) else b"" for digest in digests_of(images, memory=memory)]
    with closing(DigestMemory(memory)) as known:
        found = known.hashes(digests)
        missing = [index for index, digest in enumerate(digests) if digest and digest not in found]
        hashes = in_threads(lambda index: _hash_of(images[index]), missing, threads=cores())
        seen = {digests[index]: hash for index, hash in zip(progress(missing), hashes, strict=True)}
        known.keep_hashes(seen)
    return [{**found, **seen}.get(digest, b"") for digest in digests]


def _hash_of(image: Path) -> ImageHash:
    try:
        return image_hash(decode(image, at_least=16))  # at a small scale where the format allows
    except (DataError, OSError):  # which is said where it is learned from
        return b""


def near_duplicates(hashes: Mapping[int, ImageHash], features: NDArray[np.floating] | None = None) -> list[list[int]]:
    """Return rows whose images look nearly the same, together, each group sorted.

    Args:
        hashes: `image_hash` of each row.
        features: (N, D) of all rows, which tell of images that are less alike.

    Examples:
        >>> one, other = b"0123456789abcdef", b"0123456789abcdeg"
        >>> near_duplicates({0: one, 1: bytes(16), 2: other, 3: b""})
        [[0, 2]]
    """
    rows = np.array([row for row, hash in hashes.items() if hash], np.intp)
    bits = np.unpackbits(np.frombuffer(b"".join(hash for hash in hashes.values() if hash), np.uint8)).reshape(-1, BITS)
    if len(rows) < 2:
        return []
    signs = 2 * bits.astype(np.float32) - 1  # whose products count the bits that are the same, less those that differ
    some = rows[:: 1 + len(rows) // _ROWS]
    mean = None if features is None else np.nanmean(features[some], 0, dtype=np.float32)
    group = np.arange(len(rows))
    for start in range(0, len(rows), _ROWS):
        differ = (BITS - signs[start : start + _ROWS] @ signs.T) / 2
        close = differ <= (SAME if features is None else SIMILAR)
        for i in np.flatnonzero(close.sum(1) > 1).tolist():
            others = np.flatnonzero(close[i])
            if features is not None and mean is not None:
                agree = _cosines(features[rows[[start + i, *others]]] - mean) >= AGREE
                others = others[agree | (differ[i, others] <= SAME)]
            together = np.unique(group[others])
            if len(together) > 1:
                group[np.isin(group, together)] = together[0]
    members: dict[int, list[int]] = defaultdict(list)
    for row, name in zip(rows.tolist(), group.tolist(), strict=True):
        members[name].append(row)
    most = max(BURST, len(hashes) // 10)
    return sorted(sorted(each) for each in members.values() if 1 < len(each) <= most)


def _cosines(vectors: NDArray[np.floating]) -> NDArray[np.floating]:
    """Of the first vector with each of the others."""
    lengths = np.linalg.norm(vectors, axis=1)
    cosines: NDArray[np.floating] = vectors[1:] @ vectors[0] / np.maximum(lengths[1:] * lengths[0], 1e-9)
    return cosines
