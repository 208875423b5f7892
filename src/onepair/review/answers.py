"""What people answered, in a SQLite file, and whether they agree."""

import getpass
import shutil
import sqlite3
import tempfile
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple

from onepair.data.label_table import RESERVED
from onepair.data.quality import near_names, same_names
from onepair.errors import ReviewError
from onepair.files import identity

Reply = Literal["yes", "no", "skip"]  # to "does this image show that?"; skip: looked at, not sure

# Nothing is ever changed or deleted: what counts is a cell's last entry, and its id is the cell's version.
_SCHEMA = """
CREATE TABLE IF NOT EXISTS decisions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    action INTEGER NOT NULL, -- what was decided together is undone together
    file TEXT NOT NULL,
    label TEXT NOT NULL,
    answer TEXT CHECK (answer IN ('yes', 'no', 'skip')), -- null: taken back
    who TEXT NOT NULL,
    at TEXT NOT NULL,
    undoes INTEGER UNIQUE REFERENCES decisions (id)
);
CREATE TABLE IF NOT EXISTS classes ( -- that the dataset does not have
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    who TEXT NOT NULL,
    at TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS by_cell ON decisions (file, label, id);
CREATE INDEX IF NOT EXISTS by_action ON decisions (action);
-- The plus signs keep SQLite from looking through all that is not undone; files of earlier versions have other views.
CREATE VIEW IF NOT EXISTS stands AS
    SELECT * FROM decisions AS entry
    WHERE +undoes IS NULL AND NOT EXISTS (SELECT 1 FROM decisions WHERE undoes = entry.id);
CREATE VIEW IF NOT EXISTS stands_last AS
    SELECT * FROM stands AS entry WHERE NOT EXISTS (
        SELECT 1 FROM stands WHERE file = entry.file AND label = entry.label AND id > entry.id
    );
CREATE TRIGGER IF NOT EXISTS never_changed BEFORE UPDATE ON decisions
    BEGIN SELECT RAISE(ABORT, 'decisions are never changed'); END;
CREATE TRIGGER IF NOT EXISTS never_deleted BEFORE DELETE ON decisions
    BEGIN SELECT RAISE(ABORT, 'decisions are never deleted'); END;
"""
_MIGRATIONS: tuple[str, ...] = ()  # SQL, each from one format to the next, beginning with 1
FORMAT = 1 + len(_MIGRATIONS)


class Entry(NamedTuple):
    """A line of the history."""

    id: int
    action: int
    file: str
    label: str
    answer: Reply | None  # None: taken back
    who: str
    at: str  # ISO 8601, UTC
    undoes: int | None = None

    @property
    def time(self) -> datetime:
        return datetime.fromisoformat(self.at)


class Answer(NamedTuple):
    """A reply about one label of one image, by somebody who saw the cell at a version (0: nobody had answered)."""

    file: str
    label: str
    reply: Reply | None
    seen: int


