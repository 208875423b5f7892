"""The images in folders, sorted by name."""

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from onepair.data.images.decode import FORMATS, RAW, SUFFIXES, VIDEOS
from onepair.data.images.tar import SUFFIX, images_in_tar, in_tar
from onepair.data.text_files import is_file
from onepair.errors import DataError
from onepair.remote import NonLocalPath
from onepair.words import counted, listed

MOST_FOLDERS = 10_000  # that are looked through for files that are no images


def image_files(path: Path) -> Iterator[Path]:
    """Yield a file itself, or all images in a folder and the folders below, sorted by the names of folders and files.

    A folder is read when its turn comes. A tar is a folder, too, whose images come in the order of the tar.
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
    """Yield all images in a folder and the folders below."""
    for name, is_folder in sorted(_entries(folder)):
        if is_folder:
            yield from walk(folder / name)
        else:
            yield folder / name


def skipped_files(folder: Path) -> str:
    """Return a sentence on the videos and RAW photos in a folder and below, which are no images here; "" without any.

    >>> skipped_files(Path("there is no such folder"))
    ''
    """
    found: dict[str, list[str]] = {"video": [], "RAW photo": []}
    for _, folders, files in islice(os.walk(folder), MOST_FOLDERS):
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        for file in sorted(files):
            suffix = Path(file).suffix.lower()
            if suffix in VIDEOS or suffix in RAW:
                found["video" if suffix in VIDEOS else "RAW photo"].append(file)
    parts = [f"{counted(len(files), what)} ({listed(files)})" for what, files in found.items() if files]
    return f"left out: {' and '.join(parts)}; photos are JPEG, PNG and the like" if parts else ""


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
                if is_folder or (Path(entry.name).suffix.lower() in SUFFIXES and not _leads_to_folder(entry)):
                    yield entry.name, is_folder
    except OSError as error:
        raise DataError(f"{folder}: cannot be read ({error.strerror})") from None


def _leads_to_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself, which whoever reads it is told
        return False
