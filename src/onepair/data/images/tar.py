"""Files in tars, each read by itself: a tar is a folder to whoever names what is in it, as shards/0.tar/cat.jpg."""

import errno
import hashlib
import io
import json
import os
import stat
import tarfile
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple

from pydantic import BaseModel, NonNegativeInt

from onepair.data.images.decode import SUFFIXES, require_no_pipe
from onepair.errors import DataError, WriteError
from onepair.files import cache_folder, read_record, write_atomically
from onepair.remote import LARGEST, NonLocalPath, as_path, is_remote

TEXTS = (".json", ".cls", ".txt")  # small members whose text is kept with the index
LONGEST = 1_000_000  # bytes of such a text
SUFFIX = ".tar"

_BLOCK = 512  # bytes of a header
_LARGEST_INDEX = 1 << 30  # bytes: of ten million images, or of one million with their texts
_AHEAD = 1 << 20  # bytes that are read together while headers are looked for, at a URL

_known: dict[Path, "Index"] = {}  # without texts: a name and an offset for each image, less than the table has
_being_read: defaultdict[Path, threading.Lock] = defaultdict(threading.Lock)


class Member(NamedTuple):
    """Where a file of a tar is."""

    offset: int
    size: int


class Index(BaseModel):
    """What is in a tar: written once, and read as long as the tar is the same."""

    version: str  # of the tar
    members: dict[str, tuple[NonNegativeInt, NonNegativeInt]]  # offset and size by name, in their order
    texts: dict[str, str]  # of the small ones that hold labels
    repeated: list[str] = []  # names that are there more than once; the last one counts, as for whoever unpacks it
    broken: str = ""  # what is wrong from where on; the members before it are there


class TarPath(NonLocalPath):
    """A file in a tar, which is on this machine or at a URL."""

    @property
    def shard(self) -> Path:
        """The tar."""
        ends = [end for end, part in enumerate(self.parts, start=1) if part.lower().endswith(SUFFIX)]
        *others, last = (as_path(str(type(self)(*self.parts[:end]))) for end in ends)
        return next((each for each in others if not each.is_dir()), last)

    @property
    def member(self) -> Member:
        inside = str(self)[len(str(self.shard)) + 1 :]
        found = _places_in(self.shard).members.get(inside)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(self))
        return Member(*found)

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        size, changed = self.member.size, self.shard.stat().st_mtime_ns
        times = (changed / 10**9,) * 3
        return os.stat_result((stat.S_IFREG | 0o444, 0, 0, 1, 0, 0, size, *times), {"st_mtime_ns": changed})

    def version(self) -> str | None:
        """That of a tar at a URL, and the place in it; of one on this machine, the time of change tells."""
        known = _places_in(self.shard).version if isinstance(self.shard, NonLocalPath) else ""
        return f"{known} from {self.member.offset}" if known else None

    def read_range(self, start: int, stop: int) -> bytes:
        offset, size = self.member
        start, stop = offset + start, offset + min(stop, size)
        shard = self.shard
        if isinstance(shard, NonLocalPath):
            return shard.read_range(start, stop)
        with shard.open("rb") as file:
            file.seek(start)
            return file.read(max(stop - start, 0))

    def read_bytes(self, most: int = LARGEST) -> bytes:
        size = self.member.size
        if size > most:
            raise OSError(errno.EFBIG, f"Is larger than {most // 10**6:,} MB", str(self))
        content = self.read_range(0, size) if size else b""
        if len(content) < size:
            raise OSError(errno.EIO, "Ends before its end: the tar is cut, or has changed", str(self))
        return content

    def absolute(self) -> "TarPath":
        shard = self.shard
        return self if isinstance(shard, NonLocalPath) else TarPath(Path.cwd(), *self.parts)


def joined(root: Path, name: str) -> Path:
    """A file of a folder by its name: on the disk, at a URL, or in a tar.

    >>> joined(Path("shards"), "0.tar/cat.jpg")
    TarPath('shards/0.tar/cat.jpg')
    """
    path = root / name
    return in_tar(path) if f"{SUFFIX}/" in name.lower() else path


def in_tar(path: Path) -> Path:
    """A path as that of a file in a tar, if it leads into one."""
    if isinstance(path, TarPath) or not any(part.lower().endswith(SUFFIX) for part in path.parts[:-1]):
        return path
    inside = TarPath(*path.parts)
    return path if not is_remote(inside) and inside.shard.is_dir() else inside


def images_in_tar(shard: Path) -> Iterator[Path]:
    """All images in a tar, in their order there."""
    names = (name for name in _places_in(shard).members if PurePosixPath(name).suffix.lower() in SUFFIXES)
    yield from (TarPath(*shard.parts, name) for name in names)