def login_name() -> str:
    """Who answers, where nobody says otherwise."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # in a container, a user may have no name
        return "reviewer"


class Store:
    """The history of answers in a file; safe to use from several threads and processes at once.

    Args:
        path: of the SQLite file, which is made if there is none.
        read_only: read what is there into memory, for a folder that cannot be written to.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._identity: tuple[int, int] | None = None
        with self._sentences():
            if read_only:
                self._db = _read_into_memory(path)
            else:
                self._db = sqlite3.connect(path, timeout=10, isolation_level=None, check_same_thread=False)
                self._db.execute("PRAGMA journal_mode = WAL")
                self._db.execute("PRAGMA synchronous = FULL")  # an answer is on the disk before it is acknowledged
            weakref.finalize(self, self._db.close)
            self._migrate()
            self._db.executescript(_SCHEMA)
        if not read_only:
            with self._transaction():  # fail now, not at the first answer, where the file or the folder is read-only
                self._db.execute(f"PRAGMA user_version = {FORMAT}")
            self._identity = identity(path)

    def _migrate(self) -> None:
        """Bring a file of an earlier format to the newest one."""
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version > FORMAT:
            raise ReviewError(f"{self.path}: has format {version}, and this version of onepair reads 1 to {FORMAT}")
        for script in _MIGRATIONS[max(version, 1) - 1 :] if version else ():
            self._db.executescript(script)

    @property
    def is_empty(self) -> bool:
        """Whether nobody has ever answered anything."""
        with self._reading():
            return self._next_id() == 1

    def entries(self, *, after: int = 0) -> list[Entry]:
        """Return the history, oldest first; `after` leaves out what is already known."""
        with self._reading():
            return self._select("SELECT * FROM decisions WHERE id > ? ORDER BY id", after)

    def record(self, answers: Sequence[Answer], *, who: str) -> list[Entry]:
        """Store the answers about cells that are as they were seen, as one action.

        Returns:
            The entries that others made in the meantime: those cells keep what they have. Where both say the same,
            there is nothing to store and nothing to return.
        """
        refused = []
        with self._transaction():
            action = self._next_id()
            for file, label, reply, seen in answers:
                last = self._last_of_cell("decisions", file, label)
                if not last or last[0].id == seen:
                    self._add(action, file, label, reply, who)
                elif last[0].answer != reply:
                    refused += last
        return refused

    def undo(self, *, who: str) -> list[Entry]:
        """Take back somebody's last action that still stands, and return its entries; empty if there is none.

        Cells that another person has answered since are left alone.
        """
        with self._transaction():
            entries, action = self._last_action(who), self._next_id()
            for entry in entries:
                before = self._last_of_cell("stands", entry.file, entry.label, before=entry.id)
                self._add(action, entry.file, entry.label, before[0].answer if before else None, who, undoes=entry.id)
        return entries

    def _last_of_cell(
        self, view: Literal["decisions", "stands"], file: str, label: str, *, before: int = 2**62
    ) -> list[Entry]:
        """The last entry of a cell, if any, under whatever name its class had."""
        names = self._names_of(label)
        query = f"SELECT * FROM {view} WHERE file = ? AND label IN ({','.join('?' * len(names))}) AND id < ?"  # noqa: S608 (only marks)
        return self._select(f"{query} ORDER BY id DESC LIMIT 1", file, *names, before)

    def _names_of(self, label: str) -> list[str]:
        """All names that a class had."""
        return [label]

    def last_action(self, *, who: str) -> list[Entry]:
        """Return the entries that `undo` would take back."""
        with self._reading():
            return self._last_action(who)

    def add_class(self, name: str, *, who: str) -> None:
        """Store a class that the dataset does not have; nothing changes if somebody has added it already."""
        with self._transaction():
            self._db.execute("INSERT OR IGNORE INTO classes (name, who, at) VALUES (?, ?, ?)", (name, who, _now()))

    def classes(self) -> list[str]:
        """Return the classes that people have added, in the order in which they did."""
        with self._reading():
            return [name for (name,) in self._db.execute("SELECT name FROM classes ORDER BY id")]

    def _last_action(self, who: str) -> list[Entry]:
        last = self._select("SELECT * FROM stands_last WHERE who = ? ORDER BY id DESC LIMIT 1", who)
        return self._select("SELECT * FROM stands_last WHERE action = ? ORDER BY id", last[0].action) if last else []

    def _next_id(self) -> int:
        return int(self._db.execute("SELECT COALESCE(MAX(id), 0) + 1 FROM decisions").fetchone()[0])

    def _add(
        self,
        action: int,
        file: str,
        label: str,
        reply: Reply | None,
        who: str,
        *,
        undoes: int | None = None,
        at: str = "",
    ) -> None:
        self._db.execute(
            "INSERT INTO decisions (action, file, label, answer, who, at, undoes) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (action, file, label, reply, who, at or _now(), undoes),
        )

    def _select(self, query: str, *values: object) -> list[Entry]:
        return [Entry(*row) for row in self._db.execute(query, values)]

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with self._lock, self._sentences():
            self._check_identity()
            yield

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._lock, self._sentences():
            self._check_identity()
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._check_identity()
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # a full disk has ended it already
                    self._db.execute("ROLLBACK")
                raise

    def _check_identity(self) -> None:
        """Refuse to go on with a file that is no longer the one at its path: what it takes would be lost."""
        if self._identity is not None and identity(self.path) != self._identity:
            raise ReviewError(
                f"{self.path}: was moved, deleted or replaced, so no answer is stored any more; "
                "bring it back, or start this command again"
            )

    @contextmanager
    def _sentences(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            self._check_identity()  # which may be the reason
            raise ReviewError(f"{self.path}: cannot keep answers ({error})") from error


def _read_into_memory(path: Path) -> sqlite3.Connection:
    memory = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    with tempfile.TemporaryDirectory() as folder:
        try:
            _backup(path, memory)
        except sqlite3.OperationalError:  # beside a file in WAL mode SQLite wants to write
            for part in (path, path.with_name(f"{path.name}-wal")):
                if part.exists():
                    shutil.copy(part, folder)
            _backup(Path(folder) / path.name, memory)
    return memory


def _backup(path: Path, target: sqlite3.Connection) -> None:
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as source:
        source.backup(target)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


Place = tuple[str, str]  # file and label


class Agreement(NamedTuple):
    """Of labels that two people or more have answered with yes or no, each by what they said first."""

    both: int
    same: int
    open: list[Place]  # answered differently, and not settled by an answer since


class Opinions:
    """Everybody's answers to every question, from the history, entry by entry."""

    def __init__(self) -> None:
        self._first: dict[Place, dict[str, Reply]] = {}
        self._last: dict[Place, dict[str, Reply]] = {}
        self._open: dict[Place, bool] = {}  # in the order in which the disagreements came up

    def note(self, entry: Entry) -> None:
        place = entry.file, entry.label
        said, now = self._first.setdefault(place, {}), self._last.setdefault(place, {})
        if entry.undoes is not None or entry.answer not in ("yes", "no"):
            if entry.undoes is not None:
                said.pop(entry.who, None)
                now.pop(entry.who, None)
            self._open[place] = self._open.get(place, False) and len(set(said.values())) > 1
            return
        differs = any(answer != entry.answer for who, answer in now.items() if who != entry.who)
        # A second answer to a disagreement is by somebody who knows of it, and settles it.
        self._open[place] = differs and not self._open.get(place, False) and entry.who not in said
        said.setdefault(entry.who, entry.answer)
        now[entry.who] = entry.answer

    def by(self, who: str) -> set[Place]:
        """What somebody has answered."""
        return {place for place, said in self._first.items() if who in said}

    def agreement(self) -> Agreement:
        several = [set(said.values()) for said in self._first.values() if len(said) > 1]
        same = sum(len(answers) == 1 for answers in several)
        return Agreement(len(several), same, [place for place, is_open in self._open.items() if is_open])


LONGEST_NAME = 60


def tidy(name: str) -> str:
    """A name as it is stored: printable, on one line, not endless.

    >>> tidy("  traffic\\tlight ")
    'traffic light'
    """
    return " ".join("".join(letter if letter.isprintable() else " " for letter in name).split())[:LONGEST_NAME].strip()


class NewClass(NamedTuple):
    """A class that somebody wants to add, and what speaks against it."""

    name: str
    taken: str | None = None  # the class that has the name already, perhaps in another spelling
    near: tuple[str, ...] = ()  # classes with nearly the same name; only a person knows whether they are the same
    impossible: Literal["", "blank", "reserved"] = ""  # why no class can have the name: it is that of a column


def new_class(name: str, classes: Sequence[str]) -> NewClass:
    """What is to be said about a name for a class beside others.

    >>> new_class(" Traffic  Light", ["traffic light"]).taken, new_class("dog", ["dogs", "cat"]).near
    ('traffic light', ('dogs',))
    """
    name = tidy(name)
    if not name:
        return NewClass(name, impossible="blank")
    if name.lower() in RESERVED:
        return NewClass(name, impossible="reserved")
    taken = next((other for other in classes if same_names([other, name]) or other == name), None)
    near = () if taken else tuple(other for other in classes if near_names([other, name]))
    return NewClass(name, taken, near)
