"""Answers that belong to images, by what their files hold, not to the rows of a run; and files of answers."""

import csv
import hashlib
import io
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np

from onepair.data.images.blocks import images_of
from onepair.data.images.image_files import SIZE, digests_of
from onepair.data.label_table import LabelTable, raise_problem
from onepair.data.tables.cell_values import guard, unguard
from onepair.data.tables.sheet import read_sheet
from onepair.errors import OnepairError, ReviewError
from onepair.files import cache_folder, write_atomically
from onepair.remote import is_remote
from onepair.review.answers import Answer, Entry, Reply, Store
from onepair.review.queue import answers_file
from onepair.runs.finished import FinishedRun
from onepair.runs.project import project_of
from onepair.words import listed

# An image is known by the first digest it was seen with: aliases lead from later ones, of an edited file, to it.
_SCHEMA = """
CREATE TABLE IF NOT EXISTS aliases (digest TEXT PRIMARY KEY, image TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS names (image TEXT PRIMARY KEY, file TEXT NOT NULL); -- as it was called last
CREATE TABLE IF NOT EXISTS renamed (label TEXT PRIMARY KEY, now TEXT NOT NULL); -- classes
"""
_COLUMNS = ("file", "label", "answer", "who", "when", "image")
_WORDS: dict[str, Reply] = {"yes": "yes", "no": "no", "not sure": "skip", "skip": "skip"}
_IMAGE_COLUMNS = ("file", "digest")


def image_digests(table: LabelTable) -> dict[str, str]:
    """Return what each image is known by: what its file holds, else its text, else its name.

    Names alone tell vectors, files that cannot be read, and images at URLs.
    """
    by_name = {file: _digest("name", file) for file in table.files}
    if table.texts is not None and table.ids:
        return {file: _digest("text", text) for file, text in zip(table.files, table.texts, strict=True)}
    if table.ids or (table.pixels is None and is_remote(table.root)):
        return by_name
    found = digests_of(images_of(table, np.arange(len(table))), memory=cache_folder() / "contents.sqlite")
    return {
        file: digest.hex() if isinstance(digest, bytes) else by_name[file]
        for file, digest in zip(table.files, found, strict=True)
    }


def _digest(kind: str, text: str) -> str:
    return hashlib.blake2b(f"{kind}\0{text}".encode("utf-8", "surrogatepass"), digest_size=SIZE).hexdigest()


class ImportedAnswer(NamedTuple):
    """A reply of another file: about an image by its digest, or only by its name."""

    file: str
    label: str
    reply: Reply
    who: str
    at: str  # ISO 8601, UTC; "" if nobody knows
    digest: str = ""


class Conflict(NamedTuple):
    """An answer that differs from one that was there."""

    file: str
    label: str
    here: Entry
    imported: ImportedAnswer
    counts: bool  # whether the imported one does

    def __str__(self) -> str:
        here, imported = (_word(each) for each in (self.here.answer, self.imported.reply))
        which = "the imported one is later and counts" if self.counts else "the one here counts"
        said = f"{here} by {self.here.who} here, {imported} by {self.imported.who} imported"
        return f"{self.file}, {self.label}: {said}; {which}"


@dataclass(frozen=True)
class Merged:
    """What became of imported answers."""

    added: int
    known: int  # the same answer was there
    unplaced: Sequence[ImportedAnswer]  # by a name that no image here has, and no digest
    conflicts: Sequence[Conflict]


