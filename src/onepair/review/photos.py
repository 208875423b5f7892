"""The images of a run: as a browser gets them, with heat maps to lay over, and as a list to search and filter."""

import hashlib
import io
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image

from onepair.data.images.decode import decode, open_image
from onepair.data.images.tar import TarPath
from onepair.data.label_table import LabelTable
from onepair.data.tables.read_table import image_folders, row_roles
from onepair.data.tables.sheet import is_sheet, read_sheet
from onepair.errors import DataError, OnepairError
from onepair.files import write_atomically
from onepair.labels import NEGATIVE, POSITIVE, Indices
from onepair.remote import as_path, is_remote
from onepair.review.completion import own_dataset
from onepair.review.session import ReviewSession
from onepair.runs.finished import FinishedRun

LARGE = 1600  # pixels along the longer side of the photo on the page
SMALL = 320  # of a thumbnail
TINY = 64  # up to here an image is drawn pixel by pixel, and kept without loss
MAP = 128  # pixels along both sides of a heat map, which the browser stretches
DIMMED = 0.72  # how much darker an image is where a heat map is 0
LIT = (0.35, 0.75)  # the shares of its highest value from which on it is less dark, and as it is


class Picture(NamedTuple):
    """An encoded image."""

    content: bytes
    media_type: str


class Frame(NamedTuple):
    """What a page needs to know of an image before it has loaded."""

    width: int
    height: int
    version: str  # changes with the image, so that a browser may keep each version for good

    @property
    def tiny(self) -> bool:
        return max(self.width, self.height) <= TINY


class Passage(NamedTuple):
    """What a page shows in place of an image."""

    text: str


class Pictures:
    """Images by row of the table, re-encoded, so that a browser is only ever sent pixels.

    A link that leads out of the dataset is followed only if told so: somebody else may have put it there. Out of the
    dataset is out of the table's root or, for a file that the table itself places elsewhere, out of that file's folder.
    """

    def __init__(self, table: LabelTable, *, cache: Path, follow_links: bool = False) -> None:
        self.table = table
        self.cache = cache
        self.follow_links = follow_links
        self._writing = threading.Lock()

    def frame(self, row: int) -> Frame:
        """The size of an image, without decoding it."""
        if self.table.pixels is not None:
            height, width, _ = self.table.pixels[row].shape
            return Frame(width, height, _digest(self.table.pixels[row].tobytes()))
        path = self._path(row)
        try:
            with open_image(path) as image:
                turned = image.getexif().get(ExifTags.Base.Orientation, 1) >= 5
                width, height = reversed(image.size) if turned else image.size
                facts = path.stat()
        except DataError as error:
            if self.table.ids:
                raise DataError(f"{self.table.files[row]}: has neither a text nor an image to show") from error
            reason = str(error).removeprefix(f"{path}: ").removeprefix("cannot be read as an image: ")
            raise DataError(f"{self.table.files[row]}: cannot be read as an image ({reason})") from error
        return Frame(width, height, _digest(f"{path}\0{facts.st_size}\0{facts.st_mtime_ns}".encode()))

    def passage(self, row: int) -> Passage | None:
        """The text of a row, where texts are what the model has learned from or all that a row of vectors has."""
        return Passage(self.table.texts[row]) if self.table.ids and self.table.texts is not None else None

    def picture(self, row: int, side: int) -> Picture:
        """An image, scaled down to at most `side` pixels; kept on disk once made."""
        frame = self.frame(row)
        media_type = "image/png" if frame.tiny else "image/jpeg"
        if self.table.pixels is not None:
            return Picture(_encode(self.table.pixels[row], side, media_type), media_type)
        kept = self.cache / frame.version[:2] / f"{frame.version}-{side}"
        try:
            return Picture(kept.read_bytes(), media_type)
        except OSError:
            content = _encode(decode(self._path(row), at_least=side), side, media_type)
        with self._writing, suppress(OSError):  # without room to keep it, it is made anew each time
            self.cache.mkdir(mode=0o700, parents=True, exist_ok=True)  # the photos may be for their owner alone
            kept.parent.mkdir(exist_ok=True)
            write_atomically(kept, content)
        return Picture(content, media_type)

    def _path(self, row: int) -> Path:
        """Where the image of a row really is. One at a URL is on the server of the table, as `RemotePath` sees to."""
        given = self.table.path(row)
        if is_remote(given):
            return given
        named = Path(os.path.normpath(given.shard if isinstance(given, TarPath) else given))
        root = Path(os.path.normpath(self.table.root))
        home = root if named.is_relative_to(root) else named.parent
        try:
            path = named.resolve()
        except (OSError, RuntimeError, ValueError) as error:  # links in a circle, a NUL in the name
            raise DataError(f"{self.table.files[row]}: cannot be found ({error})") from error
        if not self.follow_links and not path.is_relative_to(home.resolve()):
            raise DataError(
                f"{self.table.files[row]}: is a link to outside of the dataset; "
                "onepair review --follow-links shows such images"
            )
        return given if isinstance(given, TarPath) else path


