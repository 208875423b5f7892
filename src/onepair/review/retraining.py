"""Training again with the answers, beside the review, by three commands of onepair; and what it has changed."""

import glob
import os
import re
import shlex
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError

from onepair.data.class_rules import spelling_groups
from onepair.errors import BusyError, OnepairError, ReviewError
from onepair.files import locked, write_atomically, writing
from onepair.labels import POSITIVE, Indices, Labels
from onepair.probability.evaluation import evaluate
from onepair.probability.intervals import Interval, bootstrap_figures
from onepair.probability.precision_recall import PrecisionRecall
from onepair.remote import is_remote
from onepair.review.answers import Store
from onepair.runs.config import DataConfig
from onepair.runs.finished import FinishedRun
from onepair.runs.folder import RunFolder
from onepair.runs.project import project_of
from onepair.runs.task import Split

State = Literal["running", "elsewhere", "stopped", "done"]  # elsewhere: in another process

# What a table of completed labels says itself, and what the first table needed to be read.
_OF_THE_FIRST_TABLE = ("format", "unlisted", "zeros", "images", "label_columns", "complete_splits", "observe")
_PATIENCE = 20.0  # seconds for a command to save what it has, and end


class Command(NamedTuple):
    """A command of onepair, and the file that is there once it has done its work."""

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
    project = project_of(run.path)
    record = project.record() if project else None
    if record and (same := record.reading.get("same")):  # perhaps since the run
        settings += ["--set", f"data.same={same}"]
    maps = [] if (run.path / "finding" / "maps.npy").exists() else ["--no-maps"]
    config = ["--config", _word(run.path / "config.toml")]
    return [
        Command(["labels", folder, "--out", labels, "--as", "csv"], _labels_file(new)),
        Command(["train", labels, *config, *settings, "--out", _word(new)], new / "results.json"),
        Command(
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


def runs_beside(path: Path) -> list[Path]:
    """The runs that belong together with one, itself included, oldest first: finished, and with suggestions."""
    path = _named_folder(path)
    project = project_of(path)
    others = project.runs.iterdir() if project else path.parent.glob(f"{glob.escape(_stem(path.name))}*")
    alike = [each for each in others if project or _stem(each.name) == _stem(path.name)]
    ready = [each for each in alike if (each / "finding" / "suggestions.csv").exists() and RunFolder(each).finished]
    return sorted(ready, key=lambda each: [int(number) for number in re.findall(r"\d+", each.name)])


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


# Before and after people's answers: the same images, the same labels, the same classes


MOST_PHOTOS = 24
MOST_CLASSES = 3

Scores = NDArray[np.float32]  # (N, L)


class Judged(NamedTuple):
    """A run, by name, and how good it is."""

    name: str
    worth: PrecisionRecall
    map: Interval
    f1: Interval
    assumption: str  # what the figures rest on, where labels are unknown


class Change(NamedTuple):
    """A label that is predicted of an image by one run and not by the other, and how sure each is."""

    label: str
    before: float | None  # None: the run before did not know the class
    after: float
    gained: bool


class Photo(NamedTuple):
    """An image of which the two runs say different things."""

    row: int  # of the table of the run before
    file: str
    changes: list[Change]


class BeforeAfter(NamedTuple):
    """What training again has changed."""

    before: Judged
    after: Judged
    split: Split
    images: int
    changed: int  # images that the two say different things of
    photos: list[Photo]  # the first of them, those that changed most first
    most: list[tuple[str, int, int]]  # the classes that changed most, with how many images got them and lost them

    @property
    def verdict(self) -> Literal["better", "worse", "alike"]:
        """Whether the F1, or without it the mAP, has left the interval of before, and the one of before that of now."""
        before, after = (each.f1 if each.f1.is_informative else each.map for each in (self.before, self.after))
        if not (before.is_informative and after.is_informative):
            return "alike"
        if after.value > before.high and before.value < after.low:
            return "better"
        return "worse" if after.value < before.low and before.value > after.high else "alike"


def compare(before: FinishedRun, after: FinishedRun) -> BeforeAfter:
    """Judge both runs by what is known now, on test images or, without labels on these, on validation images.

    The tables of the two have the same rows, since the second was written from the first; what the second has more are
    labels, and perhaps classes at the end, which are in no figure, as the first run knows nothing of them.
    """
    tested = len(after.task.test) and (after.labels("test") == POSITIVE).any()
    split: Split = "test" if tested else "validation"
    rows, of_before, of_after = np.intersect1d(before.rows(split), after.rows(split), return_indices=True)
    classes = len(before.classes)
    labels, asked = after.labels(split)[of_after, :classes], after.asked(split)
    asked = None if asked is None else asked[of_after, :classes]
    first, second = before.scores(split)[of_before], after.scores(split)[of_after]
    photos = _photos(before, first, after, second, rows)
    return BeforeAfter(
        before=_judge(before, first, labels, asked),
        after=_judge(after, second, labels, asked),
        split=split,
        images=len(rows),
        changed=len(photos),
        photos=photos[:MOST_PHOTOS],
        most=_most(change for photo in photos for change in photo.changes),
    )


def _most(changes: Iterable[Change]) -> list[tuple[str, int, int]]:
    gained, lost = Counter[str](), Counter[str]()
    for each in changes:
        (gained if each.gained else lost)[each.label] += 1
    return [(label, gained[label], lost[label]) for label, _ in (gained + lost).most_common(MOST_CLASSES)]


def _judge(run: FinishedRun, scores: Scores, labels: Labels, asked: NDArray[np.bool_] | None) -> Judged:
    """The figures of a run on its first classes: measured where all labels are known, and estimated elsewhere."""
    classes, name = labels.shape[1], run.path.name
    scores, thresholds = scores[:, :classes], run.decisions.of_classes(np.arange(classes))
    names, process = run.classes[:classes], run.config.data.process
    found = evaluate(scores, labels, thresholds, names, process=process, asked=asked)
    if (estimated := found.estimated) is not None:
        return Judged(name, found.precision_recall, estimated.map, estimated.f1, estimated.assumption)
    measured = bootstrap_figures(scores, labels, thresholds.labels(scores))
    return Judged(name, found.precision_recall, measured.map, measured.f1, "")


def _photos(before: FinishedRun, first: Scores, after: FinishedRun, second: Scores, rows: Indices) -> list[Photo]:
    """The images of which the two say different things, those whose probabilities moved farthest first."""
    known = first.shape[1]
    wider = ((0, 0), (0, second.shape[1] - known))
    was, now = before.decisions.probabilities(first), after.decisions.probabilities(second)
    predicted = after.decisions.labels(second)
    differs = np.pad(before.decisions.labels(first), wider) != predicted
    moved = np.where(differs, np.abs(now - np.pad(was, wider)), 0).max(1)
    changed = np.flatnonzero(differs.any(1))

    def change(image: int, column: int) -> Change:
        chance = float(was[image, column]) if column < known else None
        return Change(after.classes[column], chance, float(now[image, column]), bool(predicted[image, column]))

    return [
        Photo(
            int(rows[image]),
            before.table.files[int(rows[image])],
            [change(image, column) for column in np.flatnonzero(differs[image]).tolist()],
        )
        for image in changed[np.argsort(-moved[changed], kind="stable")].tolist()
    ]
