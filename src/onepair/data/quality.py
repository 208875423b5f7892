"""What is in a dataset, what is wrong with it, and the dataset without that."""

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import partial
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from onepair.data.class_rules import merge_classes
from onepair.data.images.blocks import cores
from onepair.data.images.image_files import ImageHash, image_hash, image_hashes, near_duplicates
from onepair.data.label_table import NOT_FINITE, SPLITS, LabelTable, Problem, Vectors
from onepair.data.text_files import exists, fold, is_file
from onepair.errors import DataError
from onepair.files import cache_folder
from onepair.label_matrix import LabelMatrix
from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, Labels
from onepair.remote import AT_ONCE, NonLocalPath, all_at_once, in_threads, is_remote, is_url
from onepair.words import counted, listed

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
        found.setdefault(fold(name), []).append(name)
    return [alike for alike in found.values() if len(alike) > 1]


def near_names(names: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs of names that are nearly the same, as a singular and its plural; only a person knows whether they are.

    Names with other numbers in them are different, however near. Of more than `MOST` names, none are compared.

    >>> near_names(["dog", "cat", "dogs", "motorbike", "motor-bike", "size 10 shoe", "size 11 shoe"])
    [('dog', 'dogs'), ('motorbike', 'motor-bike')]
    """
    if len(names) > MOST:
        return []
    folded = [fold(name) for name in names]
    index = {name: i for i, name in enumerate(folded)}
    plurals = ((i, index.get(name + ending)) for i, name in enumerate(folded) for ending in ("s", "es"))
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
        found |= {
            (i, j)
            for j in possible.tolist()
            if name != folded[j] and SequenceMatcher(None, name, folded[j], autojunk=False).ratio() >= NEAR
        }
    return [(names[i], names[j]) for i, j in sorted(found)]


MOST_COMPARED = 5_000  # images, unless all are decoded anyway
_NUMBERED = re.compile(  # in the name of a file or its folder
    r"(?<![^\W\d_])(patient|subject|session|series|sequence|seq|scene|clip|video|burst|case|study|visit"
    r"|sitzung|serie|szene|fall|besuch|paciente|sesión|sesion|escena|caso|visita)[ _-]?\d+",
    re.IGNORECASE,
)
FEWEST_POSITIVES = 25  # of a class: a fifth of them are for validation, and five there can be judged by

Progress = Callable[[Iterable[int]], Iterable[int]]


@dataclass(frozen=True, eq=False)
class Census:
    """What is in a dataset."""

    images: dict[str, int]  # per split
    classes: tuple[str, ...]
    positive: NDArray[np.intp]  # (L,) cells of each class
    negative: NDArray[np.intp]
    unknown: NDArray[np.intp]
    verified_empty: int  # images whose labels are all known to be negative
    not_annotated: int  # images without any known label
    cardinality: float  # positives per image


def take_census(table: LabelTable) -> Census:
    """Count the labels of a table."""
    labels = table.labels
    splits = table.split.tolist()
    return Census(
        images={split: splits.count(split) for split in SPLITS if split in splits},
        classes=table.classes,
        positive=labels.count(POSITIVE),
        negative=labels.count(NEGATIVE),
        unknown=labels.count(UNKNOWN),
        verified_empty=int((labels.row_count(NEGATIVE) == len(table.classes)).sum()),
        not_annotated=int((labels.row_count(UNKNOWN) == len(table.classes)).sum()),
        cardinality=float(labels.row_count(POSITIVE).sum()) / max(1, len(labels)),
    )


def find_problems(table: LabelTable, *, images: bool = False, progress: Progress = iter) -> Iterator[Problem]:
    """What is wrong with a table beyond what its reader reports, one problem at a time.

    Args:
        table: a dataset as read.
        images: also decode every image, which finds damaged ones and copies under other names.
        progress: wraps the rows whose files are looked at, to show how far it is.
    """
    photos = photos_here(table)
    yield from _rare_classes(table)
    yield from _spellings(table)
    yield from _repeated(table, enumerate(table.files), "file")
    if table.vectors is not None:
        yield from _bad_vectors(table, table.vectors)
    if table.pixels is None and not table.ids:
        yield from _damaged_images(table, progress) if images else _missing_files(table, progress)
    if table.group is None:
        yield from _likely_groups(table)
        if not images and len(photos) <= MOST_COMPARED:
            hashes = image_hashes(photos, memory=cache_folder() / "contents.sqlite", progress=progress)
            yield from _nearly_the_same(table, dict(enumerate(hashes)))
        elif not images:
            what = "are not compared with each other; --decode finds those that look nearly the same"
            yield Problem("nearly the same", counted(len(photos), "image"), what, remark=True)


def photos_here(table: LabelTable) -> list[Path]:
    """Return the file of every row, all on this machine; nothing where rows are something else."""
    if table.ids or table.vectors is not None or table.pixels is not None or is_remote(table.root):
        return []
    return [table.path(row) for row in range(len(table))]


def _likely_groups(table: LabelTable) -> Iterator[Problem]:
    """By names of files as patient12_003.jpg or session 4/001.jpg."""
    files = defaultdict[str, set[str]](set)
    for file in table.files:
        if found := _NUMBERED.search(file):
            files[found[0]].add(file)
    several = [f"{name} ({counted(len(each), 'file')})" for name, each in files.items() if len(each) > 1]
    if len(several) > 1:
        what = "may each belong together, by their names; a column group would keep them in one split and fold"
        yield Problem("likely groups", listed(several), what, remark=True)


def _nearly_the_same(table: LabelTable, hashes: Mapping[int, ImageHash]) -> Iterator[Problem]:
    first = {table.files[row]: row for row in reversed(list(hashes))}  # a file may have several rows
    for rows in near_duplicates({row: hashes[row] for row in sorted(first.values())}):
        what = "look nearly the same; onepair start keeps them in one split and fold, --fix writes a column group"
        yield Problem("nearly the same", listed([table.files[row] for row in rows]), what, remark=True)


def _rare_classes(table: LabelTable) -> Iterator[Problem]:
    positives = dict(zip(table.classes, table.labels.count(POSITIVE).tolist(), strict=True))
    for name, number in positives.items():
        if number == 0:
            yield Problem("class without positives", f"class {name}", "has no positive, so it cannot be learned")
    everywhere = [name for name, number in positives.items() if number == len(table)]
    if everywhere and len(table) > 1:
        what = "shown by every image, so there is nothing to tell it from"
        yield Problem("in every image", f"class {listed(everywhere)}", what, remark=True)
    rare = [name for name, number in positives.items() if 0 < number < FEWEST_POSITIVES]
    if rare:
        what = f"fewer than {FEWEST_POSITIVES} positives are too few to judge a class by"
        yield Problem(
            "rare", f"{len(rare):,} of {counted(len(positives), 'class')} ({listed(rare)})", what, remark=True
        )


def much_alike(one: str, other: str) -> Problem:
    """Return the remark that two names may be of one class."""
    return Problem("names much alike", f"class {other}", f"may be class {one} by another name", remark=True)


def _spellings(table: LabelTable) -> Iterator[Problem]:
    for first, *others in same_names(table.classes):
        for name in others:
            what = f"is class {first} in another spelling; keep one of them"
            yield Problem("spellings of one class", f"class {name}", what)
    yield from (much_alike(one, other) for one, other in near_names(table.classes))


def _repeated(table: LabelTable, rows: Iterable[tuple[int, Hashable]], what: str) -> Iterator[Problem]:
    """Of rows and what identifies them, those that are the same as an earlier one."""
    first: dict[Hashable, int] = {}
    for row, identity in rows:
        earlier = first.setdefault(identity, row)
        if earlier == row:
            continue
        same = f"is the same {what} as {table.files[earlier]}{_contradiction(table, earlier, row)}"
        if table.split[earlier] == table.split[row]:
            yield Problem("duplicate", table.files[row], same)
        else:
            splits = f"the one in {table.split[row]}, the other in {table.split[earlier]}"
            yield Problem("leak between splits", table.files[row], f"{same}, {splits}")


def _contradiction(table: LabelTable, one: int, other: int) -> str:
    """What to add of two rows of which one says that a class is there, and the other that it is not."""
    known = table.labels[[one, other]]
    differing = [table.classes[i] for i in np.flatnonzero((known != UNKNOWN).all(0) & (known[0] != known[1]))]
    return f", with another label for {listed(differing)}" if differing else ""


def _bad_vectors(table: LabelTable, vectors: Vectors) -> Iterator[Problem]:
    for start, block in vectors.blocks():
        for row in (start + np.flatnonzero(~np.isfinite(block).all(1))).tolist():
            yield Problem(
                "bad vector", f"{vectors.source}, {vectors.words_on(row)}", f"of {table.files[row]} {NOT_FINITE}"
            )


def _missing_files(table: LabelTable, progress: Progress) -> Iterator[Problem]:
    there = all_at_once(lambda row: is_file(table.path(row)), range(len(table)), remote=is_remote(table.path(0)))
    missing = [row for row, found in zip(progress(range(len(table))), there, strict=True) if not found]
    if 1 < len(missing) == len(table):
        advice = _to_be_allowed(table, 0) or "say with --folder where they are"
        what = f"none of the {len(table):,} images is there, as {table.files[0]}; {advice}"
        yield Problem("missing file", str(table.root), what)
    else:
        yield from (missing_file(table, row) for row in missing)


def missing_file(table: LabelTable, row: int) -> Problem:
    """That there is no file where a row says."""
    file, advice = table.files[row], _to_be_allowed(table, row)
    where = f"on this machine; {advice}" if advice else f"in {table.root}"
    if table.places is None:
        return Problem("missing file", file, f"is not {where}")
    return Problem("missing file", table.places[row], f"no such file {file} {where}")


def _to_be_allowed(table: LabelTable, row: int) -> str:
    """What to say of a file that is a URL where none is followed."""
    url = table.files[row]
    if not is_url(url) or is_remote(table.root):
        return ""
    return f"--folder {'/'.join(url.split('/')[:3])} allows to read from there"


def _damaged_images(table: LabelTable, progress: Progress) -> Iterator[Problem]:
    first_of_name = set({file: row for row, file in reversed(list(enumerate(table.files)))}.values())
    seen: dict[int, Seen] = {}
    for row, finding in look_at_images(table, progress):
        if isinstance(finding, Problem):
            yield finding
        elif row in first_of_name:
            seen[row] = finding
    yield from _repeated(table, ((row, each.digest) for row, each in seen.items()), "image")
    if table.group is None:
        yield from _nearly_the_same(table, {row: each.hash for row, each in seen.items()})


class Seen(NamedTuple):
    """What an image is known by."""

    digest: bytes  # of its file
    hash: ImageHash


def look_at_images(table: LabelTable, progress: Progress = iter) -> Iterator[tuple[int, "Problem | Seen"]]:
    """Decode the image of every row: what is wrong with it, or what it is known by."""
    remote = len(table) > 0 and table.pixels is None and is_remote(table.path(0))
    threads = AT_ONCE if remote else cores()  # decoding lets go of Python's lock
    findings = in_threads(partial(_look, table), range(len(table)), threads=threads)
    yield from zip(progress(range(len(table))), findings, strict=True)


def _look(table: LabelTable, row: int) -> Problem | Seen:
    """Decode an image: what is wrong with it, or what it is known by."""
    from onepair.data.images.decode import decode

    path = table.path(row)
    try:
        if isinstance(path, NonLocalPath):
            content = path.read_bytes()
            hash = image_hash(decode(content, at_least=16))
            return Seen(blake2b(content, digest_size=16).digest(), hash)
        hash = image_hash(decode(path, at_least=16))  # to its end, but at a small scale where the format allows
        with path.open("rb") as file:
            return Seen(file_digest(file, partial(blake2b, digest_size=16)).digest(), hash)
    except (DataError, OSError) as error:
        if not exists(path):
            return missing_file(table, row)
        reason = error.strerror if isinstance(error, OSError) and isinstance(path, NonLocalPath) else str(error)
        return Problem(
            "unreadable image", table.files[row], str(reason).removeprefix(f"{path}: ").removeprefix("image: ")
        )


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
    hashes: dict[int, ImageHash] = {}
    for row, finding in look_at_images(table, progress):
        if isinstance(finding, Problem):
            changes.append(replace(finding, what=f"{finding.what}; left out"))
        else:
            copies[finding.digest].append(row)
            hashes[row] = finding.hash
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
    if table.group is None and (alike := near_duplicates({row: hashes[row] for row in sorted(kept)})):
        table = with_alike(table, alike)
        number = sum(map(len, alike))
        what = f"{counted(number, 'image')} that look nearly the same as another; the column group says which"
        doubts.append(Problem("nearly the same", counted(len(alike), "group"), what, remark=True))
    return _with_rows(table, sorted(kept))


ALIKE = "alike "  # what the names of such groups begin with


def with_alike(table: LabelTable, alike: Sequence[Sequence[int]]) -> LabelTable:
    """Return the table with rows that look nearly the same in one group."""
    number_of = {row: number for number, rows in enumerate(alike, start=1) for row in rows}
    names = (f"{ALIKE}{number_of[row]}" if row in number_of else "" for row in range(len(table)))
    return replace(table, group=tuple(names))


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
