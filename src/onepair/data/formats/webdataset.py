"""WebDataset's tar shards: files that share a base name are one sample, an image and its labels."""

import itertools
import json
import operator
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from onepair.data.formats import register_reader
from onepair.data.images.decode import SUFFIXES
from onepair.data.images.tar import SUFFIX, Index, index_of
from onepair.data.label_table import LabelTable, Problem, Report, raise_problem
from onepair.data.tables.cell_values import BAD, label_of, names_in, split_of
from onepair.data.tables.column_roles import LIST_NAMES
from onepair.data.tables.read_table import Unlisted
from onepair.data.tables.sheet import is_sheet, plain_title
from onepair.data.text_files import entries, exists, labels_by_name, read_lines
from onepair.errors import DataError
from onepair.labels import NEGATIVE, POSITIVE
from onepair.remote import all_at_once, as_path, is_remote
from onepair.words import listed

MOST = 100_000  # shards that braces may stand for
CLASSES = "classes.txt"  # beside the shards: the names of the numbers in .cls, one in a line

_BRACES = re.compile(r"\{(\d{1,9}\.\.\d{1,9}|[^{}]*,[^{}]*)\}")
_RANGE = re.compile(r"(\d+)\.\.(\d+)")
_NUMBER = re.compile(r"\d{1,18}")  # of a class


class _Said(NamedTuple):
    """What a sample says of classes."""

    labels: dict[str, int]
    is_list: bool  # so that what it leaves out may be negative
    split: str | None = None


class _Sample(NamedTuple):
    file: str
    place: str
    split: str
    said: _Said


def detect(path: Path) -> bool:
    """Whether `path` is a .tar, a pattern of several, or a folder with nothing but such shards and what is about them.

    In a folder they may be in others that are named after splits.
    """
    if path.suffix.lower() == SUFFIX:
        return bool(_BRACES.search(str(path))) or (exists(path) and not path.is_dir())
    return not (path.suffix and is_remote(path)) and bool(_in_folder(path, alone=True))


@register_reader(
    "webdataset",
    detect=detect,
    description="WebDataset's tar shards: images, each with a .json, .cls or .txt of its labels",
    layout="a .tar file, a pattern like 'train-{000000..000009}.tar', or a folder of such shards, perhaps in "
    "train/, val/ and test/",
    last=True,
    at_url="either",
)
def read(path: Path, *, unlisted: Unlisted = "unknown", report: Report = raise_problem) -> LabelTable:
    """Read shards; a sample is an image and, under the same name up to its first dot, one file that labels it.

    That is a `.json`, in which labels, classes, tags or the like are a list of names or an object with 1, 0 or null for
    each class, or which is such a list or object itself; else a `.cls` with the number of a class, which is its name
    unless `classes.txt` beside the shards has one for every number, counted from 0; else a `.txt` with names, as in the
    lists of a table. A sample without either has no known label. The split is what a `.json` calls so, or what the
    name of the shard or its folder says, as train-000000.tar or val/0.tar; else "train".

    Only the headers of a tar are read, and once; images are read from where they are when they are needed. Of a damaged
    tar, the samples before the damage count.
    """
    root, shards = _shards(path)
    samples = list(_samples(root, shards, report))
    named = [(row, name, label) for row, each in enumerate(samples) for name, label in each.said.labels.items()]
    if not named:
        raise DataError(
            f"{path}: of {len(samples):,} images none is labelled; a sample is 1.jpg with 1.json, as "
            '{"labels": ["dog", "sofa"]}, or 1.cls or 1.txt'
        )
    complete = [each.said.is_list and unlisted == "negative" for each in samples]
    classes, labels = labels_by_name(len(samples), named, complete=complete)
    return LabelTable(
        files=tuple(sample.file for sample in samples),
        classes=tuple(classes),
        labels=labels,
        split=np.array([sample.split for sample in samples]),
        root=root,
        places=tuple(sample.place for sample in samples),
    )


