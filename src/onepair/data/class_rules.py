"""Classes that mean one thing by their names, or by what people say: same as, a kind of, not with another."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from onepair.data.label_table import LabelTable, Problem, Report, raise_problem
from onepair.data.tables.cell_values import Column, names_in
from onepair.data.tables.sheet import Sheet, plain_title, read_sheet
from onepair.data.text_files import fold
from onepair.errors import DataError
from onepair.label_matrix import LabelMatrix
from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, Indices
from onepair.words import listed

_COLUMNS = {"sameas": "same as", "isa": "is a", "notwith": "not with"}

Pairs = list[tuple[str, str]]
_NOT_THE_SINGULAR = {"arm", "custom", "glass", "good", "new", "short"}  # of arms, glasses, shorts and so on


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


def with_same(before: str | None, more: Sequence[str]) -> str | None:
    """Return words of --same with more pairs: of one name the last counts, and a name that is itself takes it back.

    >>> with_same("hund=dog,sofa=couch", ["hund=hund", "chat=cat"])
    'sofa=couch,chat=cat'
    """
    pairs = read_rules([*(names_in(before) or ()), *more]).same
    last = {fold(one): (one, other) for one, other in pairs}
    words = [f"{one}={other}" for one, other in last.values() if fold(one) != fold(other)]
    return (";" if any("," in word for word in words) else ",").join(words) or None


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
    table = _merge_same(table, rules, source, report)
    resolved = {fold(name): name for name in (*table.classes, *table.aliases)}

    def class_named(name: str) -> str:
        found = resolved.get(fold(name), name)
        return table.aliases.get(found, found)

    is_a = [(class_named(one), class_named(other)) for one, other in rules.is_a]
    is_a = _known_kinds(is_a, table.classes)
    not_with = [(class_named(one), class_named(other)) for one, other in rules.not_with]
    table = with_classes(table, list(dict.fromkeys(other for _, other in is_a if other not in table.classes)))
    not_with = [pair for pair in not_with if set(pair) <= set(table.classes)]
    names = list(dict.fromkeys(name for pair in (*is_a, *not_with) for name in pair))
    if not names:
        return table
    position = {name: index for index, name in enumerate(names)}
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
    for row, index in np.argwhere(contradicted).tolist():
        where = table.places[row] if table.places is not None else f"{source}, {table.files[row]}"
        what = f"what it says of {names[index]} contradicts what it says of other classes, by their rules"
        report(Problem("contradiction of classes", where, what))
    rows, indices = np.nonzero(implied != given)
    return replace(table, labels=table.labels.with_entries(rows, columns[indices], implied[rows, indices]))


def _merge_same(table: LabelTable, rules: Rules, source: str, report: Report) -> LabelTable:
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


def with_classes(table: LabelTable, names: Sequence[str]) -> LabelTable:
    """Return the table with more classes, of which nothing is known."""
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
    unknown, index, times = np.unique(cells[values == UNKNOWN], return_inverse=True, return_counts=True)
    complete = times == np.bincount(columns)[unknown % classes]
    kept = np.append(complete[index], np.ones(int((values != UNKNOWN).sum()), bool))
    rows, merged = np.divmod(cells[kept], classes)
    shape = (len(labels), classes)
    return LabelMatrix.from_entries(shape, rows, merged, values[kept], complete=labels.row_default == NEGATIVE)
