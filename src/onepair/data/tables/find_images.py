"""The names of a table's rows, and where the images are that they name: perhaps in another folder than it says."""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from itertools import islice, takewhile
from pathlib import Path, PurePosixPath
from unicodedata import normalize
from urllib.parse import parse_qs, unquote, urlsplit

from onepair.data.images.decode import SUFFIXES
from onepair.data.images.tar import joined
from onepair.data.label_table import Problem, Report
from onepair.data.tables.column_roles import Columns
from onepair.data.tables.sheet import Sheet
from onepair.data.text_files import exists, fold, is_file
from onepair.remote import all_at_once, is_remote
from onepair.words import counted

_LOOKED_FOR = 100  # files, to tell whether any is there
SAMPLE = 200  # names by which a folder is chosen
MOST = 200_000  # files and folders that are looked through for images
_UPLOADED = re.compile(r"[0-9a-f]{8}-(?=.)")  # what Label Studio puts before the name of a file


def locate(names: Sequence[str], folders: Sequence[Path]) -> tuple[Path, list[str]]:
    """The folder that images lie in, and their names there.

    Names that are found as they are stay as they are. Else each is looked for by its last parts: a name may begin with
    the folders of another machine, be a URL, or have got a prefix when it was uploaded; and by these among all images
    below the folder, whatever their suffix and its case. What is not found at all, or only where another image is,
    keeps its name. At a URL, files are where their names say: to look for them would be to ask for each.

    Args:
        names: of the images, as written; one may be there many times.
        folders: where they may be, the likeliest first; at least one.
    """
    if is_remote(folders[0]):
        return folders[0], list(names)
    different = list(dict.fromkeys(names))
    some = different[:: -(-len(different) // SAMPLE) or 1]
    by_name = max(folders, key=lambda folder: sum(exists(joined(folder, name)) for name in some))
    if all(exists(joined(by_name, name)) for name in some):
        return by_name, list(names)
    places = [_Place(folder, deep=folder == folders[0] or folder not in folders[0].parents) for folder in folders]
    place = max(places, key=lambda place: sum(place.here(name) is not None for name in some))
    if not any(map(place.here, some)):
        place = max(places, key=lambda place: sum(place.find(name) is not None for name in some))
        if not any(map(place.find, some)):
            return folders[0], list(names)
    found = {name: place.find(name) or name for name in different}
    times = Counter(found.values())
    return place.folder, [found[name] if times[found[name]] == 1 else name for name in names]


class _Place:
    """A folder with images; a deep one with those below it."""

    def __init__(self, folder: Path, *, deep: bool) -> None:
        self.folder = folder
        self.deep = deep

    def here(self, name: str) -> str | None:
        """What an image is called that is found by its name or the end of it."""
        return next((form for form in _spellings(name) if exists(joined(self.folder, form))), None)

    def find(self, name: str) -> str | None:
        """What an image is called here or below."""
        return self.here(name) or (self._below(_path_in(name)) if self.deep else None)

    @cached_property
    def _by_stem(self) -> dict[str, list[tuple[str, ...]]]:
        """The parts of the names of all images below, by the last one without its suffix; of too many, none."""
        found: dict[str, list[tuple[str, ...]]] = defaultdict(list)
        seen = 0
        for parent, folders, files in os.walk(self.folder):
            folders[:] = [each for each in folders if not each.startswith(".")]
            above = Path(parent).relative_to(self.folder).parts
            seen += len(files) + len(folders)
            if seen > MOST:
                return {}
            for file in files:
                stem, suffix = os.path.splitext(file)  # noqa: PTH122 (many times quicker)
                if suffix.lower() in SUFFIXES:
                    found[fold(stem)].append((*above, file))
        return found

    def _below(self, name: str) -> str | None:
        """The one image below whose name ends as this one does, in most of its parts."""
        parts = name.replace("\\", "/").split("/")
        stem, suffix = os.path.splitext(parts[-1])  # noqa: PTH122
        if suffix.lower() not in SUFFIXES:
            stem = parts[-1]
        fitting = self._by_stem.get(fold(stem), [])

        def likeness(file: tuple[str, ...]) -> tuple[int, bool]:
            pairs = zip(reversed(file[:-1]), reversed(parts[:-1]), strict=False)
            shared = sum(1 for _ in takewhile(lambda pair: fold(pair[0]) == fold(pair[1]), pairs))
            return shared, fold(file[-1]) == fold(parts[-1])

        best = max(map(likeness, fitting), default=None)
        nearest = [file for file in fitting if likeness(file) == best]
        return "/".join(nearest[0]) if len(nearest) == 1 else None


def _spellings(name: str) -> Iterator[str]:
    """A name, its `_forms`, and of each both ways to write an é: as one character, or as two, as macOS does."""
    for form in (name, *_forms(name)):
        yield form
        if not form.isascii():
            yield from (normalize(way, form) for way in ("NFC", "NFD"))


def _forms(name: str) -> Iterator[str]:
    """The names that an image may have here.

    >>> list(_forms("/data/upload/1/0a1b2c3d-my%20cat.jpg"))[-2:]
    ['0a1b2c3d-my cat.jpg', 'my cat.jpg']
    >>> next(_forms("/data/local-files/?d=photos/cat.jpg"))
    'photos/cat.jpg'
    """
    path = _path_in(name)
    parts = [part for part in path.replace("\\", "/").split("/") if part not in ("", ".", "..")]
    for first in range(len(parts)):
        yield "/".join(parts[first:])
    if parts and _UPLOADED.match(parts[-1]):
        yield _UPLOADED.sub("", parts[-1], count=1)


def _path_in(name: str) -> str:
    """A name without what makes it a URL."""
    if "://" not in name and not name.startswith("/data/"):
        return name
    try:
        url = urlsplit(name)
    except ValueError:
        return name
    local = parse_qs(url.query).get("d")
    return local[0] if local else unquote(url.path)


# The rows of a table


def has_ids(sheet: Sheet, columns: Columns, folders: Sequence[Path], report: Report) -> bool:
    """Whether rows are texts and nothing else: they name no files, or none that is there."""
    if columns.text is None or columns.file is None:
        return columns.text is not None
    cells = (cell for cell in sheet.columns[columns.file] if isinstance(cell, str) and cell.strip())
    root, names = locate([_as_found(folders[0], cell) for cell in islice(cells, _LOOKED_FOR)], folders)
    if any(exists(joined(root, name)) for name in names):
        return False
    what = f"none of its files is in {folders[0]}; taken for texts with names"
    report(Problem("texts", sheet.source.name, what, remark=True))
    return True


def row_names(
    sheet: Sheet, column: int | None, folders: Sequence[Path] | None, report: Report
) -> tuple[Path | None, list[str | None]]:
    """The folder of the files, and the file of each row as it is found there: it may have another name or place.

    Without folders, rows have the names that they say; without a column, their numbers.
    """
    if column is None:
        return None, [str(number) for number in sheet.numbers]
    cells = [str(cell) if type(cell) is int else cell for cell in sheet.columns[column]]
    written = {row: cell for row, cell in enumerate(cells) if isinstance(cell, str) and cell.strip()}
    for row in range(len(cells)):
        if row not in written:
            report(sheet.bad("no file name", row, column, ", not the name of a file"))
    if folders is None:
        return None, [written.get(row) for row in range(len(cells))]
    odd = list({cell for cell in written.values() if "\\" in cell or cell != cell.strip() or _has_detours(cell)})
    found = dict(zip(odd, all_at_once(partial(_as_found, folders[0]), odd, remote=is_remote(folders[0])), strict=True))
    names = [found.get(cell, cell) for cell in written.values()]
    root, located = locate(names, folders)
    if root != folders[0]:
        report(Problem("found elsewhere", sheet.source.name, f"the images are in {root}", remark=True))
    moved = {old: new for old, new in zip(names, located, strict=True) if old != new}
    if moved:
        old, new = next(iter(moved.items()))
        what = f"{counted(len(moved), 'file')} found by the end of the name, as {old}, which is {new}"
        report(Problem("found elsewhere", sheet.source.name, what, remark=True))
    file_of = dict(zip(written, located, strict=True))
    return root, [file_of.get(row) for row in range(len(cells))]


def _has_detours(file: str) -> bool:
    return "://" not in file and ("//" in file or "./" in file)


def _as_found(root: Path, file: str) -> str:
    """The name of a file as it was written, unless only one without spaces around it or backslashes is there.

    Without detours, so that one file has one name.

    >>> _as_found(Path("photos"), "./cats//tom.jpg")
    'cats/tom.jpg'
    """
    if _has_detours(file):
        file = str(PurePosixPath(file))
    if "\\" not in file and file == file.strip():
        return file
    forms = (file, file.strip(), file.replace("\\", "/"), file.strip().replace("\\", "/"))
    return next((form for form in dict.fromkeys(forms) if is_file(joined(root, form))), file)
