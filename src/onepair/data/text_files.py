"""What every reader does: look for files, read their text, join the official splits."""

import codecs
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np
from numpy.typing import ArrayLike

from onepair.data.label_table import LabelTable
from onepair.errors import DataError
from onepair.label_matrix import LabelMatrix
from onepair.labels import Labels
from onepair.remote import NonLocalPath

LARGEST = 1_000_000_000  # bytes of a label file: as text and as cells it takes several times that
MOST_ROWS = 10_000_000  # of a table, which take a kilobyte each; a small Parquet file may claim any number


def exists(path: Path) -> bool:
    """Whether there is such a file or folder; a name that no file system takes is one that is not there."""
    return path.exists() if isinstance(path, NonLocalPath) else os.path.exists(path)  # noqa: PTH110 (Path.exists raises)


def is_file(path: Path) -> bool:
    """Whether there is such a file, as `exists` has it."""
    return path.is_file() if isinstance(path, NonLocalPath) else os.path.isfile(path)  # noqa: PTH113 (Path.is_file raises)


def real(path: Path) -> Path:
    """Where a path leads, links followed; one that leads in a circle leads to itself."""
    return path if isinstance(path, NonLocalPath) else Path(os.path.realpath(path))


def fold(name: str) -> str:
    """Return a name without what people write differently: case, spaces and the form of its Unicode.

    >>> fold("Traffic  Light")
    'traffic light'
    """
    return " ".join(normalize("NFKC", name).casefold().split())


def entries(folder: Path) -> list[Path]:
    """Return what is in a folder and not hidden or a lock, sorted; nothing if it is no folder."""
    try:
        return sorted(each for each in folder.iterdir() if not each.name.startswith((".", "~$")))  # of Excel, open
    except (OSError, ValueError):
        return []


def read_bytes(path: Path) -> bytes:
    """The bytes of a file, or a sentence that says why not."""
    try:
        if isinstance(path, NonLocalPath):
            return path.read_bytes(LARGEST)
        if path.stat().st_size > LARGEST:
            raise DataError(f"{path}: is larger than {LARGEST // 10**6:,} MB; cut it into several")
        return path.read_bytes()
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file; is the dataset complete?") from None
    except DataError:
        raise
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from None


def check_rows(path: Path, rows: int, what: str = "rows") -> None:
    """Refuse a table that memory would not hold, before it is taken apart."""
    if rows > MOST_ROWS:
        raise DataError(f"{path}: has {rows:,} {what}, and a table may have {MOST_ROWS:,}; cut it into several")


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, with or without a byte order mark, its line ends untouched."""
    try:
        return read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: byte {error.start} is not UTF-8 text; save the file as UTF-8") from None


def read_json(path: Path) -> Any:
    """What a JSON file holds."""
    text = read_text(path)
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise DataError(f"{path}, line {error.lineno}: is not JSON ({error.msg}); is the file complete?") from None
    except (RecursionError, ValueError) as error:  # nested too deeply, a number too long
        raise DataError(f"{path}: is not JSON that can be read ({error})") from None


def starts_with(path: Path, letter: str) -> bool:
    """Whether that is the first letter of a text file, after blanks and a byte order mark."""
    try:
        if isinstance(path, NonLocalPath):
            try:
                start = path.read_range(0, 1000)
            except OSError:  # as of a web server that gives no parts
                start = path.read_bytes(LARGEST)[:1000]
        else:
            with path.open("rb") as file:
                start = file.read(1000)
        return start.removeprefix(codecs.BOM_UTF8).lstrip()[:1] == letter.encode()
    except (OSError, ValueError):
        return False


def read_lines(path: Path) -> list[str]:
    """The lines of a text file, stripped, without the blank ones at its end: line n is item n - 1."""
    text = read_text(path).rstrip()
    return [line.strip() for line in text.split("\n")] if text else []


def labels_by_name(
    count: int, named: Sequence[tuple[int, str, int]], *, complete: ArrayLike
) -> tuple[list[str], LabelMatrix]:
    """Return the sorted classes and the labels of rows, classes and values, of which the last of a cell counts."""
    classes = sorted({name for _, name, _ in named})
    position = {name: column for column, name in enumerate(classes)}
    entries = np.array([(row, position[name], value) for row, name, value in named], np.int64).T
    return classes, LabelMatrix.from_entries((count, len(classes)), *entries, complete=complete)


def join_splits(
    parts: Mapping[str, tuple[Sequence[str], Labels | LabelMatrix]], *, classes: Sequence[str], root: Path
) -> LabelTable:
    """One table from the files and labels of each split, in the order given."""
    for split, (files, _) in parts.items():
        if not files:
            raise DataError(f"{root}: the {split} split lists no image")
    return LabelTable(
        files=tuple(file for files, _ in parts.values() for file in files),
        classes=tuple(classes),
        labels=LabelMatrix.stacked([LabelMatrix.of(labels) for _, labels in parts.values()]),
        split=np.repeat(list(parts), [len(files) for files, _ in parts.values()]),
        root=root,
    )
