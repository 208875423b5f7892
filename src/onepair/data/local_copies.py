"""Copies on this machine of large files at URLs, to be mapped from the disk."""

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from onepair.data.problems import DataError
from onepair.files import WriteError, cache_folder, replacing, writing
from onepair.remote import PART, Elsewhere, RemotePath


def local_copy(path: Path) -> Path:
    """The file itself, or a copy in the user's cache of one at a URL: made once for each version, the last one kept.

    It is read part by part, and no copy is begun that the disk cannot hold.
    """
    if not isinstance(path, RemotePath):
        return path
    try:
        size, version = path.stat().st_size, path.version()
        address, state = (hashlib.sha256(str(each).encode()).hexdigest()[:24] for each in (path, version))
        folder = cache_folder() / "copies" / address
        kept = folder / f"{state}{path.suffix.lower()}"
        if version is not None and size and kept.exists() and kept.stat().st_size == size:
            return kept
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        _require_room(path, folder, size)
        with replacing(kept) as file:
            file.writelines(_parts(path, size))
    except WriteError:
        raise
    except OSError as error:
        raise _unreadable(path, error) from None
    for other in folder.iterdir():
        if other != kept and not other.name.startswith("."):
            other.unlink(missing_ok=True)
    return kept


def _parts(path: RemotePath, size: int) -> Iterator[bytes]:
    try:
        if size == 0:  # a web server need not say
            yield path.read_bytes()
        for start in range(0, size, PART):
            part = path.read_range(start, min(start + PART, size))
            if len(part) < min(PART, size - start):
                raise DataError(f"{path}: ends before its {size:,} bytes; is it complete, and does nobody change it?")
            yield part
    except OSError as error:
        raise _unreadable(path, error) from None


def _unreadable(path: RemotePath, error: OSError) -> DataError:
    return DataError(f"{path}: cannot be read ({error.strerror or error})")


def _require_room(path: Elsewhere, folder: Path, size: int) -> None:
    free = shutil.disk_usage(folder).free
    if size > free:
        raise DataError(
            f"{path}: its copy takes {size / 1e9:,.1f} GB in {folder}, and {free / 1e9:,.1f} GB are free; make room, "
            "or set XDG_CACHE_HOME"
        )
