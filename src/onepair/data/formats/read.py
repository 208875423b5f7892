"""Read a dataset in any format: by its name, or by the layout of its files."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args

from onepair.data.class_rules import apply_rules, read_rules
from onepair.data.formats import (  # noqa: F401 (importing a module registers its reader)
    READERS,
    Reader,
    coco,
    digits,
    image_folders,
    label_studio,
    research,
    scenes,
    webdataset,
    xmp,
)
from onepair.data.images.image_files import skipped_files, walk
from onepair.data.label_table import LabelTable, Report, raise_problem
from onepair.data.tables.cell_values import split_of
from onepair.data.tables.read_table import Spellings, Unlisted, Zeros
from onepair.data.tables.sheet import is_sheet
from onepair.data.text_files import entries, exists
from onepair.data.vector_files import read_vectors
from onepair.errors import DataError
from onepair.remote import as_path, is_remote

_SPREADSHEETS = (".xls", ".ods", ".numbers")
_COMPRESSED = (".gz", ".tgz", ".bz2", ".xz", ".zst", ".zip", ".7z")


def read_dataset(
    source: str | Path,
    *,
    format: str = "auto",
    unlisted: Unlisted = "unknown",
    zeros: Zeros = "negative",
    images: str | Path | None = None,
    label_columns: Sequence[str] | None = None,
    complete_splits: Sequence[str] = (),
    spellings: Spellings = "merge",
    same: Sequence[str] = (),
    classes: str | Path | None = None,
    features: str | Path | None = None,
    report: Report = raise_problem,
) -> LabelTable:
    """Read a dataset in any of the `READERS`.

    Args:
        source: a path, a URL, or "digits" for the embedded dataset.
        format: a name in `READERS`, or "auto" to tell it by the layout of the files.
        unlisted: what a class is that is not listed for an image, where labels are lists: "unknown" or "negative".
        zeros: what a 0 of a table is: "negative", or "unknown" where it means no more than "not tagged".
        images: the folder that the file names of a table or of annotations are relative to.
        label_columns: of a table, the columns of classes or the one with lists; by default they are recognised.
        complete_splits: splits whose images are labelled completely: what is unknown there is negative.
        spellings: of a table, "merge" names of classes that differ in case, spaces, Unicode or an English plural, or
            "keep" them apart.
        same: names of classes that are another by another name, as "hund=dog".
        classes: a table of classes with columns name, same as, is a, not with; see `onepair.data.class_rules`.
        features: vectors of all rows, as `read_vectors` opens them; the rows of a table then need no files.
        report: called with every problem in the label files; the default stops at the first one, and a list's
            `append` collects them all. Some are only remarks, which stop nobody.

    Raises:
        DataError: a sentence that says what is wrong, where, and what to do.

    Examples:
        >>> read_dataset("photos/labels.csv", unlisted="negative").classes  # doctest: +SKIP
        ('cat', 'dog')
    """
    for option, value, allowed in (
        ("unlisted", unlisted, get_args(Unlisted)),
        ("zeros", zeros, get_args(Zeros)),
        ("spellings", spellings, get_args(Spellings)),
    ):
        if value not in allowed:
            raise ValueError(f"{option} must be {' or '.join(map(repr, allowed))}, got {value!r}")
    path = as_path(source)
    reader = recognise(path, format)
    options: dict[str, Any] = {
        "unlisted": unlisted,
        "zeros": zeros,
        "spellings": spellings,
        "images": None if images is None else as_path(images),
        "label_columns": label_columns or None,
        "with_vectors": features is not None,
    }
    for option, unsaid in (("images", None), ("label_columns", None), ("zeros", "negative")):
        if options[option] != unsaid and option not in reader.options:
            raise DataError(f"{path}: is read as {reader.name}, which takes no {option}")
    found = reader.read(path, report=report, **{name: options[name] for name in reader.options if name in options})
    found = _completed(found, complete_splits, path) if complete_splits else found
    if same or classes is not None:
        rules = read_rules(same, None if classes is None else as_path(classes))
        stated = unlisted == "unknown" and not complete_splits
        found = apply_rules(found, rules, source=path.name, report=report, stated=stated)
    if features is not None:
        vectors = read_vectors(features).of_table(found.files, found.numbered, str(path))
        found = replace(found, vectors=vectors, ids=True)
    found.check_names(path)
    return found


def _completed(table: LabelTable, splits: Sequence[str], path: Path) -> LabelTable:
    """The table with what is unknown in some splits as negative."""
    labels = table.labels
    for name in splits:
        split = split_of(name)
        if split is None or split not in table.split:
            there = ", ".join(dict.fromkeys(table.split.tolist()))
            raise DataError(f"{path}: has no split {name} that could be complete; there are {there}")
        labels = labels.with_unknown_negative(table.rows(split))
    return replace(table, labels=labels)


def recognise(path: Path, format: str = "auto") -> Reader:
    """What reads a path: what the format names, or what fits the layout; or a sentence that nothing does."""
    if format != "auto":
        return _named(format)
    possible: Iterable[Reader] = READERS.values()
    if is_remote(path):  # each look is a question to the server
        possible = [each for each in possible if each.at_url in ("file" if path.suffix else "folder", "either")]
    fitting = [reader for reader in possible if reader.detect(path)]
    fitting = [reader for reader in fitting if not reader.last] or fitting
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        names = " and ".join(reader.name for reader in fitting)
        raise DataError(f"{path}: has the layout of {names}; name the format that you mean")
    if not exists(path):
        wild = path.suffix.lower() == ".tar" and set("*?[{") & set(path.name)
        advice = "; several shards are a folder, or a pattern as {train,val}-{000..009}.tar" if wild else ""
        raise DataError(f"{path}: there is no such file or folder{advice}")
    if path.suffix.lower() in _COMPRESSED and not path.is_dir():
        raise DataError(f"{path}: is compressed; unpack it, or of a .tar.gz only the .gz, and give what comes out")
    if path.suffix.lower() in _SPREADSHEETS:
        raise DataError(
            f"{path}: is a spreadsheet; save it as .xlsx or CSV in the program that made it, and give that file"
        )
    if not path.is_dir():
        raise DataError(f"{path}: is no file of labels; onepair datasets lists what can be read")
    inside = [each.name for each in entries(path) if is_sheet(each) or coco.detect(each) or label_studio.detect(each)]
    if inside:
        advice = ", or say --format folders for a class per folder" if len(image_folders.classes_in(path)) > 1 else ""
        raise DataError(f"{path}: is a folder with {', '.join(inside[:5])}; give the label file{advice}")
    if image := next(walk(path), None):
        raise DataError(
            f"{path}: holds images and no labels; write a table beside them with a line for each that has labels, as "
            f"labels.csv with the lines file,labels and {image.relative_to(path)},dog;sofa"
        )
    if left := skipped_files(path):
        raise DataError(f"{path}: holds no photos; {left}")
    if not any(entries(path)):
        raise DataError(f"{path}: is empty; put photos there, and a table of their labels")
    layouts = "".join(f"\n  {reader.name}: {reader.layout}" for reader in READERS.values())
    raise DataError(f"{path}: is not in a layout that can be recognised; looked for{layouts}")


def _named(name: str) -> Reader:
    if name in READERS:
        return READERS[name]
    near = get_close_matches(name, READERS, n=2, cutoff=0.5)
    advice = f"did you mean {' or '.join(near)}?" if near else f"there are auto, {', '.join(READERS)}"
    raise DataError(f"there is no dataset format {name!r}; {advice}")
