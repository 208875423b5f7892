"""Files of our own, read back by a schema: whatever stands in their place, it has its form, or there is a sentence.

None of them is trusted: a run's folder may come from anybody. Nothing is unpickled, and nothing is read that is larger
than what we write.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray
from pydantic import TypeAdapter, ValidationError

from onepair.errors import DataError, UserError, first_mistake

LARGEST = 64_000_000  # bytes: a description of a hundred thousand classes has a quarter of it

T = TypeVar("T")

Migration = Callable[[dict[str, Any]], dict[str, Any]]


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
