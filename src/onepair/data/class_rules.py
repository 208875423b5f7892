"""What people say of classes: one is another by another name, one is a kind of another, two exclude each other."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from onepair.data.class_names import merge_classes
from onepair.data.label_table import LabelTable
from onepair.data.problems import Problem, Report, raise_problem
from onepair.data.tables.cell_values import Column
from onepair.data.tables.sheet import Sheet, plain_title, read_sheet
from onepair.data.text_files import fold
from onepair.errors import DataError
from onepair.label_matrix import LabelMatrix
from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN
from onepair.words import listed

_COLUMNS = {"sameas": "same as", "isa": "is a", "notwith": "not with"}

Pairs = list[tuple[str, str]]


@dataclass(frozen=True)
class Rules:
    """Pairs of names of classes, in any case and with any spaces."""

    same: Pairs = field(default_factory=list)  # a name, and the class that it means
    is_a: Pairs = field(default_factory=list)  # a class, and one that it is a kind of
    not_with: Pairs = field(default_factory=list)


def read_rules(same: Sequence[str] = (), path: Path | None = None) -> Rules:
    """Read what is said of classes.

    Args:
        same: as "hund=dog": what is called hund is the class dog.
        path: a table with a column name and any of same as, is a, not with, whose cells hold names or lists of them.

    Raises:
        DataError: a pair is none, or the table has other columns.

    Examples:
        >>> read_rules(["hund=dog", "Sofa = couch"]).same
        [('hund', 'dog'), ('Sofa', 'couch')]
    """
    pairs = [tuple(map(str.strip, each.split("="))) for each in same]
    for text, pair in zip(same, pairs, strict=True):
        if len(pair) != 2 or not all(pair):
            raise DataError(f"--same {text}: is no pair of names, as hund=dog")
    rules = Rules(same=[(one, other) for one, other in pairs])
    if path is None:
        return rules
    sheet = read_sheet(path, raise_problem)
    titles = list(map(plain_title, sheet.header))
    if "name" not in titles or not set(_COLUMNS) & set(titles):
        raise DataError(f"{path}: a table of classes has the columns name, and same as, is a or not with")
    found = {title: list(_pairs(sheet, titles.index(title))) if title in titles else [] for title in _COLUMNS}
    return Rules([*rules.same, *found["sameas"]], found["isa"], found["notwith"])


def _pairs(sheet: Sheet, column: int) -> Iterator[tuple[str, str]]:
    names: Column = sheet.columns[[plain_title(title) for title in sheet.header].index("name")]
    for row, (name, others) in enumerate(zip(names.texts, sheet.columns[column].lists, strict=True)):
        if others is None or (others and not name.strip()):
            raise DataError(f"{sheet.where(row, column)}: needs a name, and names of other classes")
        yield from ((name.strip(), other) for other in others)


def apply_rules(
    table: LabelTable, rules: Rules, *, source: str, report: Report = raise_problem, stated: bool = True
) -> LabelTable:
    """Merge classes that are the same, and add the labels that are implied, which are known labels from then on.

    What is positive for a class is positive for those that it is a kind of; what is negative for a class is negative
    for its kinds; what is positive for a class is negative for those that it is not with. A class that others are kinds
    of, and that the table does not have, is added.

    Args:
        table: a dataset.
        rules: see `read_rules`.
        source: what the table is called in sentences.
        report: called with every image whose labels contradict the rules, where those labels stay as they are.
        stated: whether somebody stated the negative labels; positives overrule those that a list only leaves out.

    Raises:
        DataError: classes are kinds of one another in a circle, or exclude what they are a kind of.
    """
    table = _merged(table, rules, source, report)
    resolved = {fold(name): name for name in (*table.classes, *table.aliases)}

    def class_named(name: str) -> str:
        found = resolved.get(fold(name), name)
        return table.aliases.get(found, found)

    is_a = [(class_named(one), class_named(other)) for one, other in rules.is_a]
    is_a = _known_kinds(is_a, table.classes)
    not_with = [(class_named(one), class_named(other)) for one, other in rules.not_with]
    table = _with_classes(table, list(dict.fromkeys(other for _, other in is_a if other not in table.classes)))
    not_with = [pair for pair in not_with if set(pair) <= set(table.classes)]
    names = list(dict.fromkeys(name for pair in (*is_a, *not_with) for name in pair))
    if not names:
        return table
    position = {name: place for place, name in enumerate(names)}
    above, apart = (np.zeros((len(names), len(names)), bool) for _ in range(2))
    for one, other in is_a:
        above[position[one], position[other]] = True
    for _ in names:
        above |= above @ above
    for one, other in not_with:
        apart[position[one], position[other]] = apart[position[other], position[one]] = True
    _require_sense(names, above, apart)
    columns = np.array([table.classes.index(name) for name in names])
    given = table.labels[:, columns]
    implied, contradicted = _implied(given, above, apart, stated=stated)
    for row, place in np.argwhere(contradicted).tolist():
        where = table.places[row] if table.places is not None else f"{source}, {table.files[row]}"
        what = f"what it says of {names[place]} contradicts what it says of other classes, by their rules"
        report(Problem("contradiction of classes", where, what))
    rows, places = np.nonzero(implied != given)
    return replace(table, labels=table.labels.with_entries(rows, columns[places], implied[rows, places]))


def _merged(table: LabelTable, rules: Rules, source: str, report: Report) -> LabelTable:
    """The table with one class for names that mean one; a name that no class has is passed over with a remark."""
    meaning = {fold(one): other for one, other in rules.same}
    by_fold = {fold(name): name for name in table.classes}
    class_of: dict[str, str] = {}
    for one in dict.fromkeys(meaning):
        seen, last = [one], one
        while last in meaning:
            name = meaning[last]
            last = fold(name)
            if last in seen:
                raise DataError(
                    f"{source}: {' and '.join(seen)} are each the same as the other, in a circle; leave one out"
                )
            seen.append(last)
        if one in by_fold:
            class_of[by_fold[one]] = by_fold.get(last, name)
        else:
            what = f"no class is called {one}, which is to be the same as {name}"
            report(Problem("classes", source, what, remark=True))
    new = {old: name for old, name in class_of.items() if name not in table.classes}
    for old, name in new.items():
        what = f"{old} is called {name} from now on, as was asked for; no other class has that name"
        report(Problem("classes", source, what, remark=True))
    first = {name: old for old, name in reversed(new.items())}  # one of the classes that get a new name, which stays
    renamed = {old: name for name, old in first.items()}
    table = replace(
        table,
        classes=tuple(renamed.get(name, name) for name in table.classes),
        aliases={**{alias: renamed.get(name, name) for alias, name in table.aliases.items()}, **renamed},
    )
    return merge_classes(table, {old: name for old, name in class_of.items() if old not in renamed})


def _known_kinds(pairs: Pairs, classes: Sequence[str]) -> Pairs:
    """The pairs that lead up from classes of the table, through others perhaps."""
    reached, kept = set(classes), list[tuple[str, str]]()
    while more := [pair for pair in pairs if pair[0] in reached and pair not in kept]:
        kept += more
        reached |= {other for _, other in more}
    return kept


def _require_sense(names: Sequence[str], above: NDArray[np.bool_], apart: NDArray[np.bool_]) -> None:
    if circle := [names[i] for i in np.flatnonzero(above.diagonal()).tolist()]:
        raise DataError(f"the classes {listed(circle)} are kinds of one another, in a circle; take one 'is a' away")
    same = above | np.eye(len(names), dtype=bool)
    for i in np.flatnonzero((same @ apart @ same.T).diagonal()).tolist():
        raise DataError(f"the class {names[i]} is of kinds that are 'not with' each other; take one of them away")


def _with_classes(table: LabelTable, names: Sequence[str]) -> LabelTable:
    """The table with more classes, of which nothing is known."""
    if not names:
        return table
    labels, asked = table.labels.with_classes(len(names)), table.asked
    if asked is not None:
        asked = LabelMatrix.from_entries(labels.shape, *asked.positives(), POSITIVE, complete=True)
    return replace(table, classes=(*table.classes, *names), labels=labels, asked=asked)


def _implied(
    given: NDArray[np.int8], above: NDArray[np.bool_], apart: NDArray[np.bool_], *, stated: bool
) -> tuple[NDArray[np.int8], NDArray[np.bool_]]:
    """The labels with what they imply, and where that contradicts them: there they stay."""
    upward = (given == POSITIVE) @ above
    present = (given == POSITIVE) | upward
    absent = present @ apart
    absent |= ((given == NEGATIVE) & (stated | ~upward) | absent) @ above.T
    overruled = upward if stated else np.zeros_like(upward)
    contradicted = (
        ((given == NEGATIVE) & overruled) | ((given == POSITIVE) & absent) | ((given == UNKNOWN) & upward & absent)
    )
    labels = np.select([upward & ~contradicted, absent & ~contradicted], [POSITIVE, NEGATIVE], given).astype(np.int8)
    return np.where(contradicted, given, labels), contradicted