def index_of(shard: Path) -> Index:
    """What is in a tar. Its headers alone are read, and only once: the index is kept in the user's cache."""
    with _being_read[shard]:
        return _read(shard)


def _places_in(shard: Path) -> Index:
    """The index without its texts, from memory after the first time."""
    if shard not in _known:
        with _being_read[shard]:  # or each of many threads would read it
            if shard not in _known:
                _read(shard)
    return _known[shard]


def _read(shard: Path) -> Index:
    index = _kept_or_scanned(shard)
    _known[shard] = index.model_copy(update={"texts": {}})
    return index


def _kept_or_scanned(shard: Path) -> Index:
    version = _version(shard)
    name = hashlib.sha256(str(shard if isinstance(shard, NonLocalPath) else shard.absolute()).encode()).hexdigest()[:32]
    kept = cache_folder() / "shards" / f"{name}.json"
    try:
        stored = read_record(kept, Index, most=_LARGEST_INDEX) if version else None
    except DataError:
        stored = None
    if stored is not None and stored.version == version:
        return stored
    index = _scan(shard, version or "")
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(kept, index.model_dump_json().encode("utf-8", "replace"))
    except (WriteError, OSError):  # it can always be made again
        pass
    return index


def _version(shard: Path) -> str | None:
    if isinstance(shard, NonLocalPath):
        return shard.version()
    facts = shard.stat()
    return json.dumps([facts.st_size, facts.st_mtime_ns])


def _scan(shard: Path, version: str) -> Index:
    """Go from header to header; what a damaged tar has before the damage counts."""
    index = Index(version=version, members={}, texts={})
    total = shard.stat().st_size
    if not total and is_remote(shard):
        raise DataError(f"{shard}: is empty, or its server does not say how large it is")
    with _opened(shard, total) as file:
        try:
            with tarfile.open(fileobj=file, mode="r:") as tar:
                while (found := tar.next()) is not None:
                    tar.members.clear()  # type: ignore[attr-defined]  # or each would be kept twice
                    if found.isreg() and found.offset_data + found.size > total:
                        raise tarfile.ReadError(f"it is cut within {found.name}")
                    _add(index, found, file)
                file.seek(tar.offset)
                if file.read(_BLOCK).strip(b"\0"):
                    raise tarfile.ReadError("what follows is no tar")
                if file.read(_AHEAD).strip(b"\0"):
                    raise tarfile.ReadError("more follows its end, as of a second tar")
        except (tarfile.TarError, EOFError, ValueError) as error:
            if not index.members:
                raise DataError(f"{shard}: is no tar that can be read ({error}); shards are not compressed") from None
            index.broken = f"{error}; {len(index.members):,} files before it are used"
    return index


def _add(index: Index, found: tarfile.TarInfo, file: IO[bytes]) -> None:
    name = _inside(found.name)
    same = index.members.get(_inside(found.linkname)) if found.islnk() else None  # bytes that have another name, too
    if not (found.isreg() or same) or found.issparse() or not name:
        return
    place = same or (found.offset_data, found.size)
    if index.members.get(name, place) != place:
        index.repeated.append(name)
    index.members[name] = place
    if name.lower().endswith(TEXTS) and place[1] <= LONGEST:
        file.seek(place[0])
        index.texts[name] = file.read(place[1]).decode("utf-8-sig", "replace")


def _inside(name: str) -> str:
    """A name as that of a path below the tar; what is no UTF-8 as text, or no index or table could have it.

    >>> _inside("./photos//1.jpg"), _inside("/1.jpg")
    ('photos/1.jpg', '1.jpg')
    """
    text = name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return str(PurePosixPath(text)).lstrip("/")


def _opened(shard: Path, size: int) -> IO[bytes]:
    if not isinstance(shard, NonLocalPath):
        require_no_pipe(shard)
        return shard.open("rb")
    buffered: Any = io.BufferedReader(_Ranges(shard, size), _AHEAD)
    return buffered  # type: ignore[no-any-return]


class _Ranges(io.RawIOBase):
    """A file at a URL that can be read from anywhere."""

    def __init__(self, path: NonLocalPath, size: int) -> None:
        self._path, self._size, self._place = path, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._place = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._size}[whence]
        return self._place

    def tell(self) -> int:
        return self._place

    def readinto(self, buffer: Any) -> int:
        stop = min(self._place + len(buffer), self._size)
        content = self._path.read_range(self._place, stop) if stop > self._place else b""
        buffer[: len(content)] = content
        self._place += len(content)
        return len(content)