def heat_map(values: NDArray[np.uint8]) -> Picture:
    """A map (h, w) as a spotlight to lay over the image: clear where the map is high, dark elsewhere."""
    smooth = np.asarray(
        Image.fromarray(np.ascontiguousarray(values)).resize((MAP, MAP), Image.Resampling.BICUBIC), float
    )
    low, high = (share * max(smooth.max(), 1) for share in LIT)
    lit = np.clip((smooth - low) / (high - low), 0, 1)
    overlay = np.zeros((MAP, MAP, 4), np.uint8)
    overlay[..., 3] = np.rint(255 * DIMMED * (1 - lit * lit * (3 - 2 * lit)))  # smooth at both ends
    return Picture(_save(Image.fromarray(overlay, "RGBA"), "image/png"), "image/png")


def _encode(pixels: NDArray[np.uint8], side: int, media_type: str) -> bytes:
    image = Image.fromarray(pixels)
    image.thumbnail((side, side), Image.Resampling.BICUBIC)
    return _save(image, media_type)


def _save(image: Image.Image, media_type: str) -> bytes:
    content = io.BytesIO()
    image.save(content, media_type.removeprefix("image/").upper(), quality=88)
    return content.getvalue()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


Only = Literal["", "untagged", "missing", "wrong", "unsure", "answered"]
LONGEST = 500  # letters of a cell that are shown
MOST_FOLDERS = 300  # to choose from

Facts = Mapping[str, Sequence[tuple[str, str]]]  # of images by file: titles and cells
Mask = NDArray[np.bool_]  # (N,), rows of the table


class Filter(NamedTuple):
    """Which images are wanted; what is blank does not matter."""

    label: str = ""  # that they show
    without: str = ""  # that they do not show, as far as anybody has said
    folder: str = ""
    who: str = ""  # has answered about them
    only: Only = ""
    text: str = ""  # in the file name or in a column of the table


class PhotoList:
    """The images that a review is about, as they are labelled now."""

    def __init__(self, session: ReviewSession) -> None:
        self.session = session

    def find(self, wanted: Filter) -> Indices:
        """Return the rows of the images that fit, in the order of the table."""
        session = self.session
        kept = np.zeros(len(session.table), bool)
        kept[session.rows] = True
        if wanted.label:
            kept &= session.shows(wanted.label)
        if wanted.without:
            kept &= ~session.shows(wanted.without)
        if wanted.folder:
            kept &= self._where([folder == wanted.folder for folder in self._folder_of])
        if wanted.who:
            kept &= self._rows(row for row, entry in session.standing() if entry.who == wanted.who)
        if wanted.only:
            kept &= self._only(wanted.only)
        if text := wanted.text.strip().lower():
            kept &= self._where([text in words for words in self._words])
        return np.flatnonzero(kept)

    def _only(self, which: Only) -> Mask:
        session, queue = self.session, self.session.suggestions
        if which == "untagged":
            mask: Mask = session.labels().row_count(POSITIVE) == 0
            return mask
        if which in ("unsure", "answered"):
            return self._rows(row for row, entry in session.standing() if which == "answered" or entry.answer == "skip")
        value = POSITIVE if which == "missing" else NEGATIVE
        return self._rows(queue.rows[session.open & (queue.suggested == value)])

    def _rows(self, rows: Iterable[int]) -> Mask:
        mask = self._where([False] * len(self.session.table))
        mask[np.fromiter(rows, np.intp)] = True
        return mask

    @staticmethod
    def _where(fits: list[bool]) -> Mask:
        return np.array(fits, bool)

    @property
    def people(self) -> list[str]:
        """Everybody who has answered."""
        return sorted({entry.who for _, entry in self.session.standing()})

    @cached_property
    def folders(self) -> list[str]:
        """The folders that images are in, if there are several and not too many."""
        found = sorted({self._folder_of[row] for row in self.session.rows.tolist()})
        return found if 1 < len(found) <= MOST_FOLDERS else []

    @cached_property
    def _folder_of(self) -> list[str]:
        return [str(PurePosixPath(file).parent) for file in self.session.table.files]

    @cached_property
    def facts(self) -> Facts:
        """What the table says of each image beside its labels."""
        return read_facts(self.session.run)

    @cached_property
    def _words(self) -> list[str]:
        """What is searched."""
        files = self.session.table.files
        return ["\n".join([file, *(cell for _, cell in self.facts.get(file, ()))]).lower() for file in files]


def read_facts(run: FinishedRun) -> Facts:
    """Read what the owner's table says of images beside their labels, by file; nothing where there is no such table."""
    data = own_dataset(run)
    source = as_path(data.source)
    if is_remote(source) or not is_sheet(source):
        return {}
    try:
        sheet = read_sheet(source, lambda problem: None)
        folders = image_folders(source, None if data.images is None else as_path(data.images))
        rows = row_roles(sheet, folders, label_columns=data.label_columns or None, report=lambda problem: None)
    except OnepairError:  # it has changed since, which the review does not need to know
        return {}
    of = rows.columns
    used = {of.file, of.text, of.vector, of.split, of.complete, of.asked, of.value, of.names, of.negatives, *of.classes}
    others = [(title, cells) for i, (title, cells) in enumerate(zip(rows.sheet.header, rows.sheet.columns, strict=True))
              if i not in used and title]  # fmt: skip
    return {
        file: [(title, str(cell)[:LONGEST]) for title, cells in others if (cell := cells[row]) not in (None, "")]
        for (file, _), row in zip(rows.images.names, rows.images.first.tolist(), strict=True)
    }
