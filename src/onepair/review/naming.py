"""Names that people type: of themselves, and of classes that the dataset does not have yet."""

from collections.abc import Sequence
from typing import NamedTuple

from onepair.data.columns import RESERVED
from onepair.data.spelling import near_names, same_names

LONGEST_NAME = 60


def tidy(name: str) -> str:
    """A name as it is stored: printable, on one line, not endless.

    >>> tidy("  traffic\\tlight ")
    'traffic light'
    """
    return " ".join("".join(letter if letter.isprintable() else " " for letter in name).split())[:LONGEST_NAME].strip()


class NewClass(NamedTuple):
    """A class that somebody wants to add, and what speaks against it."""

    name: str
    taken: str | None = None  # the class that has the name already, perhaps in another spelling
    near: tuple[str, ...] = ()  # classes with nearly the same name; only a person knows whether they are the same
    impossible: str = ""  # why no class can have the name


def new_class(name: str, classes: Sequence[str]) -> NewClass:
    """What is to be said about a name for a class beside others.

    >>> new_class(" Traffic  Light", ["traffic light"]).taken, new_class("dog", ["dogs", "cat"]).near
    ('traffic light', ('dogs',))
    """
    name = tidy(name)
    if not name:
        return NewClass(name, impossible="A class needs a name.")
    if name.lower() in RESERVED:
        return NewClass(name, impossible=f"In a table of labels, “{name}” means something else. Choose another name.")
    taken = next((other for other in classes if same_names([other, name]) or other == name), None)
    near = () if taken else tuple(other for other in classes if near_names([other, name]))
    return NewClass(name, taken, near)
