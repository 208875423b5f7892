"""What people decided: every decision ever made, in a SQLite file that survives whatever happens to the program."""

import sqlite3
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple

from onepair.errors import UserError

Answer = Literal["yes", "no", "skip"]  # to "does this image show that?"; skip: looked at, not sure

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


class StoreError(UserError, RuntimeError):
    """The file of decisions cannot be used."""


class Entry(NamedTuple):
    """A line of the history."""

    id: int
    action: int
    file: str
    label: str
    answer: Answer | None  # None: taken back
    who: str
    at: str  # ISO 8601, UTC
    undoes: int | None = None

    @property
    def time(self) -> datetime:
        return datetime.fromisoformat(self.at)


class Decision(NamedTuple):
    """An answer about one label of one image, by somebody who saw the cell at a version (0: nobody had answered)."""

    file: str
    label: str
    answer: Answer | None
    seen: int


class Store:
    """The history of decisions; safe to use from several threads and processes at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        with self._sentences():
            self._db = sqlite3.connect(path, timeout=10, isolation_level=None, check_same_thread=False)
            weakref.finalize(self, self._db.close)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")  # a decision is on the disk before it is answered for
            self._db.executescript(_SCHEMA)
        with self._transaction():  # a file or a folder that is read-only is told now, not at the first answer
            self._db.execute("PRAGMA user_version = 1")

    @property
    def is_empty(self) -> bool:
        """Whether nobody has ever decided anything."""
        with self._lock, self._sentences():
            return self._next_id() == 1

    def entries(self, *, after: int = 0) -> list[Entry]:
        """The history, oldest first; `after` leaves out what is already known."""
        with self._lock, self._sentences():
            return self._select("SELECT * FROM decisions WHERE id > ? ORDER BY id", after)

    def record(self, decisions: Sequence[Decision], *, who: str) -> list[Entry]:
        """Store the decisions about cells that are as they were seen, as one action.

        Returns the entries that others made in the meantime: those cells keep what they have. Where both say the same,
        there is nothing to store and nothing to return.
        """
        refused = []
        with self._transaction():
            action = self._next_id()
            for decision in decisions:
                last = self._last(decision.file, decision.label)
                if last is None or last.id == decision.seen:
                    self._add(action, decision.file, decision.label, decision.answer, who)
                elif last.answer != decision.answer:
                    refused.append(last)
        return refused

    def undo(self, *, who: str) -> list[Entry]:
        """Take back somebody's last action that still stands, and return its entries; empty if there is none.

        Cells that another person has answered since are left alone.
        """
        with self._transaction():
            entries, action = self._last_action(who), self._next_id()
            for entry in entries:
                before = self._select(
                    "SELECT * FROM stands WHERE file = ? AND label = ? AND id < ? ORDER BY id DESC LIMIT 1",
                    *(entry.file, entry.label, entry.id),
                )
                answer = before[0].answer if before else None
                self._add(action, entry.file, entry.label, answer, who, undoes=entry.id)
        return entries

    def add_class(self, name: str, *, who: str) -> None:
        """Store a class that the dataset does not have; nothing changes if somebody has added it already."""
        with self._transaction():
            self._db.execute("INSERT OR IGNORE INTO classes (name, who, at) VALUES (?, ?, ?)", (name, who, _now()))

    def classes(self) -> list[str]:
        """The classes that people have added, in the order in which they did."""
        with self._lock, self._sentences():
            return [name for (name,) in self._db.execute("SELECT name FROM classes ORDER BY id")]

    def last_action(self, *, who: str) -> list[Entry]:
        """The entries that `undo` would take back."""
        with self._lock, self._sentences():
            return self._last_action(who)

    def _last_action(self, who: str) -> list[Entry]:
        last = self._select("SELECT * FROM stands_last WHERE who = ? ORDER BY id DESC LIMIT 1", who)
        return self._select("SELECT * FROM stands_last WHERE action = ? ORDER BY id", last[0].action) if last else []

    def _last(self, file: str, label: str) -> Entry | None:
        query = "SELECT * FROM decisions WHERE file = ? AND label = ? ORDER BY id DESC LIMIT 1"
        return next(iter(self._select(query, file, label)), None)

    def _next_id(self) -> int:
        return int(self._db.execute("SELECT COALESCE(MAX(id), 0) + 1 FROM decisions").fetchone()[0])

    def _add(
        self, action: int, file: str, label: str, answer: Answer | None, who: str, *, undoes: int | None = None
    ) -> None:
        self._db.execute(
            "INSERT INTO decisions (action, file, label, answer, who, at, undoes) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (action, file, label, answer, who, _now(), undoes),
        )

    def _select(self, query: str, *values: object) -> list[Entry]:
        return [Entry(*row) for row in self._db.execute(query, values)]

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._lock, self._sentences():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # a full disk has ended it already
                    self._db.execute("ROLLBACK")
                raise

    @contextmanager
    def _sentences(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StoreError(f"{self.path}: cannot keep decisions ({error})") from error


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
