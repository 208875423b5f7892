"""The images in folders, in one order whatever the system's, without holding all of their names in memory."""

import heapq
import json
import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from onepair.data.images.decode import FORMATS, SUFFIXES
from onepair.data.images.tar import SUFFIX, images_in_tar, in_tar
from onepair.data.text_files import is_file
from onepair.errors import DataError
from onepair.remote import NonLocalPath

NAMES_IN_MEMORY = 50_000  # of one folder; more are sorted on disk


def image_files(path: Path) -> Iterator[Path]:
    """A file alone, or all images in a folder and the folders below, sorted by the names of folders and files.

    They come one by one, from any number of them: names beyond `NAMES_IN_MEMORY` wait in temporary files. A tar
    alone is a folder, too, whose images come as they follow each other in it.
    """
    path = in_tar(path)
    is_tar = path.suffix.lower() == SUFFIX and is_file(path)
    if not is_tar and not path.is_dir():
        yield path
        return
    empty = True
    for file in images_in_tar(path) if is_tar else walk(path):
        empty = False
        yield file
    if empty:
        raise DataError(
            f"{path}: holds no images to predict; they are known by their names, as of {', '.join(FORMATS)}"
        )


def walk(folder: Path) -> Iterator[Path]:
    """All images in a folder and the folders below."""
    for name, is_folder in _sorted(_entries(folder)):
        if is_folder:
            yield from walk(folder / name)
        else:
            yield folder / name


def _entries(folder: Path) -> Iterator[tuple[str, bool]]:
    """The names of the images and folders in a folder, and which are folders; links to folders are not followed."""
    try:
        if isinstance(folder, NonLocalPath):
            for each in folder.iterdir():
                is_folder = each.is_dir()
                if is_folder or each.suffix.lower() in SUFFIXES:
                    yield each.name, is_folder
            return
        with os.scandir(folder) as entries:
            for entry in entries:
                is_folder = entry.is_dir(follow_symlinks=False)
                if is_folder or (entry.name[entry.name.rfind(".") :].lower() in SUFFIXES and not entry.is_dir()):
                    yield entry.name, is_folder
    except OSError as error:
        raise DataError(f"{folder}: cannot be read ({error.strerror})") from None


def _sorted(entries: Iterator[tuple[str, bool]]) -> Iterator[tuple[str, bool]]:
    """Sort as many as there are: full lists go to disk in order, and are merged while they are read."""
    held: list[tuple[str, bool]] = []
    kept: list[IO[str]] = []
    try:
        for entry in entries:
            held.append(entry)
            if len(held) == NAMES_IN_MEMORY:
                kept.append(_keep(sorted(held)))
                held = []
        yield from heapq.merge(sorted(held), *map(_read, kept))
    finally:
        for file in kept:
            file.close()


def _keep(entries: list[tuple[str, bool]]) -> IO[str]:
    file = TemporaryFile("w+", encoding="ascii")  # noqa: SIM115 (it outlives this function)
    file.writelines(json.dumps(entry) + "\n" for entry in entries)  # JSON: a name may hold a line break, or no text
    file.seek(0)
    return file


def _read(file: IO[str]) -> Iterator[tuple[str, bool]]:
    for line in file:
        name, is_folder = json.loads(line)
        yield name, is_folder
