"""Files that survive a crash, locks that do not, and files of our own, read back by a schema.

None that is read is trusted: a run's folder may come from anybody. Nothing is unpickled, and nothing is read that is
larger than what we write.
"""

import json
import os
import platform
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from errno import ENOENT
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import DTypeLike, NDArray
from pydantic import TypeAdapter, ValidationError

from onepair.errors import BusyError, DataError, UserError, WriteError, first_mistake

_cleaned: set[Path] = set()  # files whose remains were looked for: once, as a folder may hold a million others
LARGEST = 64_000_000  # bytes: a description of a hundred thousand classes has a quarter of it

T = TypeVar("T")

Migration = Callable[[dict[str, Any]], dict[str, Any]]


def cache_folder() -> Path:
    """Return the folder of what can be computed again: `onepair` in the user's cache, by the XDG convention.

    Raises:
        UserError: there is no home folder, for example for a container's user without a name.
    """
    given = os.environ.get("XDG_CACHE_HOME")
    try:
        return Path(given or Path.home() / ".cache") / "onepair"
    except RuntimeError:
        raise UserError("there is no home folder to keep a cache in; set HOME or XDG_CACHE_HOME") from None


def write_atomically(path: Path, content: bytes) -> None:
    """Replace the file at `path`: whatever happens, a reader finds the old content or the new, never a part of it."""
    with replacing(path) as file:
        file.write(content)


def refuse_overwriting(output: Path, inputs: Iterable[Path]) -> None:
    """Refuse to write an output over any of the files that it is made from.

    Files are compared by identity, so that links, relative names and other spellings of a path are seen through.
    Inputs are looked at only if there is something at `output`; those that are not on this machine are passed over.

    Args:
        output: the file or folder to be written.
        inputs: the table, images, vectors, weights that it is made from.

    Raises:
        UserError: `output` is one of `inputs`.
    """
    found = identity(output)
    if found is None:
        return
    for path in inputs:
        if identity(path) == found:
            raise UserError(f"{output}: is what this is made from ({path}), and would be lost; name another file")


def identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of a file on this machine, links followed; None if there is none."""
    try:
        facts = os.stat(path)  # noqa: PTH116 (a path at a URL or in a tar refuses this one, as it has no file)
    except (OSError, ValueError, UserError):
        return None
    return facts.st_dev, facts.st_ino


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file to write to, which takes the place of the one at `path` at the end of the block, or is gone if that fails.

    What killed processes have left of their attempts to write the same file goes, too.
    """
    temporary = path.with_name(f".{path.name}-{signature()}")
    try:
        _remove_abandoned(path)
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync_folder(path.parent)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and not isinstance(error, WriteError):
            raise WriteError(f"{path}: cannot be written ({error.strerror or error})") from error
        raise


def signature() -> str:
    """What the names of files end in that no other process writes: this machine, and the process's number there."""
    return f"{zlib.crc32(platform.node().encode()):08x}-{os.getpid()}"


