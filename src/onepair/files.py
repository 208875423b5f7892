"""Files that survive a crash, and locks that do not."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import ENOENT
from pathlib import Path

from filelock import FileLock, Timeout

from onepair.errors import UserError


class BusyError(UserError, RuntimeError):
    """Another process holds what this one needs."""


class WriteError(UserError, RuntimeError):
    """The system refuses to write, as to a full disk or into a read-only folder."""


def cache_folder() -> Path:
    """Where what can be computed again is kept: `onepair` in the user's cache, as the XDG convention has it."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "onepair"


def write_atomically(path: Path, content: bytes) -> None:
    """Replace the file at `path`: whatever happens, a reader finds the old content or the new, never a part of it."""
    temporary = path.with_name(f".{path.name}-{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file at `path`, or raise `BusyError` at once if another process does.

    The lock belongs to this process alone and ends with it, even if it is killed while its children live on: they do
    not inherit it.
    """
    if not path.parent.is_dir():  # filelock would make it, and a folder whose name is mistyped with it
        raise FileNotFoundError(ENOENT, "No such folder", str(path.parent))
    # A lock that is nothing but a file's existence would outlive its process, so there is no falling back to one.
    lock = FileLock(path, timeout=0, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        raise BusyError(f"{path.with_suffix('')} is in use by process {_holder(path)}") from None
    try:
        with suppress(PermissionError):  # of Windows, where nobody can write to a file that is locked
            path.write_text(str(os.getpid()))
        yield
    finally:
        lock.release()


def _holder(path: Path) -> str:
    """The number of the process that holds a lock, as far as it can be read."""
    try:
        return path.read_text() or "unknown"
    except OSError:
        return "unknown"


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn the system's refusals to write at or below `path` into a sentence."""
    try:
        yield
    except OSError as error:
        raise WriteError(f"{error.filename or path}: cannot be written ({error.strerror or error})") from error


def _sync_folder(folder: Path) -> None:
    """Make a rename durable: it is the folder that records it, where folders can be opened."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
