"""Names of classes that mean one thing, and tables in which they are one class."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from onepair.data.label_table import LabelTable
from onepair.data.text_files import fold
from onepair.label_matrix import LabelMatrix
from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, Indices

_NOT_THE_SINGULAR = {"arm", "custom", "glass", "good", "new", "short"}  # of arms, glasses, shorts and so on


def spelling_groups(names: Iterable[str]) -> list[list[str]]:
    """Names that differ in nothing but case, spaces, the form of their Unicode, or an English plural, together.

    Names of one letter are different, whatever their case.

    >>> spelling_groups(["dog", "cat", "Dog", "dogs", "city", "Cities", "a", "A", "glasses", "glass"])
    [['dog', 'Dog', 'dogs'], ['city', 'Cities']]
    """
    by_fold: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        folded = fold(name)
        by_fold.setdefault(folded if len(folded) > 1 else name, []).append(name)
    for singular in list(by_fold):
        if len(singular) < 3 or not singular[-1].isalpha() or singular in _NOT_THE_SINGULAR:
            continue
        plurals = [singular + "s", singular + "es", singular[:-1] + "ies" if singular.endswith("y") else ""]
        for plural in plurals:
            if plural in by_fold and singular in by_fold:
                by_fold[singular] += by_fold.pop(plural)
    return [alike for alike in by_fold.values() if len(alike) > 1]


def merge_spellings(table: LabelTable) -> LabelTable:
    """Make one class of the spellings of each, under the name with most positives; `aliases` has the others."""
    groups = spelling_groups(table.classes)
    if not groups:
        return table
    positives = dict(zip(table.classes, table.labels.count(POSITIVE).tolist(), strict=True))
    kept = [(max(alike, key=positives.__getitem__), alike) for alike in groups]
    return merge_classes(table, {other: name for name, alike in kept for other in alike if other != name})


def merge_classes(table: LabelTable, class_of: Mapping[str, str]) -> LabelTable:
    """Give classes the names of others of the table: positive over negative over unknown.

    Args:
        table: a dataset.
        class_of: the classes to be merged, and the class that each becomes, which is none of them.
    """
    classes = [name for name in table.classes if name not in class_of]
    position = {name: column for column, name in enumerate(classes)}
    columns = np.array([position[class_of.get(name, name)] for name in table.classes], np.intp)
    return replace(
        table,
        classes=tuple(classes),
        labels=_merged(table.labels, columns, len(classes)),
        asked=None if table.asked is None else _merged(table.asked, columns, len(classes)),
        aliases={**{name: class_of.get(kept, kept) for name, kept in table.aliases.items()}, **class_of},
    )


def _merged(labels: LabelMatrix, columns: Indices, classes: int) -> LabelMatrix:
    cells = np.repeat(np.arange(len(labels)), np.diff(labels.starts)) * classes + columns[labels.columns]
    order = np.argsort(labels.values, kind="stable")  # of several values of a cell the last counts
    cells, values = cells[order], labels.values[order]
    # In a row whose default is negative, a cell is unknown only if it is so in all spellings.
    unknown, place, times = np.unique(cells[values == UNKNOWN], return_inverse=True, return_counts=True)
    complete = times == np.bincount(columns)[unknown % classes]
    kept = np.append(complete[place], np.ones(int((values != UNKNOWN).sum()), bool))
    rows, merged = np.divmod(cells[kept], classes)
    shape = (len(labels), classes)
    return LabelMatrix.from_entries(shape, rows, merged, values[kept], complete=labels.row_default == NEGATIVE)
