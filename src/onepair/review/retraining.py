"""Training again with the answers, beside the review: three commands of onepair, which go on where they were."""

import os
import re
import shlex
import subprocess
import sys
import threading
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import BaseModel, ValidationError

from onepair.data.class_names import spelling_groups
from onepair.errors import BusyError, OnepairError, ReviewError
from onepair.files import locked, write_atomically, writing
from onepair.remote import is_remote
from onepair.review.answers import Store
from onepair.runs.config import DataConfig
from onepair.runs.finished import FinishedRun
from onepair.runs.folder import RunFolder

State = Literal["running", "elsewhere", "stopped", "done"]  # elsewhere: in another process

# What a table of completed labels says itself, and what the first table needed to be read.
_OF_THE_FIRST_TABLE = ("format", "unlisted", "zeros", "images", "label_columns", "complete_splits", "observe")
_PATIENCE = 20.0  # seconds for a command to save what it has, and end


class Command(NamedTuple):
    """A command of onepair, what it does, and the file that is there once it has done it."""

    what: str
    words: list[str]
    makes: Path

    @property
    def text(self) -> str:
        """As it is typed."""
        return shlex.join(["onepair", *self.words])


class Record(BaseModel):
    """Which training was begun last, in a file, so that restarts and other processes go on with the same."""

    run: str  # the new run, a folder beside the old one
    newest: int  # the last answer that it learns from


class Progress(NamedTuple):
    """How far a training is."""

    state: State
    run: Path
    commands: list[Command]
    step: int  # the command at hand
    done: int  # epochs, of all models together
    total: int
    sentence: str  # what was said last: of a command that failed, why
    newest: int

    @property
    def share(self) -> float:
        return self.done / self.total if self.total else 0.0