def expanded(pattern: str) -> Iterator[str]:
    """All that a pattern of braces stands for, as a shell has it: zeros before a number make all as long.

    >>> list(expanded("{train,val}-{08..10}.tar"))[2:4]
    ['train-10.tar', 'val-08.tar']
    >>> list(expanded("{00..100}.tar"))[:2], list(expanded("{10..8}.tar"))[1:], list(expanded("{1}.tar"))
    (['000.tar', '001.tar'], ['9.tar', '8.tar'], ['{1}.tar'])
    """
    pieces: list[list[str]] = []
    for place, piece in enumerate(_BRACES.split(pattern)):
        numbers = _RANGE.fullmatch(piece) if place % 2 else None
        if numbers is None:
            pieces.append(piece.split(",") if place % 2 else [piece])
            continue
        first, last = int(numbers[1]), int(numbers[2])
        if abs(last - first) >= MOST:
            raise DataError(f"{pattern}: stands for more than {MOST:,} shards")
        step = 1 if last >= first else -1
        width = max(map(len, numbers.groups())) if any(re.match("0.", each) for each in numbers.groups()) else 0
        pieces.append([str(number).zfill(width) for number in range(first, last + step, step)])
    for found, parts in enumerate(itertools.product(*pieces)):
        if found >= MOST:
            raise DataError(f"{pattern}: stands for more than {MOST:,} shards")
        yield "".join(parts)


def _shards(path: Path) -> tuple[Path, list[Path]]:
    """The folder that samples are named from, and the shards in or below it."""
    if path.suffix.lower() != SUFFIX:
        found = _in_folder(path)
        if not found:
            raise DataError(f"{path}: holds no shards, that is .tar files")
        return path, found
    root = path.parent
    while _BRACES.search(str(root)):
        root = root.parent
    if is_remote(path) and len(root.parts) < 2:
        raise DataError(f"{path}: the shards of one dataset are in one bucket, or on one server")
    return root, [as_path(each) for each in expanded(str(path))] if _BRACES.search(str(path)) else [path]


def _in_folder(path: Path, *, alone: bool = False) -> list[Path]:
    """The shards in a folder, or in those of splits in it; if they should be alone, none where other things are."""
    inside = entries(path)
    shards = [each for each in inside if each.suffix.lower() == SUFFIX]
    folders = [each for each in inside if not each.suffix and each.is_dir()]
    if alone and shards and (folders or any(is_sheet(each) or each.suffix.lower() in SUFFIXES for each in inside)):
        return []
    below = [_in_folder(each, alone=alone) if split_of(each.name) else [] for each in folders]
    return shards or (list(itertools.chain(*below)) if all(below) or not alone else [])


def _samples(root: Path, shards: list[Path], report: Report) -> Iterator[_Sample]:
    found = list(all_at_once(exists, shards, remote=is_remote(root)))
    for shard in itertools.compress(shards, map(operator.not_, found)):
        report(Problem("missing shard", str(shard), "there is no such file"))
    there = list(itertools.compress(shards, found))
    if not there:
        raise DataError(f"{shards[0]}: there is no such file, nor any other of {len(shards):,} shards")
    names, bad = _names(root), []
    for shard, index in zip(there, all_at_once(_index, there, remote=is_remote(root)), strict=True):
        if isinstance(index, DataError):
            bad.append(index)
            if len(bad) == len(there):
                raise bad[0]
            report(Problem("damaged shard", str(shard), str(index).removeprefix(f"{shard}: ")))
            continue
        if index.broken:
            report(Problem("damaged shard", str(shard), index.broken))
        if index.repeated:
            what = f"holds {listed(index.repeated)} more than once; the last of a name counts"
            report(Problem("duplicate", str(shard), what))
        yield from _in_shard(shard.relative_to(root), index, names, report)


def _index(shard: Path) -> Index | DataError:
    try:
        return index_of(shard)
    except DataError as error:
        return error
    except OSError as error:
        return DataError(f"{shard}: cannot be read ({error.strerror or error})")