class ImageAnswers(Store):
    """Answers by image and class, seen with the names that images and classes have in one run.

    Entries about images that the run does not have are kept, and left out of what is returned. Two files that hold the
    same are one image.

    Args:
        path: of the SQLite file, which is made if there is none.
        digests: of each image of the run, by its name.
        classes: of the run.
        read_only: as for `Store`.
    """

    def __init__(
        self, path: Path, digests: Mapping[str, str], classes: Iterable[str] = (), *, read_only: bool = False
    ) -> None:
        super().__init__(path, read_only=read_only)
        with self._lock, self._sentences():
            self._db.executescript(_SCHEMA)
            self._aliases: dict[str, str] = dict(self._db.execute("SELECT digest, image FROM aliases"))
            self._now: dict[str, str] = dict(self._db.execute("SELECT label, now FROM renamed"))
        self._classes = set(classes)
        self.image_of = {file: self.image(digest) for file, digest in digests.items()}
        self._files: dict[str, list[str]] = defaultdict(list)
        for file, image in self.image_of.items():
            self._files[image].append(file)

    def image(self, digest: str) -> str:
        """Return the image that a digest belongs to, which may have been edited since it was first seen."""
        return self._aliases.get(digest, digest)

    # Answers, by the names of the run

    def entries(self, *, after: int = 0) -> list[Entry]:
        return self._named(super().entries(after=after))

    def record(self, answers: Sequence[Answer], *, who: str) -> list[Entry]:
        return self._named(super().record([each._replace(file=self.image_of[each.file]) for each in answers], who=who))

    def undo(self, *, who: str) -> list[Entry]:
        return self._named(super().undo(who=who))

    def last_action(self, *, who: str) -> list[Entry]:
        return self._named(super().last_action(who=who))

    def _named(self, entries: Iterable[Entry]) -> list[Entry]:
        return [
            entry._replace(file=file, label=self.called(entry.label))
            for entry in entries
            for file in self._files.get(entry.file, ())
        ]

    def called(self, label: str) -> str:
        """Return a class by its name in the run."""
        seen = set()
        while label not in self._classes and label in self._now and label not in seen:
            seen.add(label)
            label = self._now[label]
        return label

    def _names_of(self, label: str) -> list[str]:
        now = self.called(label)
        return list(dict.fromkeys([label, now, *(name for name in self._now if self.called(name) == now)]))

    def with_classes_called(self, renamed: Mapping[str, str]) -> "ImageAnswers":
        """Use new names of classes, and store them nowhere."""
        self._now.update(renamed)
        return self

    def answered(self) -> set[tuple[str, str]]:
        """Return the images and classes that anybody answered, also those that the run does not have."""
        return {(entry.file, entry.label) for entry in super().entries() if entry.answer is not None}

    # What images and classes are called

    def recognise(self, aliases: Mapping[str, str], renamed: Mapping[str, str], names: Mapping[str, str]) -> None:
        """Store which digests are of an image known by another, new names of classes, and the names of images."""
        with self._transaction():
            self._db.executemany("INSERT OR IGNORE INTO aliases VALUES (?, ?)", aliases.items())
            self._db.executemany("INSERT OR REPLACE INTO renamed VALUES (?, ?)", renamed.items())
            self._db.executemany("INSERT OR REPLACE INTO names VALUES (?, ?)", ((i, f) for f, i in names.items()))

    def follow(self, old: bytes, new: bytes) -> None:
        """Store that a file which held one thing will hold another, and is of the same image."""
        before, after = (hashlib.blake2b(each, digest_size=SIZE).hexdigest() for each in (old, new))
        self.recognise({after: self.image(before)}, {}, {})

    # Files of answers

    def standing(self) -> list[ImportedAnswer]:
        """Return every answer that counts, those about images that are gone included, by the last names."""
        with self._reading():
            names = dict(self._db.execute("SELECT image, file FROM names"))
            last = {
                (each.file, self.called(each.label)): each
                for each in self._select("SELECT * FROM decisions ORDER BY id")
            }
        return [
            ImportedAnswer(
                self._files.get(image, [names.get(image, "")])[0], label, each.answer, each.who, each.at, image
            )
            for (image, label), each in last.items()
            if each.answer is not None
        ]

    def has(self, answer: ImportedAnswer) -> bool:
        """Return whether an answer is about an image of the run."""
        return answer.file in self.image_of or self.image(answer.digest) in self._files

    def merge(self, answers: Sequence[ImportedAnswer]) -> Merged:
        """Take in answers from elsewhere, as one action; of two that differ the later one counts.

        One without a time takes the place of no other. All are taken in or none, and a second time nothing changes.
        """
        added = known = 0
        unplaced, conflicts = [], []
        with self._transaction():
            action = self._next_id()
            cells = {
                (each.file, self.called(each.label)): each
                for each in self._select("SELECT * FROM decisions ORDER BY id")
            }
            for each in answers:
                image, label = self.image(each.digest), self.called(each.label)
                if image not in self._files:
                    image = self.image_of.get(each.file, image)
                if not image:
                    unplaced.append(each)
                    continue
                last = cells.get((image, label))
                if last is not None and last.answer == each.reply:
                    known += 1
                    continue
                later = last is None or (each.at != "" and _time(each.at) > last.time)
                if last is not None and last.answer is not None:
                    conflicts.append(Conflict(each.file, label, last, each, later))
                if later:
                    self._add(action, image, label, each.reply, each.who, at=each.at)
                    cells[image, label] = self._select("SELECT * FROM decisions ORDER BY id DESC LIMIT 1")[0]
                    added += 1
            files = {each.digest: each.file for each in answers if each.digest}
            self._db.executemany("INSERT OR IGNORE INTO names VALUES (?, ?)", files.items())
        return Merged(added, known, unplaced, conflicts)


def _time(at: str) -> datetime:
    time = datetime.fromisoformat(at)
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _word(reply: Reply | None) -> str:
    return "not sure" if reply == "skip" else str(reply)


# Runs


def images_file(run: Path) -> Path:
    """Where a project keeps what the images of a run are known by."""
    return run.with_name(f"{run.name}-images.csv")


def write_images(run: Path, digests: Mapping[str, str]) -> None:
    """Store what the images of a run are known by."""
    write_atomically(images_file(run), _as_csv([_IMAGE_COLUMNS, *digests.items()]))