def is_abandoned(path: Path) -> bool:
    """Whether a file's name, before its suffix, ends in the signature of a process that is no more."""
    written_by = re.search(r"-([0-9a-f]{8})-([0-9]+)(\.[a-z]+)?$", path.name)
    if written_by is None or not signature().startswith(written_by[1]) or os.name == "nt":  # where asking would end it
        return False
    try:
        os.kill(int(written_by[2]), 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:  # somebody else's
        pass
    return False


def _remove_abandoned(path: Path) -> None:
    if path in _cleaned:
        return
    _cleaned.add(path)
    with os.scandir(path.parent) as entries:
        left = [entry.path for entry in entries if entry.name.startswith(f".{path.name}-")]
    for other in map(Path, left):
        if is_abandoned(other):
            other.unlink(missing_ok=True)


@contextmanager
def locked(path: Path, *, wait: float = 0) -> Iterator[None]:
    """Hold the lock file at `path`, or raise `BusyError` if another process does, after seconds of waiting for it.

    The lock belongs to this process alone and ends with it, even if it is killed while its children live on: they do
    not inherit it.
    """
    if not path.parent.is_dir():  # filelock would make it, and a folder whose name is mistyped with it
        raise FileNotFoundError(ENOENT, "No such folder", str(path.parent))
    # A lock that is nothing but a file's existence would outlive its process, so there is no falling back to one.
    lock = FileLock(path, timeout=wait, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        what = path.parent if path.name == ".lock" else path.with_suffix("")
        raise BusyError(f"{what} is in use by process {_holder(path)}; wait for its end, or stop it") from None
    try:
        with suppress(OSError):  # nothing but a hint for others; and Windows lets nobody write to a file that is locked
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
    except WriteError:
        raise
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


def migrate(
    stored: dict[str, Any],
    migrations: Sequence[Migration] = (),
    *,
    where: Path,
    first: int = 1,
    error: type[UserError] = DataError,
) -> dict[str, Any]:
    """Return what a file of ours holds as the newest version of its format has it, without its number.

    Args:
        stored: what was read; its "format" is the number of its version, `first` where it has none.
        migrations: each brings a version to the next, beginning with `first`.
        where: the file.
        first: the oldest version that can be read.
        error: what is raised with the sentence.
    """
    content = dict(stored)
    version, newest = content.pop("format", first), first + len(migrations)
    if not isinstance(version, int) or not first <= version <= newest:
        raise error(f"{where}: has format {version!r}, and this version of onepair reads {first} to {newest}")
    for step in migrations[version - first :]:
        content = step(content)
    return content


def read_stored(
    path: Path, *, advice: str = "", error: type[UserError] = DataError, most: int | None = None
) -> str | None:
    """The text of a file; None if there is no such file.

    Args:
        path: the file.
        advice: what to do about one that cannot be read.
        error: what is raised with the sentence.
        most: bytes that it may have, if not `LARGEST`.
    """
    most = most or LARGEST
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)
        if len(content) > most:
            raise error(_sentence(path, "is larger than any file of its kind", advice))
        return content.decode("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as reason:
        raise error(_sentence(path, f"cannot be read ({reason.strerror})", advice)) from None
    except UnicodeDecodeError as reason:
        raise error(_sentence(path, f"is not UTF-8 text ({reason.reason})", advice)) from None


def read_json(path: Path, *, advice: str = "", error: type[UserError] = DataError, most: int | None = None) -> Any:
    """What a JSON file holds; None if there is no such file."""
    text = read_stored(path, advice=advice, error=error, most=most)
    if text is None:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as reason:
        raise error(_sentence(path, f"is not JSON ({reason})", advice)) from None


def read_record(
    path: Path,
    schema: type[T],
    *,
    advice: str = "",
    error: type[UserError] = DataError,
    most: int | None = None,
    migrations: Sequence[Migration] = (),
) -> T | None:
    """What a JSON file holds, as a record of a type that pydantic knows how to check; None if there is no such file."""
    stored = read_json(path, advice=advice, error=error, most=most)
    if stored is None:
        return None
    if isinstance(stored, dict):
        stored = migrate(stored, migrations, where=path, error=error)
    try:
        return TypeAdapter(schema).validate_python(stored)
    except ValidationError as mistakes:
        raise error(_sentence(path, f"is damaged, {first_mistake(mistakes.errors())}", advice)) from None


def map_array(
    path: Path, dtype: DTypeLike, dimensions: int, *, advice: str, error: type[UserError] = DataError
) -> NDArray[Any] | None:
    """An array that `np.save` wrote, mapped from its file, so that none is read that is not there in full; or None.

    Args:
        path: the file.
        dtype, dimensions: that the array must have.
        advice: what to do about another one.
        error: what is raised with the sentence.
    """
    try:
        array: NDArray[Any] = np.lib.format.open_memmap(path, mode="r")
    except FileNotFoundError:
        return None
    except Exception as reason:  # numpy parses the header with Python's own tokenizer, whose errors are many
        raise error(_sentence(path, f"cannot be read ({reason})", advice)) from None
    if array.dtype != dtype or array.ndim != dimensions:
        raise error(_sentence(path, f"holds another kind of array, {array.dtype} of {array.shape}", advice))
    return array


def _sentence(path: Path, what: str, advice: str) -> str:
    return f"{path}: {what}{advice and f'; {advice}'}"
