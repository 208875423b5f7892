"""The state of an audit: which of the drawn images are complete, what their labels are, and what comes next."""

import threading
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from onepair.errors import RunError
from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, Labels
from onepair.review.answers import Answer, Entry, Reply, Store
from onepair.review.session import Claims, Pace
from onepair.runs.audit import Sample, audit_folder, read_answers, write_audit
from onepair.runs.finished import FinishedRun

POSSIBLE = 0.02  # the probability from which on a label is worth a place among the likely ones
MOST_POSSIBLE = 12  # such places, beside those of labels that are ticked
BREAK = 600.0  # seconds; a whole image takes longer than one answer

_VALUE_OF: dict[Reply | None, int] = {"yes": POSITIVE, "no": NEGATIVE}


class Toggle(NamedTuple):
    """One label of one image."""

    label: str
    probability: float
    known: bool  # the dataset has it
    predicted: bool
    ticked: bool


class AuditSession:
    """Images that were drawn, and what people have said of them so far; numbers count from 1 in the order of the draw.

    An image is complete when all of its labels are answered. What is complete is in audit/audited.csv at all times but
    for the moment between an answer and the writing of the file, and written again at the start.
    """

    def __init__(self, run: FinishedRun, sample: Sample, store: Store) -> None:
        self.run, self.sample, self.store, self.table = run, sample, store, run.table
        rows = run.rows(sample.split)
        place_of = {self.table.files[row]: place for place, row in enumerate(rows.tolist())}
        places = [place_of[file] for file in sample.files]
        self.rows = rows[places]
        scores = run.scores(sample.split)[places]
        self.probabilities, self.predicted = run.decisions.probabilities(scores), run.decisions.labels(scores)
        self._number_of = {file: number for number, file in enumerate(sample.files, start=1)}
        self._column_of = {name: column for column, name in enumerate(self.table.classes)}
        shape = (len(sample.files), len(self.table.classes))
        self.answers: Labels = np.full(shape, UNKNOWN, np.int8)
        self._taken_back: Labels = np.full(shape, UNKNOWN, np.int8)
        self._versions = np.zeros(shape, np.int64)
        self._pace, self._claims = Pace(pause=BREAK, fewest=2), Claims()
        self._newest = self._action = 0
        self._lock = threading.Lock()
        self._take_over()
        self.refresh()
        self.write()

    def __len__(self) -> int:
        return len(self.sample.files)

    def _take_over(self) -> None:
        """Where audited.csv came without the answers that made it, it is what was answered."""
        audit = self.run.audit if self.store.is_empty else None
        if audit is not None:
            labels = dict(zip((self.table.files[row] for row in audit.rows.tolist()), audit.labels, strict=True))
            self._answer_all(labels, who="audited.csv")

    def refresh(self) -> None:
        """Take in what has been decided since, here or elsewhere."""
        with self._lock:
            for entry in self.store.entries(after=self._newest):
                self._newest = entry.id
                cell = self._cell(entry)
                if cell is None:
                    continue
                if entry.undoes is not None:
                    self._taken_back[cell] = self.answers[cell]
                self.answers[cell] = _VALUE_OF.get(entry.answer, UNKNOWN)
                self._versions[cell] = entry.id
                if entry.action != self._action:
                    self._action = entry.action
                    self._pace.note(entry)

    def _cell(self, entry: Entry) -> tuple[int, int] | None:
        number, column = self._number_of.get(entry.file), self._column_of.get(entry.label)
        return None if number is None or column is None else (number - 1, column)

    # Images

    @property
    def complete(self) -> NDArray[np.bool_]:
        """Which images are, (n,)."""
        complete: NDArray[np.bool_] = (self.answers != UNKNOWN).all(1)
        return complete

    def version(self, number: int) -> int:
        """Of an image: it changes with every answer about it."""
        return int(self._versions[number - 1].max())

    def toggles(self, number: int) -> tuple[list[Toggle], list[Toggle]]:
        """All labels of an image: those that it may show, the most probable first, and the others by name."""
        place = number - 1
        known = self.table.labels[self.rows[place]]
        said = np.where(self.answers[place] != UNKNOWN, self.answers[place], self._taken_back[place])
        guess = (known == POSITIVE) | (self.predicted[place] & (known == UNKNOWN))
        ticked = np.where(said != UNKNOWN, said == POSITIVE, guess)
        chance = self.probabilities[place]
        order = np.lexsort((-chance, known != POSITIVE))
        possible = [column for column in order.tolist() if not ticked[column] and chance[column] >= POSSIBLE]
        likely = set(np.flatnonzero(ticked | (known == POSITIVE)).tolist()) | set(possible[:MOST_POSSIBLE])
        everything = [
            Toggle(name, float(chance[column]), bool(known[column] == POSITIVE), bool(predicted), bool(tick))
            for column, (name, predicted, tick) in enumerate(
                zip(self.table.classes, self.predicted[place], ticked, strict=True)
            )
        ]
        others = [each for column, each in enumerate(everything) if column not in likely]
        return [everything[column] for column in order if column in likely], sorted(others, key=_by_name)

    def next_open(self, *, after: int = 0, who: str = "") -> int | None:
        """The next image that is not complete, from the first again after the last; what others look at comes last."""
        numbers = [(after + step) % len(self) + 1 for step in range(len(self))]
        waiting = [number for number in numbers if not self.complete[number - 1]]
        held = self._claims.others(who)
        return next((number for number in waiting if number not in held), waiting[0] if waiting else None)

    def hold(self, number: int, *, who: str) -> None:
        self._claims.take([number], who=who)

    # People

    def finish(self, number: int, ticked: Collection[str], *, seen: int, who: str) -> list[Entry]:
        """Say that an image shows the ticked labels and no others, as somebody who saw it at a version.

        Returns what others said otherwise in the meantime: that stays as it is.
        """
        file, versions = self.sample.files[number - 1], self._versions[number - 1].tolist()
        decisions = []
        for name, answered, version in zip(
            self.table.classes, self.answers[number - 1].tolist(), versions, strict=True
        ):
            answer: Reply = "yes" if name in ticked else "no"
            if version > seen or _VALUE_OF[answer] != answered:
                decisions.append(Answer(file, name, answer, min(version, seen)))
        refused = self.store.record(decisions, who=who)
        self.refresh()
        self.write()
        return refused

    def undo(self, *, who: str) -> int | None:
        """Take somebody's last image back; which one it was."""
        undone = self.store.undo(who=who)
        self.refresh()
        self.write()
        return self._number_of.get(undone[0].file) if undone else None

    def last_file(self, *, who: str) -> str | None:
        """The image that `undo` would take back."""
        last = self.store.last_action(who=who)
        return last[0].file if last else None

    def seconds_left(self, *, who: str) -> float | None:
        with self._lock:
            seconds = self._pace.seconds(who)
        return None if seconds is None else seconds * int((~self.complete).sum())

    def take_sheet(self, path: Path, *, who: str) -> list[str]:
        """Take the answers of a filled-in sheet; returns the images that have blanks and were left out."""
        table = read_answers(self.run, self.sample.split, path)
        strange = next((file for file in table.files if file not in self._number_of), None)
        if strange is not None:
            raise RunError(f"{path}: {strange} was not drawn, so its labels say nothing of the others; remove its line")
        full = table.labels.row_count(UNKNOWN) == 0
        self._answer_all(
            {file: labels for file, labels, kept in zip(table.files, table.labels, full, strict=True) if kept}, who=who
        )
        self.refresh()
        self.write()
        return [file for file, kept in zip(table.files, full.tolist(), strict=True) if not kept]

    def _answer_all(self, labels: dict[str, Labels], *, who: str) -> None:
        decisions = [
            Answer(file, name, "yes" if value == POSITIVE else "no", int(self._versions[number - 1, column]))
            for file, values in labels.items()
            if (number := self._number_of.get(file)) is not None
            for column, (name, value) in enumerate(zip(self.table.classes, values.tolist(), strict=True))
            if self.answers[number - 1, column] != value
        ]
        if decisions:
            self.store.record(decisions, who=who)

    def write(self) -> None:
        """Write what is complete to audit/audited.csv."""
        with self._lock:
            complete = np.flatnonzero(self.complete).tolist()
            write_audit(self.run, self.sample, {self.sample.files[place]: self.answers[place] for place in complete})


def open_store(run: FinishedRun) -> Store:
    """What keeps the answers of a run's audit."""
    return Store(audit_folder(run) / "answers.sqlite")


def _by_name(toggle: Toggle) -> str:
    return toggle.label.lower()
