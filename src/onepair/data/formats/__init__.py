"""The registry of dataset readers, to which installed packages add by the entry-point group `onepair.readers`."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from onepair.data.label_table import LabelTable
from onepair.plugins import Registry

Read = TypeVar("Read", bound=Callable[..., LabelTable])


@dataclass(frozen=True)
class Reader:
    """A dataset format: what it is, where to get it, how to recognise it and how to read it."""

    name: str
    description: str
    layout: str  # what must be at the path
    origin: str  # what to download
    detect: Callable[[Path], bool]
    read: Callable[..., LabelTable]  # read(path, *, report, **options)
    last: bool = False  # whether other layouts have parts that look the same, so that those come first
    at_url: Literal["file", "folder", "either"] | None = None  # what of it may be at a URL

    @property
    def options(self) -> tuple[str, ...]:
        """The options of `read_dataset` that this reader takes: the keywords of its function."""
        keywords = inspect.signature(self.read).parameters.values()
        return tuple(each.name for each in keywords if each.kind is each.KEYWORD_ONLY and each.name != "report")


READERS = Registry[Reader]("onepair.readers", "dataset format")


def register_reader(
    name: str,
    *,
    detect: Callable[[Path], bool],
    description: str = "",
    layout: str = "",
    origin: str = "nothing",
    last: bool = False,
    at_url: Literal["file", "folder", "either"] | None = None,
) -> Callable[[Read], Read]:
    """Make a reader known by its name, to `read_dataset` and to every command that takes a dataset.

    A package that names its module as an entry point of the group `onepair.readers` is imported when it is needed.

    Args:
        name: the format, for example "open-images".
        detect: whether a path holds this format, for `format="auto"`.
        description: one line; the first of the function's docstring by default.
        layout: what must be at the path.
        origin: what to download.
        last: whether parts of other formats look the same, so that those are tried first.
        at_url: what of this format may be at a URL; by default, nothing is looked for there.

    Returns:
        A decorator for functions `read(path, *, report, ...)` that return a `LabelTable`. Further keywords are options
        of `read_dataset`: any of unlisted, zeros, images, label_columns.

    Examples:
        >>> READERS["coco"].options
        ('unlisted', 'images')
    """

    def add(read: Read) -> Read:
        first_line = (inspect.getdoc(read) or "").partition("\n")[0]
        READERS.add(name, Reader(name, description or first_line, layout, origin, detect, read, last, at_url))
        return read

    return add
