"""Names of classes that may mean the same."""

import re
import unicodedata
from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import combinations

NEAR = 0.9  # of difflib's ratio
MOST = 2000  # classes that are compared with one another


def same_names(names: Sequence[str]) -> list[list[str]]:
    """Names that differ in nothing but case, spaces and the form of their Unicode, together.

    >>> same_names(["dog", "cat", "Dog ", "traffic  light", "traffic light"])
    [['dog', 'Dog '], ['traffic  light', 'traffic light']]
    """
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(_folded(name), []).append(name)
    return [alike for alike in found.values() if len(alike) > 1]


def near_names(names: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs of names that are nearly the same, as a singular and its plural; only a person knows whether they are.

    Names with other numbers in them are different, however near. Of more than `MOST` names, none are compared.

    >>> near_names(["dog", "cat", "dogs", "motorbike", "motor-bike", "size 10 shoe", "size 11 shoe"])
    [('dog', 'dogs'), ('motorbike', 'motor-bike')]
    """
    if len(names) > MOST:
        return []
    folded = {name: _folded(name) for name in names}
    return [(a, b) for a, b in combinations(names, 2) if folded[a] != folded[b] and _are_near(folded[a], folded[b])]


def _folded(name: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())


def _are_near(a: str, b: str) -> bool:
    shorter, longer = sorted((a, b), key=len)
    if longer in (f"{shorter}s", f"{shorter}es"):
        return True
    if 2 * len(shorter) < NEAR * (len(a) + len(b)) or re.findall(r"\d+", a) != re.findall(r"\d+", b):
        return False
    matcher = SequenceMatcher(None, a, b, autojunk=False)
    return matcher.quick_ratio() >= NEAR and matcher.ratio() >= NEAR
