"""All images of a run as a list to search and filter, and what its owner's table says of them beside their labels."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import PurePosixPath
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from onepair.data.tables.read_table import image_folders, row_roles
from onepair.data.tables.sheet import is_sheet, read_sheet
from onepair.errors import OnepairError
from onepair.labels import NEGATIVE, POSITIVE, Indices
from onepair.remote import as_path, is_remote
from onepair.review.completion import own_dataset
from onepair.review.session import ReviewSession
from onepair.runs.finished import FinishedRun

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
