"""File operations that can be counted, and that end the process or fail at the n-th of them.

What is watched is all that Python does below a folder: files made, written, made durable, renamed, removed, cut,
folders made, and statements by which SQLite changes a file. A write at which the process ends, or the disk fails, has
written half.
"""

import builtins
import io
import os
import signal
import sqlite3
from collections.abc import Callable
from errno import EIO, ENOSPC, EROFS
from pathlib import Path
from typing import Any

REFUSALS = {  # by error: the operations that fail, and SQLite's words for it
    ENOSPC: ({"open", "write", "fsync", "rename", "mkdir", "sqlite"}, "database or disk is full"),
    EROFS: (
        {"open", "write", "fsync", "rename", "mkdir", "remove", "truncate", "sqlite"},
        "attempt to write a readonly database",
    ),
    EIO: ({"open", "write", "fsync", "rename", "mkdir", "remove", "truncate", "sqlite"}, "disk I/O error"),
}

_READS = ("select", "pragma", "begin", "rollback")


class Faults:
    """The operations of this process below a folder, from now on.

    Args:
        folder: what is elsewhere does not count.
        at: the number, from 1 on, of the operation at which it happens; None to count alone.
        error: an errno that it and all that follow fail with; None to be killed.
    """

    def __init__(self, folder: Path, *, at: int | None = None, error: int | None = None) -> None:
        self.folder, self.at, self.error = f"{folder}{os.sep}", at, error
        self.count = 0
        _watch(self)

    def below(self, file: Any) -> bool:
        if isinstance(file, int):
            try:
                file = Path(f"/proc/self/fd/{file}").readlink()
            except OSError:
                return False
        return os.path.abspath(os.fsdecode(file)).startswith(self.folder)  # noqa: PTH100 (links are not followed)

    def step(self, kind: str, file: Any, half: Callable[[], object] = lambda: None) -> None:
        """An operation is about to be done: it may be the last one, or fail. `half` does half of it."""
        if not self.below(file):
            return
        self.count += 1
        if self.at is None or self.count < self.at:
            return
        if self.error is None:
            half()
            os.kill(os.getpid(), signal.SIGKILL)
        kinds, words = REFUSALS[self.error]
        if kind in kinds:
            if self.count == self.at:
                half()
            if kind == "sqlite":
                raise sqlite3.OperationalError(words)
            # A file that is open has no name for the system.
            named = () if kind in ("write", "fsync") else (os.fspath(file),)
            raise OSError(self.error, os.strerror(self.error), *named)


def _watch(faults: Faults) -> None:
    class Raw(io.FileIO):
        def write(self, content: Any) -> int:
            content = bytes(content)
            faults.step("write", self.name, lambda: io.FileIO.write(self, content[: len(content) // 2]))
            return super().write(content)

    plain_open, plain_os_open, plain_connect = io.open, os.open, sqlite3.connect

    def watched_open(file, mode="r", buffering=-1, encoding=None, errors=None, newline=None, closefd=True, opener=None):
        if not set(mode) & set("wax+") or isinstance(file, int) or not faults.below(file):
            return plain_open(file, mode, buffering, encoding, errors, newline, closefd, opener)
        faults.step("open", file)
        raw = Raw(os.fspath(file), mode.replace("b", "").replace("t", ""), closefd, opener)
        if buffering == 0:
            return raw
        buffer = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
        return buffer if "b" in mode else io.TextIOWrapper(buffer, encoding, errors, newline)

    def watched_os_open(path, flags, *rest, **options):
        if flags & (os.O_CREAT | os.O_WRONLY | os.O_RDWR):
            faults.step("open", path)
        return plain_os_open(path, flags, *rest, **options)

    class Connection(sqlite3.Connection):
        file: Any = ""

        def execute(self, statement, *rest):
            if not statement.lstrip().lower().startswith(_READS):
                faults.step("sqlite", self.file)
            return super().execute(statement, *rest)

        def executemany(self, *arguments):
            faults.step("sqlite", self.file)
            return super().executemany(*arguments)

    def watched_connect(file, *rest, **options):
        connection = plain_connect(file, *rest, factory=Connection, **options)
        connection.file = file
        return connection

    builtins.open = io.open = watched_open
    os.open, sqlite3.connect = watched_os_open, watched_connect
    for kind, names in {
        "fsync": ("fsync", "fdatasync"),
        "rename": ("replace", "rename", "link"),
        "mkdir": ("mkdir",),
        "remove": ("unlink", "remove", "rmdir"),
        "truncate": ("truncate", "ftruncate"),
    }.items():
        for name in names:
            setattr(os, name, _stepping(faults, kind, getattr(os, name)))


def _stepping(faults: Faults, kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def watched(file: Any, *rest: Any, **options: Any) -> Any:
        faults.step(kind, file)
        return function(file, *rest, **options)

    return watched