def _in_shard(shard: Path, index: Index, names: list[str], report: Report) -> Iterator[_Sample]:
    parts: dict[str, dict[str, str]] = defaultdict(dict)
    for member in index.members:
        folder, slash, base = member.rpartition("/")
        stem, dot, extension = base.partition(".")
        parts[folder + slash + stem][dot + extension.lower()] = member
    split = next(filter(None, map(split_of, re.split(r"[\W\d_]+", shard.as_posix()))), "train")
    dotted: list[str] = []
    for key, members in parts.items():
        image = next((member for extension, member in members.items() if extension in SUFFIXES), None)
        if image is None:
            hidden = key.endswith("/") or not key
            dotted += [each for end, each in members.items() if end.endswith(tuple(SUFFIXES)) and not hidden]
            continue
        place = f"{shard.as_posix()}, sample {key}"
        texts = {extension: index.texts[member] for extension, member in members.items() if member in index.texts}
        said = _said(texts, names, place, report)
        yield _Sample(f"{shard.as_posix()}/{image}", place, said.split or split, said)
    if dotted:
        what = f"{listed(dotted)} left out: a sample's name ends at its first dot; rename them, as a-b.jpg for a.b.jpg"
        report(Problem("no sample", shard.as_posix(), what))


def _said(texts: dict[str, str], names: list[str], place: str, report: Report) -> _Said:
    split = None
    if ".json" in texts:
        try:
            document = json.loads(texts[".json"])
        except (ValueError, RecursionError):
            report(Problem("bad value", place, "its .json is not JSON"))
            return _Said({}, is_list=False)
        if isinstance(document, dict) and isinstance(document.get("split"), str):
            split = split_of(document["split"])
        found = _labels_in(document, names, place, report)
        if found is not None:
            return found._replace(split=split)
    if ".cls" in texts:
        numbers = re.split(r"[\s,;]+", texts[".cls"].strip())
        if all(map(_NUMBER.fullmatch, numbers)):
            return _listed(list(map(int, numbers)), names, place, report)._replace(split=split)
        report(Problem("bad value", place, f"its .cls holds {texts['.cls'][:20]!r}; it is the number of a class"))
    elif ".txt" in texts:
        named = names_in(texts[".txt"])
        if named is not None:
            return _Said(dict.fromkeys(named, POSITIVE), is_list=True, split=split)
        report(Problem("bad value", place, "its .txt is no list of names, as dog;sofa"))
    return _Said({}, is_list=False, split=split)


def _labels_in(document: Any, names: list[str], place: str, report: Report) -> _Said | None:
    """What a JSON file says of classes; None if nothing."""
    value = document
    if isinstance(document, dict):
        by_name = {plain_title(key): key for key in document}
        key = next((by_name[name] for name in LIST_NAMES if name in by_name), None)
        others = [label_of(each) for name, each in document.items() if name != "split"]
        if key is not None:
            value = document[key]
        elif BAD in others or not {POSITIVE, NEGATIVE} & set(others):
            return None
        else:
            value = {name: each for name, each in document.items() if name != "split"}
    if isinstance(value, dict):
        labels = {name.strip(): label_of(each) for name, each in value.items()}
        for name, label in labels.items():
            if label == BAD:
                report(Problem("bad value", place, f"holds {value.get(name)!r} for {name}; a label is 1, 0 or null"))
        return _Said({name: label for name, label in labels.items() if label != BAD and name}, is_list=False)
    return _listed([value] if type(value) is int else value, names, place, report)


def _listed(value: Any, names: list[str], place: str, report: Report) -> _Said:
    """What a list says: of names, of numbers of classes, or of a zero or one for each class."""
    if isinstance(value, list) and len(value) > 2 and all(each in (0, 1) for each in value):
        if len(value) == len(names):
            return _Said(dict(zip(names, map(int, value), strict=True)), is_list=False)
        what = f"holds {len(value):,} zeros and ones, and {CLASSES} beside the shards does not name as many classes"
        report(Problem("bad value", place, what))
        return _Said({}, is_list=False)
    if isinstance(value, list):
        value = [_name(each, names) if type(each) is int else each for each in value]
    named = names_in(value)
    if named is None:
        report(Problem("bad value", place, f"holds {str(value)[:40]!r}; labels are a list of names"))
        return _Said({}, is_list=False)
    return _Said(dict.fromkeys(named, POSITIVE), is_list=True)


def _name(number: int, names: list[str]) -> str:
    return names[number] if 0 <= number < len(names) else str(number)


def _names(root: Path) -> list[str]:
    return read_lines(root / CLASSES) if exists(root / CLASSES) else []
