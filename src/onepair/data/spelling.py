"""Names of classes that may mean the same."""

import re
import unicodedata
from collections.abc import Sequence
from difflib import SequenceMatcher

import numpy as np

NEAR = 0.9  # of difflib's ratio
BINS = 64  # for letters: names that share few of them are not looked at
MOST = 10_000  # names that are compared with one another


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
    folded = [_folded(name) for name in names]
    place = {name: i for i, name in enumerate(folded)}
    plurals = ((i, place.get(name + ending)) for i, name in enumerate(folded) for ending in ("s", "es"))
    found = {(min(i, j), max(i, j)) for i, j in plurals if j is not None}
    letters = np.zeros((len(names), BINS), np.int32)
    for i, name in enumerate(folded):
        np.add.at(letters[i], [ord(letter) % BINS for letter in name], 1)
    lengths = letters.sum(1)
    numbers: dict[tuple[str, ...], int] = {}
    group = np.array([numbers.setdefault(tuple(re.findall(r"\d+", name)), len(numbers)) for name in folded])
    for i, name in enumerate(folded):
        both, fewer = lengths[i] + lengths[i + 1 :], np.minimum(lengths[i], lengths[i + 1 :])
        others = i + 1 + np.flatnonzero((group[i + 1 :] == group[i]) & (2 * fewer >= NEAR * both))
        shared = np.minimum(letters[i], letters[others]).sum(1)  # at most so many letters can match
        possible = others[2 * shared >= NEAR * (lengths[i] + lengths[others])]
        found |= {(i, j) for j in possible.tolist() if _are_near(name, folded[j])}
    return [(names[i], names[j]) for i, j in sorted(found)]


def _folded(name: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())


def _are_near(a: str, b: str) -> bool:
    return a != b and SequenceMatcher(None, a, b, autojunk=False).ratio() >= NEAR
