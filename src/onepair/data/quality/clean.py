"""A dataset without what is wrong with it, and what became of each thing."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from onepair.data.class_names import merge_classes
from onepair.data.label_table import SPLITS, LabelTable
from onepair.data.problems import Problem
from onepair.data.quality.check import (
    Progress,
    look_at_images,
    much_alike,
    near_duplicates,
    near_names,
    same_names,
)
from onepair.errors import DataError
from onepair.label_matrix import LabelMatrix
from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, Labels
from onepair.words import counted


@dataclass(frozen=True)
class Cleaned:
    """A clean table, and how it differs from the one before."""

    table: LabelTable
    changes: list[Problem]
    doubts: list[Problem]  # what only a person can decide, and nobody has


def clean(
    table: LabelTable, *, is_same: Callable[[str, str], bool] = lambda one, other: False, progress: Progress = iter
) -> Cleaned:
    """Drop the images that are missing, broken or there twice, merge spellings, and drop classes without positives.

    Spellings that differ in case, spaces or the form of their Unicode are one class, under its most frequent name:
    positive where any of them is. Copies of an image in one split are one image: labels that contradict each other
    become unknown. Of copies in several splits, test images stay before validation and training images.

    Args:
        table: a dataset as read.
        is_same: whether two names that are nearly the same are one class.
        progress: wraps the rows whose images are looked at.
    """
    changes: list[Problem] = []
    doubts: list[Problem] = []
    for alike in same_names(table.classes):
        table = _merge_classes(table, alike, changes)
    for one, other in near_names(table.classes):
        if one in table.classes and other in table.classes and is_same(one, other):
            table = _merge_classes(table, [one, other], changes)
        elif one in table.classes and other in table.classes:
            doubts.append(much_alike(one, other))
    table = table if table.ids else _without_bad_images(table, changes, doubts, progress)
    return Cleaned(_without_empty_classes(table, changes), changes, doubts)


def _merge_classes(table: LabelTable, names: list[str], changes: list[Problem]) -> LabelTable:
    columns = [table.classes.index(name) for name in names]
    kept = max(columns, key=lambda column: ((table.labels[:, column] == POSITIVE).sum(), -column))
    for column in columns:
        if column != kept:
            changes.append(Problem("class merged", f"class {table.classes[column]}", f"is now {table.classes[kept]}"))
    others = {table.classes[column]: table.classes[kept] for column in columns if column != kept}
    return merge_classes(table, others)


def _with_classes(table: LabelTable, columns: list[int]) -> LabelTable:
    return replace(
        table,
        classes=tuple(table.classes[i] for i in columns),
        labels=table.labels.of_classes(columns),
        asked=None if table.asked is None else table.asked.of_classes(columns),
    )


def _without_bad_images(
    table: LabelTable, changes: list[Problem], doubts: list[Problem], progress: Progress
) -> LabelTable:
    copies: dict[bytes, list[int]] = defaultdict(list)
    looks: dict[int, int | None] = {}
    for row, finding in look_at_images(table, progress):
        if isinstance(finding, Problem):
            changes.append(replace(finding, what=f"{finding.what}; left out"))
        else:
            copies[finding.digest].append(row)
            looks[row] = finding.look
    kept, agreed = [], {}
    for rows in copies.values():
        first = max(rows, key=lambda row: (SPLITS.index(table.split[row]), -row))
        together = [row for row in rows if table.split[row] == table.split[first]]
        if len(together) > 1:
            agreed[first] = _agreed(table.labels[together])
        kept.append(first)
        for row in rows:
            if row != first:
                changes.append(_left_out(table, row, first))
    if not kept:
        raise DataError("not one image of the dataset can be read, so that nothing is left of it")
    if agreed:
        merged = LabelMatrix.of(np.stack(list(agreed.values())))
        table = replace(table, labels=table.labels.with_rows(np.array(list(agreed)), merged))
    if table.group is None and (alike := near_duplicates({row: looks[row] for row in sorted(kept)})):
        number_of = {row: number for number, rows in enumerate(alike, start=1) for row in rows}
        names = (f"alike {number_of[row]}" if row in number_of else "" for row in range(len(table)))
        table = replace(table, group=tuple(names))
        what = f"{counted(len(number_of), 'image')} that look nearly the same as another; the column group says which"
        doubts.append(Problem("nearly the same", counted(len(alike), "group"), what, remark=True))
    return _with_rows(table, sorted(kept))


def _agreed(labels: Labels) -> Labels:
    """One row from several about the same image: what is known, unless they contradict each other."""
    yes, no = (labels == POSITIVE).any(0), (labels == NEGATIVE).any(0)
    return np.select([yes & ~no, no & ~yes], [POSITIVE, NEGATIVE], UNKNOWN).astype(np.int8)


def _left_out(table: LabelTable, row: int, first: int) -> Problem:
    same = f"is the same image as {table.files[first]}"
    if table.split[row] == table.split[first]:
        return Problem("duplicate", table.files[row], f"{same}, which has the labels of both; left out")
    what = f"{same}, which is in {table.split[first]}; left out of {table.split[row]}"
    return Problem("leak between splits", table.files[row], what)


def _with_rows(table: LabelTable, rows: list[int]) -> LabelTable:
    return replace(
        table,
        files=tuple(table.files[row] for row in rows),
        labels=table.labels.take(rows),
        split=table.split[rows],
        asked=None if table.asked is None else table.asked.take(rows),
        places=None if table.places is None else tuple(table.places[row] for row in rows),
        texts=None if table.texts is None else tuple(table.texts[row] for row in rows),
        group=None if table.group is None else tuple(table.group[row] for row in rows),
        vectors=None if table.vectors is None else table.vectors.of_rows(np.array(rows)),
        numbered=None if table.numbered is None else table.numbered._replace(rows=table.numbered.rows[rows]),
    )


def _without_empty_classes(table: LabelTable, changes: list[Problem]) -> LabelTable:
    found = table.labels.count(POSITIVE) > 0
    if not found.any():
        raise DataError("not one class has a positive label, so that nothing is left of the dataset")
    for column in np.flatnonzero(~found):
        changes.append(Problem("class without positives", f"class {table.classes[column]}", "left out"))
    return _with_classes(table, np.flatnonzero(found).tolist())