class Retraining:
    """One training at a time on the answers to a run: commands whose results are not there yet, one after the other.

    Whoever holds the lock runs them; every command goes on where it was stopped.
    """

    def __init__(self, run: FinishedRun, store: Store) -> None:
        self._run, self._store, folder = run, store, run.path / "finding"
        self._record, self._log, self._lock = (folder / f"retraining.{each}" for each in ("json", "log", "lock"))
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = False
        self._failure = ""  # why it could not go on, where that is not in the log

    def plan(self) -> list[Command]:
        """Return the commands that training again would run now."""
        return planned_commands(self._run, _sibling(self._run.path))

    def start(self) -> None:
        """Begin with the answers of this moment, unless a training is under way."""
        self._begin(self._next())

    def remaining(self) -> list[Command]:
        """Return what is left to do of the last training, or all of a new one with the answers of this moment.

        Raises:
            BusyError: another process is at it.
        """
        at = self.progress()
        if at is None or at.state == "done":
            write_atomically(self._record, f"{self._next().model_dump_json(indent=2)}\n".encode())
            at = self.progress()
        assert at is not None  # noqa: S101 (there is a record now)
        if at.state == "elsewhere":
            raise BusyError(f"{self._run.path}: is being trained again in another process")
        return at.commands[at.step :]

    def _next(self) -> Record:
        """A new training, with the answers of this moment."""
        entries = self._store.entries()
        if not any(entry.answer in ("yes", "no") for entry in entries):
            raise ReviewError("nobody has answered yes or no yet, so there is nothing new to learn")
        return Record(run=_sibling(self._run.path).name, newest=entries[-1].id)

    def resume(self) -> None:
        """Go on with a training that was stopped, failed, or lost its server."""
        self._store.entries()  # or a sentence that the run is gone
        record = self._read()
        if record is not None:
            self._begin(record)

    def stop(self) -> None:
        """End the command at hand, which saves what it has; nothing happens if none is under way here."""
        with self._guard:
            self._stopping = True
            thread, process = self._thread, self._process
            if process is not None and process.poll() is None:
                process.terminate()
        if thread is not None:
            thread.join(_PATIENCE)
            if thread.is_alive() and process is not None:
                process.kill()
                thread.join()

    def progress(self) -> Progress | None:
        """Return how far the last training is; None if there was none."""
        record = self._read()
        if record is None:
            return None
        new = self._new_run(record)
        commands = planned_commands(self._run, new)
        step = next((step for step, each in enumerate(commands) if not each.makes.exists()), len(commands))
        state: State = "stopped"
        if self._is_running:
            state = "running"
        elif step == len(commands):
            state = "done"
        elif self._is_locked():
            state = "elsewhere"
        sentence = self._failure or _last_line(self._log)
        epochs = _epochs(new, folds_of(self._run))
        return Progress(state, new, commands, min(step, len(commands) - 1), *epochs, sentence, record.newest)

    def _new_run(self, record: Record) -> Path:
        return _named_folder(self._run.path).with_name(record.run)

    @property
    def _is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _is_locked(self) -> bool:
        try:
            with locked(self._lock):
                return False
        except BusyError:
            return True

    def _begin(self, record: Record) -> None:
        """Start a thread that does the work, unless this server or another one is at it."""
        with self._guard:
            if self._is_running or self._is_locked():
                return
            self._stopping, self._failure = False, ""
            write_atomically(self._record, f"{record.model_dump_json(indent=2)}\n".encode())
            # Not a daemon: a server that ends stops it first, and waits.
            self._thread = threading.Thread(target=self._work, args=[record], name="training again")
            self._thread.start()

    def _work(self, record: Record) -> None:
        try:
            with writing(self._log), locked(self._lock, wait=1), self._log.open("wb") as log:
                for command in planned_commands(self._run, self._new_run(record)):
                    if not command.makes.exists() and self._execute(command.words, log.fileno()):
                        return
        except OnepairError as error:  # for example because the run was put aside
            self._failure = str(error)

    def _execute(self, words: list[str], log: int) -> int:
        """Run a command to its end; in a session of its own, so that Ctrl-C is the server's alone to pass on."""
        with self._guard:
            if self._stopping:
                return 1
            self._process = subprocess.Popen(  # noqa: S603 (our own command, and no shell)
                [sys.executable, "-m", "onepair", *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
            )
        return self._process.wait()

    def _read(self) -> Record | None:
        """Read the record, if it is about a folder beside the run: one that was copied may name any other."""
        try:
            record = Record.model_validate_json(self._record.read_bytes())
        except (OSError, ValidationError):
            return None
        own = _stem(_named_folder(self._run.path).name)
        record.run = Path(record.run).name
        return record if _stem(record.run) == own and record.run != own else None


def planned_commands(run: FinishedRun, new: Path) -> list[Command]:
    """Write the labels, train as the run was trained, and find what is still missing."""
    folder, labels, data, default = _word(run.path), _word(_labels_file(new)), run.config.data, DataConfig()
    changed = [name for name in _OF_THE_FIRST_TABLE if getattr(data, name) != getattr(default, name)]
    settings = [word for name in changed for word in ("--set", f"data.{name}={_written(getattr(default, name))}")]
    if spelling_groups(run.table.classes):  # which the completed labels would merge
        settings += ["--set", "data.spellings=keep"]
    if is_remote(run.table.root):  # or the URLs of the completed labels would not be followed
        settings += ["--set", f"data.images={run.table.root}"]
    maps = [] if (run.path / "finding" / "maps.npy").exists() else ["--no-maps"]
    config = ["--config", _word(run.path / "config.toml")]
    return [
        Command("Writing the labels", ["labels", folder, "--out", labels, "--as", "csv"], _labels_file(new)),
        Command("Training", ["train", labels, *config, *settings, "--out", _word(new)], new / "results.json"),
        Command(
            "Looking for what is still missing",
            ["find", _word(new), "--folds", str(folds_of(run)), *maps],
            new / "finding" / "summary.json",
        ),
    ]


def folds_of(run: FinishedRun) -> int:
    """Return how many models looked for the run's missing labels."""
    parts = [folder.name.rpartition("-")[2] for folder in (run.path / "finding" / "folds").glob("*-of-*")]
    return max((int(part) for part in parts if part.isdecimal()), default=5)


def _sibling(path: Path) -> Path:
    """The first free name for another run beside one, as photos-2 beside photos, with a free name for its labels."""
    path = _named_folder(path)
    others = (path.with_name(f"{_stem(path.name)}-{number}") for number in count(2))
    return next(each for each in others if not each.exists() and not _labels_file(each).exists())


def _stem(name: str) -> str:
    """A run's name without its number; a longer number is more likely a year."""
    return re.sub(r"-\d{1,2}$", "", name)


def _named_folder(path: Path) -> Path:
    return path if path.name not in ("", "..") else path.resolve()


def _labels_file(run: Path) -> Path:
    return run.with_name(f"{run.name}-labels.csv")


def _word(path: Path) -> str:
    """A path as a word of a command, which would take one that begins with a dash for an option."""
    return f"./{path}" if str(path).startswith("-") else str(path)


def _written(value: object) -> str:
    return "none" if value is None else "" if value == () else str(value)


def _epochs(run: Path, folds: int) -> tuple[int, int]:
    """How many epochs are done, and how many there are, of the run and of the models that look for missing labels."""
    try:
        config = RunFolder(run).config()
    except (OnepairError, OSError):
        return 0, 0
    if config.solves:  # which takes seconds
        return 0, 0
    done = 0
    for file in (run / "metrics.jsonl", *run.glob("finding/folds/*/metrics.jsonl")):
        with suppress(OSError):
            done += file.read_bytes().count(b"\n")
    return done, sum(stage.epochs for stage in config.stages.values()) * (1 + folds)


def _last_line(log: Path) -> str:
    """What a command said last: of one that failed, the sentence that says why."""
    with suppress(OSError):
        for line in reversed(log.read_text("utf-8", "replace").splitlines()):
            if line.strip():
                return line.strip().removeprefix("onepair: ")
    return ""
