"""The images in folders, sorted by name, and which are the same: a digest of what each holds, remembered by its file.

An object at a URL is not read for that: its address, size and version are what it is known by, where its server tells a
version (`RemotePath.version` says what is relied on). A copy of it elsewhere is another one.
"""

import contextlib
import hashlib
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from onepair.data.images.blocks import Source, cores
from onepair.data.images.decode import FORMATS, RAW, SUFFIXES, VIDEOS, require_no_pipe
from onepair.data.images.tar import SUFFIX, images_in_tar, in_tar
from onepair.data.text_files import is_file
from onepair.errors import DataError
from onepair.remote import NonLocalPath, all_at_once, is_remote
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
            self._connection.execute("create table if not exists looks (digest blob primary key, look blob)")

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

    def looks(self, digests: list[bytes]) -> dict[bytes, bytes]:
        """What the images of some digests look like, of those that were looked at."""
        found: dict[bytes, bytes] = {}
        with self._forgiving():
            for start in range(0, len(digests) if self._connection else 0, _AT_ONCE):
                some = digests[start : start + _AT_ONCE]
                marks = ",".join("?" * len(some))
                query = f"select digest, look from looks where digest in ({marks})"  # noqa: S608 (only marks)
                found |= dict(self._connection.execute(query, some)) if self._connection else {}
        return found

    def keep_looks(self, looks: Mapping[bytes, bytes]) -> None:
        with self._forgiving():
            if self._connection:
                with self._connection:
                    self._connection.executemany("insert or replace into looks values (?, ?)", looks.items())

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