def read_images(run: Path) -> dict[str, str] | None:
    """Read what `write_images` wrote, if anything."""
    source = images_file(run)
    if not source.exists():
        return None
    header, *rows = read_csv(source)
    if header != list(_IMAGE_COLUMNS) or any(len(row) != 2 for row in rows):
        raise ReviewError(f"{source}: is damaged; delete it, and images are known by what their files hold now")
    return {unguard(file): digest for file, digest in rows}


def open_answers(run: FinishedRun, *, read_only: bool = False) -> Store:
    """Open the answers to a run: those of its project, or of the run alone."""
    project = project_of(run.path)
    if project is None:
        return Store(answers_file(run), read_only=read_only)
    digests = read_images(run.path) or image_digests(run.table)
    return ImageAnswers(project.answers, digests, run.table.classes, read_only=read_only)


def has_answers(run: FinishedRun) -> bool:
    """Return whether there is a file of answers to a run."""
    project = project_of(run.path)
    return (project.answers if project else answers_file(run)).exists()


def export_answers(store: ImageAnswers, path: Path) -> int:
    """Write every answer that counts as a CSV file, and return how many there are."""
    rows = [
        (each.file, each.label, _word(each.reply), each.who, each.at, each.digest)
        for each in sorted(store.standing(), key=lambda each: (each.file, each.label))
    ]
    write_atomically(path, _as_csv([_COLUMNS, *rows]))
    return len(rows)


def read_answer_file(path: Path, *, who: str) -> list[ImportedAnswer]:
    """Read a table of answers, CSV of any kind or .xlsx: file, label, answer, and if known who, when and image.

    Args:
        path: the file.
        who: whose answers they are where it does not say.

    Raises:
        OnepairError: the file is none of answers; the sentence names the line.
    """
    sheet = read_sheet(path, lambda problem: None if problem.kind == "encoding" else raise_problem(problem))
    column = {name.strip().lower(): place for place, name in enumerate(sheet.header)}
    if missing := [name for name in _COLUMNS[:3] if name not in column]:
        raise ReviewError(f"{path}: has no column {missing[0]}; answers have {', '.join(_COLUMNS[:3])}")
    found = []
    for row, where in enumerate(sheet.places):
        cells = {name: sheet.columns[place].texts[row].strip() for name, place in column.items()}
        if not any(cells.values()):
            continue
        reply = _WORDS.get(cells["answer"].lower())
        if reply is None:
            raise ReviewError(f"{where}: the answer {cells['answer']!r} is not yes, no or not sure")
        if not (cells["label"] and (cells["file"] or cells.get("image"))):
            raise ReviewError(f"{where}: names no {'file' if cells['label'] else 'label'}")
        when = cells.get("when", "")
        try:
            at = _time(when).astimezone(UTC).isoformat(timespec="milliseconds") if when else ""
        except (ValueError, OverflowError):
            raise ReviewError(f"{where}: {when!r} is no time; write it as 2024-05-31T14:30, or leave it out") from None
        said_by = cells.get("who") or who
        found.append(ImportedAnswer(cells["file"], cells["label"], reply, said_by, at, cells.get("image", "")))
    return found


def import_answers(store: ImageAnswers, path: Path, *, who: str) -> Merged:
    """Take in the answers of a CSV file.

    Raises:
        ReviewError: it is none of answers, or of another collection; then nothing is taken in.
    """
    answers = read_answer_file(path, who=who)
    here = [each for each in answers if store.has(each)]
    if answers and not here:
        names = listed(list(dict.fromkeys(each.file for each in answers)))
        raise ReviewError(f"{path}: not one of its images is in this project ({names}); nothing was taken in")
    return store.merge(answers)


def read_csv(path: Path) -> list[list[str]]:
    """Read all rows of a CSV file of ours; there is a first."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as text:
            rows = list(csv.reader(text))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ReviewError(f"{path}: is not a CSV file in UTF-8 ({error})") from None
    except OSError as error:
        raise ReviewError(f"{path}: cannot be read ({error.strerror})") from None
    return rows or [[]]


def _as_csv(rows: Iterable[Sequence[str]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerows(map(guard, row) for row in rows)
    return text.getvalue().encode("utf-8", "surrogateescape")


def answers_of_run(run: FinishedRun) -> list[ImportedAnswer]:
    """Return what people answered to a run of no project, in its review and its audit, by the digests of its images."""
    stores = [file for file in (answers_file(run), run.path / "audit" / "answers.sqlite") if file.exists()]
    try:
        digests = image_digests(run.table) if stores else {}
    except OnepairError:  # a dataset that has changed since: names have to do
        digests = {}
    return [
        ImportedAnswer(file, label, entry.answer, entry.who, entry.at, digests.get(file, ""))
        for source in stores
        for (file, label), entry in {
            (each.file, each.label): each for each in Store(source, read_only=True).entries()
        }.items()
        if entry.answer is not None
    ]
