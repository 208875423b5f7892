"""The state of an audit: which of the drawn images are complete, what their labels are, and what comes next."""

from collections.abc import Collection
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from onepair.errors import RunError
from onepair.files import locked, writing
from onepair.finding.suggestions import LIKELY
from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, Labels
from onepair.review.answers import Answer, Entry, Reply, Store, login_name
from onepair.review.image_answers import open_answers
from onepair.review.session import Session
from onepair.runs.audit import AuditedSplit, Sample, audit_folder, draw, read_answers, write_audit, write_sheet
from onepair.runs.finished import FinishedRun, protect_inputs
from onepair.runs.project import project_of

POSSIBLE = 0.02  # the probability from which on a label is worth a place among the likely ones
MOST_POSSIBLE = 12  # such places, beside those of labels that are ticked
BREAK = 600.0  # seconds; a whole image takes longer than one answer

_VALUE_OF: dict[Reply | None, int] = {"yes": POSITIVE, "no": NEGATIVE}


class Toggle(NamedTuple):
    """One label of one image."""

    label: str
    probability: float
    known: bool  # the dataset has it
    predicted: bool  # to be there rather than not
    ticked: bool


class AuditSession(Session):
    """Images that were drawn, and what people have said of them so far; numbers count in the order of the draw.

    An image is complete when all of its labels are answered. What is complete is in audit/audited.csv at all times but
    for the moment between an answer and the writing of the file, and written again at the start.
    """

    def __init__(self, run: FinishedRun, sample: Sample, store: Store) -> None:
        super().__init__(run, store, pause=BREAK, fewest=2)
        self.sample = sample
        rows = run.rows(sample.split)
        place_of = {self.table.files[row]: place for place, row in enumerate(rows.tolist())}
        places = [place_of[file] for file in sample.files]
        self.rows = rows[places]
        scores = run.scores(sample.split)[places]
        self.probabilities = run.decisions.probabilities(scores)
        self._number_of = {file: number for number, file in enumerate(sample.files, start=1)}
        self._column_of = {name: column for column, name in enumerate(self.table.classes)}
        shape = (len(sample.files), len(self.table.classes))
        self.answers: Labels = np.full(shape, UNKNOWN, np.int8)
        self._taken_back: Labels = np.full(shape, UNKNOWN, np.int8)
        self._versions = np.zeros(shape, np.int64)
        self._action = 0
        audit = run.audit if store.is_empty else None
        if audit is not None:  # audited.csv came without the answers that made it: it is what was answered
            files = (self.table.files[row] for row in audit.rows.tolist())
            self._answer_all(dict(zip(files, audit.labels, strict=True)), who="audited.csv")
        if not self.refresh():
            self.write()

    def __len__(self) -> int:
        return len(self.sample.files)

    @property
    def total(self) -> int:
        return len(self)

    @property
    def left(self) -> int:
        return int((~self.complete).sum())

    def alone(self) -> AbstractContextManager[None]:
        return locked(audit_folder(self.run) / ".lock")

    def refresh(self) -> bool:
        """Take in what has been answered since, here or elsewhere, and write it to audit/audited.csv."""
        changed = super().refresh()
        if changed:
            self.write()
        return changed

    def _take(self, entry: Entry) -> None:
        number, column = self._number_of.get(entry.file), self._column_of.get(entry.label)
        if number is None or column is None:
            return
        cell = number - 1, column
        if entry.undoes is not None:
            self._taken_back[cell] = self.answers[cell]
        self.answers[cell] = _VALUE_OF.get(entry.answer, UNKNOWN)
        self._versions[cell] = entry.id
        if entry.action != self._action:
            self._action = entry.action
            self._pace.note(entry)

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
        ticked = np.where(
            said != UNKNOWN, said == POSITIVE, known == POSITIVE
        )  # what a model says, people have to tick
        chance = self.probabilities[place]
        expected = (chance >= LIKELY) & (known == UNKNOWN)
        order = np.lexsort((-chance, known != POSITIVE))
        possible = [column for column in order.tolist() if not ticked[column] and chance[column] >= POSSIBLE]
        likely = set(np.flatnonzero(ticked | (known == POSITIVE)).tolist()) | set(possible[:MOST_POSSIBLE])
        everything = [
            Toggle(name, float(chance[column]), bool(known[column] == POSITIVE), bool(predicted), bool(tick))
            for column, (name, predicted, tick) in enumerate(zip(self.table.classes, expected, ticked, strict=True))
        ]
        others = [each for column, each in enumerate(everything) if column not in likely]
        by_name = sorted(others, key=lambda each: each.label.lower())
        return [everything[column] for column in order if column in likely], by_name

    def next_open(self, *, after: int = 0, who: str = "") -> int | None:
        """The next image that is not complete, from the first again after the last; what others look at comes last."""
        numbers = [(after + step) % len(self) + 1 for step in range(len(self))]
        waiting = [number for number in numbers if not self.complete[number - 1]]
        held = self._claims.others(who)
        return next((number for number in waiting if number not in held), waiting[0] if waiting else None)

    # People

    def finish(self, number: int, ticked: Collection[str], *, seen: int, who: str) -> list[Entry]:
        """Say that an image shows the ticked labels and no others, as somebody who saw it at a version.

        Returns what others said otherwise in the meantime: that stays as it is.
        """
        file, place = self.sample.files[number - 1], number - 1
        replies: list[Reply] = ["yes" if name in ticked else "no" for name in self.table.classes]
        cells = zip(
            self.table.classes, replies, self.answers[place].tolist(), self._versions[place].tolist(), strict=True
        )
        return self.record(
            [
                Answer(file, name, reply, min(version, seen))
                for name, reply, answered, version in cells
                if version > seen or _VALUE_OF[reply] != answered
            ],
            who=who,
        )

    def number_of(self, file: str) -> int | None:
        """The number of an image by its name."""
        return self._number_of.get(file)

    def last_file(self, *, who: str) -> str | None:
        """The image that `undo` would take back."""
        last = self.store.last_action(who=who)
        return last[0].file if last else None

    def write_sheet(self, path: str | Path) -> None:
        """Write the images as a .csv or .parquet table, for a person to fill in 1 or 0 where it is blank."""
        protect_inputs(Path(path), run=self.run.path)
        write_sheet(self.run, self.sample, Path(path))

    def take_sheet(self, path: str | Path, *, who: str | None = None) -> list[str]:
        """Take the answers of a filled-in sheet; returns the images that have blanks and were left out."""
        path = Path(path)
        table = read_answers(self.run, self.sample.split, path)
        strange = next((file for file in table.files if file not in self._number_of), None)
        if strange is not None:
            raise RunError(f"{path}: {strange} was not drawn, so its labels say nothing of the others; remove its line")
        full = table.labels.row_count(UNKNOWN) == 0
        sheet = zip(table.files, table.labels, full, strict=True)
        self._answer_all({file: labels for file, labels, kept in sheet if kept}, who=who or login_name())
        return [file for file, kept in zip(table.files, full.tolist(), strict=True) if not kept]

    def _answer_all(self, labels: dict[str, Labels], *, who: str) -> None:
        answers = [
            Answer(file, name, "yes" if value == POSITIVE else "no", int(self._versions[number - 1, column]))
            for file, values in labels.items()
            if (number := self._number_of.get(file)) is not None
            for column, (name, value) in enumerate(zip(self.table.classes, values.tolist(), strict=True))
            if self.answers[number - 1, column] != value
        ]
        if answers:
            self.record(answers, who=who)

    def write(self) -> None:
        """Write what is complete to audit/audited.csv."""
        with self._lock:
            complete = np.flatnonzero(self.complete).tolist()
            write_audit(self.run, self.sample, {self.sample.files[place]: self.answers[place] for place in complete})


def open_audit(run: FinishedRun, images: int, *, split: AuditedSplit, seed: int) -> AuditSession:
    """Draw images of a run, which extend an earlier sample, and open what is answered of them."""
    folder = audit_folder(run)
    with writing(folder):
        folder.mkdir(exist_ok=True)
        with locked(folder / ".lock"):
            return AuditSession(run, draw(run, split, images, seed), open_store(run))


def open_store(run: FinishedRun) -> Store:
    """What keeps the answers of a run's audit: of a project, all answers are in one place."""
    return open_answers(run) if project_of(run.path) else Store(audit_folder(run) / "answers.sqlite")
