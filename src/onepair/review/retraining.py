"""Training again with the answers, beside the review: plain commands, one after the other, as processes."""

import json
import os
import re
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from onepair.errors import BusyError, ReviewError, UserError
from onepair.files import locked, write_atomically, writing
from onepair.remote import is_remote
from onepair.review.answers import Store
from onepair.runs.config import DataConfig
from onepair.runs.finished import FinishedRun
from onepair.runs.folder import RunFolder

State = Literal["running", "elsewhere", "interrupted", "stopped", "failed", "done"]

# What a table of completed labels says itself, and what the first table needed to be read.
_OF_THE_FIRST_TABLE = ("format", "unlisted", "zeros", "images", "label_columns", "complete_splits", "observe")
_ATTEMPTS = 20  # to hold the lock
_PATIENCE = 20.0  # seconds for a command to save what it has, and end


class Command(NamedTuple):
    """A command of onepair, and what it does, in a word."""

    what: str
    words: tuple[str, ...]

    @property
    def text(self) -> str:
        """As it is typed."""
        return shlex.join(["onepair", *self.words])


class Record(BaseModel):
    """What is known of a training, in a file, so that pages, restarts and other processes see the same."""

    model_config = ConfigDict(frozen=True)

    run: str  # the folder of the new run
    commands: list[tuple[str, list[str]]]
    folds: int  # models that look for what is still missing
    newest: int  # the last decision that it learns from
    begun: str  # ISO 8601, UTC
    step: Annotated[int, Field(ge=0)] = 0  # the command at hand
    state: Literal["running", "stopped", "failed", "done"] = "running"
    sentence: str = ""  # that the command ended with, if it failed

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if Path(self.run).name in ("", "..") or "\0" in self.run or self.step >= len(self.commands):
            raise ValueError("a record names a folder and a command")
        return self


class Progress(NamedTuple):
    """How far a training is."""

    state: State
    run: Path
    commands: list[Command]
    step: int
    done: int  # epochs, of all models together
    total: int
    words: str  # what it does now
    sentence: str
    newest: int

    @property
    def share(self) -> float:
        return self.done / self.total if self.total else 0.0


class Retraining:
    """One training at a time on the answers to a run; whoever holds the lock beside its record is the one."""

    def __init__(self, run: FinishedRun, store: Store) -> None:
        self._run, self._store, folder = run, store, run.path / "finding"
        self._record, self._log = folder / "retraining.json", folder / "retraining.log"
        self._lock_file = folder / "retraining.lock"
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = False
        self._refusal: UserError | None = None  # why the last one could not begin

    # What people ask for

    def plan(self) -> list[Command]:
        """The commands that training again would run now."""
        return [Command(what, tuple(words)) for what, words in planned_commands(self._run, _sibling(self._run.path))]

    def start(self) -> None:
        """Begin with the answers of this moment, unless a training is under way."""
        entries = self._store.entries()
        if not any(entry.answer in ("yes", "no") for entry in entries):
            raise ReviewError("nobody has answered yes or no yet, so there is nothing new to learn")
        new = _sibling(self._run.path)
        self._begin(
            Record(
                run=str(new),
                commands=planned_commands(self._run, new),
                folds=folds_of(self._run),
                newest=entries[-1].id,
                begun=datetime.now(UTC).isoformat(timespec="seconds"),
            )
        )

    def resume(self) -> None:
        """Go on with a training that was stopped, failed, or lost its server: every command goes on where it was."""
        record = self._read()
        if record is not None and record.state != "done":
            new = self._new_run(record)
            if _stem(new) != _stem(_named_folder(self._run.path)):
                raise ReviewError(f"{self._record}: is not about a folder beside {self._run.path}; delete the file")
            # The commands of now: a folder that came from elsewhere may have brought others in its record.
            commands = planned_commands(self._run, new)
            again = {"commands": commands, "step": min(record.step, len(commands) - 1)}
            self._begin(record.model_copy(update={**again, "state": "running", "sentence": ""}))

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
        """How far the last training is; None if there was none."""
        record = self._read()
        if record is None:
            return None
        commands = [Command(what, tuple(words)) for what, words in record.commands]
        state: State = record.state
        if state == "running" and not self._is_running:
            state = "elsewhere" if self._is_locked() else "interrupted"
        new = self._new_run(record)
        done, total = _epochs(new, record.folds)
        words = _last_line(self._log) if state in ("running", "elsewhere") else ""
        return Progress(state, new, commands, record.step, done, total, words, record.sentence, record.newest)

    def _new_run(self, record: Record) -> Path:
        """The folder beside the run that a record names, wherever the record says it is."""
        return _named_folder(self._run.path).with_name(Path(record.run).name)

    # The work

    @property
    def _is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _is_locked(self) -> bool:
        try:
            with locked(self._lock_file):
                return False
        except BusyError:
            return True

    def _begin(self, record: Record) -> None:
        """Start a thread that does the work, and wait until it has begun, or has found that another server does it."""
        with self._guard:
            if self._is_running:
                return  # as from another tab
            self._stopping, self._refusal = False, None
            begun = threading.Event()
            # Not a daemon: a server that ends stops it first, and waits.
            self._thread = threading.Thread(target=self._work, args=[record, begun], name="training again")
            self._thread.start()
        begun.wait(_PATIENCE)
        if self._refusal is not None:
            raise self._refusal

    def _work(self, record: Record, begun: threading.Event) -> None:
        try:
            with self._held(), writing(self._log), self._log.open("wb") as log:
                self._write(record)
                begun.set()
                self._run_commands(record, log.fileno())
        except BusyError:
            pass  # another server was first
        except UserError as error:  # as of a folder that has become read-only
            self._refusal = error
        finally:
            begun.set()

    @contextmanager
    def _held(self) -> Iterator[None]:
        """The lock; others hold it for a moment when they ask whether anybody does."""
        with ExitStack() as stack:
            for attempt in range(_ATTEMPTS):
                try:
                    stack.enter_context(locked(self._lock_file))
                    break
                except BusyError:
                    if attempt == _ATTEMPTS - 1:
                        raise
                    time.sleep(0.05)
            yield

    def _run_commands(self, record: Record, log: int) -> None:
        for step, (_, words) in enumerate(record.commands[record.step :], start=record.step):
            record = record.model_copy(update={"step": step})
            self._write(record)
            code = self._execute(words, log)
            if self._stopping or code:
                state = "stopped" if self._stopping else "failed"
                self._write(record.model_copy(update={"state": state, "sentence": _last_line(self._log)}))
                return
        self._write(record.model_copy(update={"state": "done"}))

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
        try:
            return Record.model_validate_json(self._record.read_text("utf-8"))
        except (OSError, ValidationError):
            return None

    def _write(self, record: Record) -> None:
        with writing(self._record):
            write_atomically(self._record, f"{json.dumps(record.model_dump(), indent=2)}\n".encode())


def _sibling(path: Path) -> Path:
    """The first free name for another run beside one, as photos-2 beside photos, with a free name for its labels."""
    path = _named_folder(path)
    others = (path.with_name(f"{_stem(path)}-{number}") for number in count(2))
    return next(each for each in others if not each.exists() and not _labels_file(each).exists())


def _stem(path: Path) -> str:
    """A run's name without its number; a longer number is more likely a year."""
    return re.sub(r"-\d{1,2}$", "", path.name)


def _named_folder(path: Path) -> Path:
    return path if path.name not in ("", "..") else path.resolve()


def _labels_file(run: Path) -> Path:
    return run.with_name(f"{run.name}-labels.csv")


def planned_commands(run: FinishedRun, new: Path) -> list[tuple[str, list[str]]]:
    """Write the labels, train as the run was trained, and find what is still missing."""
    folder, labels, data, default = _word(run.path), _word(_labels_file(new)), run.config.data, DataConfig()
    changed = [name for name in _OF_THE_FIRST_TABLE if getattr(data, name) != getattr(default, name)]
    settings = [word for name in changed for word in ("--set", f"data.{name}={_written(getattr(default, name))}")]
    if is_remote(run.table.root):  # or the URLs of the completed labels would not be followed
        settings += ["--set", f"data.images={run.table.root}"]
    maps = [] if (run.path / "finding" / "maps.npy").exists() else ["--no-maps"]
    return [
        ("Writing the labels", ["labels", folder, "--out", labels]),
        ("Training", ["train", labels, "--config", _word(run.path / "config.toml"), *settings, "--out", _word(new)]),
        ("Looking for what is still missing", ["find", _word(new), "--folds", str(folds_of(run)), *maps]),
    ]


def _word(path: Path) -> str:
    """A path as a word of a command, which would take one that begins with a dash for an option."""
    return f"./{path}" if str(path).startswith("-") else str(path)


def _written(value: object) -> str:
    return "none" if value is None else "" if value == () else str(value)


def folds_of(run: FinishedRun) -> int:
    """How many models looked for the run's missing labels."""
    parts = [folder.name.rpartition("-")[2] for folder in (run.path / "finding" / "folds").glob("*-of-*")]
    return max((int(part) for part in parts if part.isdecimal()), default=5)


def _epochs(run: Path, folds: int) -> tuple[int, int]:
    """How many epochs are done, and how many there are, of the run and of the models that look for missing labels."""
    try:
        config = RunFolder(run).config()
    except (UserError, OSError):
        return 0, 0
    if config.solves:  # which takes seconds
        return 0, 0
    each = sum(stage.epochs for stage in config.stages.values())
    done = sum(_lines(file) for file in (run / "metrics.jsonl", *run.glob("finding/folds/*/metrics.jsonl")))
    return done, each * (1 + folds)


def _lines(file: Path) -> int:
    try:
        return file.read_bytes().count(b"\n")
    except OSError:
        return 0


def _last_line(log: Path) -> str:
    """What a command said last: of one that failed, the sentence that says why."""
    try:
        lines = log.read_text("utf-8", "replace").splitlines()
    except OSError:
        return ""
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return last.removeprefix("onepair: ")
