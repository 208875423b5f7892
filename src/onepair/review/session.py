"""The state of a review: what is answered, what is open, what comes next, and how long it will take."""

import threading
import time
from abc import ABC, abstractmethod
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from onepair.data.class_rules import with_same
from onepair.data.quality import ALIKE, near_names
from onepair.data.tables.cell_values import names_in
from onepair.errors import ReviewError, require_extra
from onepair.files import locked
from onepair.label_matrix import LabelMatrix
from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN
from onepair.probability.calibration import Correction
from onepair.probability.intervals import Interval
from onepair.review.answers import Answer, Entry, Opinions, Place, Reply, Store
from onepair.review.image_answers import ImageAnswers
from onepair.review.queue import ORDERS, Order, Queue
from onepair.review.retraining import Retraining
from onepair.runs.finished import FinishedRun
from onepair.runs.project import Project, ProjectRecord, project_of

if TYPE_CHECKING:
    from onepair.review.server import Page

BREAK = 120.0  # seconds without an answer that are a break, not time spent on one
RECENT = 200  # answers that the pace is measured on
FEWEST = 5  # gaps between them
EXAMPLES = 5  # images that show a class, of which one may be in question itself
MOST_CLASSES = 2000  # whose names are compared with one another
SOON = 100  # answers of which it is said what they will bring
ENOUGH = 100  # likely suggestions, to say that all is answered before others are asked about
HOLD = 120.0  # seconds for which what one person looks at is not given to another


class Pace:
    """When everybody acted last."""

    def __init__(self, *, pause: float, fewest: int) -> None:
        self.pause, self.fewest = pause, fewest
        self._times: dict[str, deque[datetime]] = defaultdict(lambda: deque(maxlen=RECENT))

    def note(self, entry: Entry) -> None:
        if entry.undoes is None:
            self._times[entry.who].append(entry.time)

    def seconds(self, who: str) -> float | None:
        """How long one answer takes somebody, without breaks; None until there are a few."""
        gaps = ((later - earlier).total_seconds() for earlier, later in pairwise(tuple(self._times[who])))
        working = [gap for gap in gaps if gap < self.pause]
        return sum(working) / len(working) if len(working) >= self.fewest else None


class Claims:
    """What everybody looks at now, by number, so that others get something else."""

    def __init__(self) -> None:
        self._claims: dict[str, tuple[float, list[int]]] = {}

    def take(self, numbers: Iterable[int], *, who: str) -> None:
        self._claims[who] = time.monotonic(), list(numbers)

    def others(self, who: str) -> set[int]:
        """What is before others than `who`."""
        now, claims = time.monotonic(), list(self._claims.items())
        fresh = (numbers for other, (since, numbers) in claims if other != who and now - since < HOLD)
        return {number for numbers in fresh for number in numbers}


class Session(ABC):
    """What people have answered so far; other processes may answer at the same time.

    Args:
        run: whose images are looked at.
        store: what keeps the answers.
        pause: seconds without an answer that are a break.
        fewest: gaps between answers from which the time left is estimated.
    """

    def __init__(self, run: FinishedRun, store: Store, *, pause: float, fewest: int) -> None:
        self.run, self.store, self.table = run, store, run.table
        self._pace, self._claims = Pace(pause=pause, fewest=fewest), Claims()
        self._newest = 0
        self._lock = threading.Lock()

    @abstractmethod
    def __len__(self) -> int:
        """How many questions there are; their numbers count from 1."""

    @property
    @abstractmethod
    def total(self) -> int:
        """How many of them are to be answered."""

    @property
    @abstractmethod
    def left(self) -> int:
        """How many of those to be answered are open."""

    def alone(self) -> AbstractContextManager[None]:
        """Keep other processes out for a while, where two at once would be too many."""
        return nullcontext()

    @abstractmethod
    def _take(self, entry: Entry) -> None:
        """Take an entry of the history in."""

    def serve(
        self, *, port: int = 0, host: str = "127.0.0.1", name: str | None = None, follow_links: bool = False
    ) -> "Page":
        """Serve the pages in the background, until `stop` is called or the program ends.

        Args:
            port: 0 takes any that is free.
            host: beyond this machine, the address has a token in it.
            name: of who answers; by default the login name, and beyond this machine everybody is asked.
            follow_links: also show images that are links to outside of the dataset.
        """
        require_extra("review")
        from onepair.review.server import Page

        return Page(self, host=host, port=port, name=name, follow_links=follow_links)

    def refresh(self) -> bool:
        """Take in what has been answered since, here or elsewhere, and return whether there was anything."""
        with self._lock:
            entries = self.store.entries(after=self._newest)
            for entry in entries:
                self._newest = entry.id
                self._take(entry)
        return bool(entries)

    def record(self, answers: Sequence[Answer], *, who: str) -> list[Entry]:
        """Store answers, and return what others said otherwise in the meantime: that stays as it is."""
        refused = self.store.record(answers, who=who)
        self.refresh()
        return refused

    def undo(self, *, who: str) -> list[Entry]:
        """Take back somebody's last action, and return its entries."""
        undone = self.store.undo(who=who)
        self.refresh()
        return undone

    def hold(self, numbers: Iterable[int], *, who: str) -> None:
        """Note what somebody looks at now, so that others get something else."""
        self._claims.take(numbers, who=who)

    def seconds_left(self, *, who: str) -> float | None:
        """How long the rest takes at somebody's recent pace; None until there is one."""
        with self._lock:
            seconds = self._pace.seconds(who)
        return None if seconds is None else seconds * self.left


@dataclass(frozen=True)
class Cell:
    """One label of one image, with all that is known about it."""

    row: int
    file: str
    label: str
    observed: int
    entry: Entry | None  # the last in its history
    number: int | None = None  # of its suggestion, from 1; None: nobody suggested it
    suggested: int | None = None
    probability: float | None = None
    likely: bool = False
    before: Reply | None = None  # what was answered and then taken back

    @property
    def answer(self) -> Reply | None:
        return self.entry.answer if self.entry else None

    @property
    def version(self) -> int:
        return self.entry.id if self.entry else 0

    @property
    def shown(self) -> bool:
        """Whether the image shows it, as far as anybody has said."""
        return self.answer == "yes" or (self.answer != "no" and self.observed == POSITIVE)


class Kind(NamedTuple):
    """Suggestions that say the same of one class, and are likely or not; how many there are, and how many are open."""

    label: str
    suggested: int
    likely: bool
    total: int
    open: int


class ReviewSession(Session):
    """Suggestions, and what people have answered to them so far."""

    def __init__(self, run: FinishedRun, suggestions: Queue, store: Store) -> None:
        super().__init__(run, store, pause=BREAK, fewest=FEWEST)
        self.suggestions, self.retraining = suggestions, Retraining(run, store)
        self.open: NDArray[np.bool_] = np.ones(len(suggestions), bool)
        self._right: dict[int, bool] = {}  # whether suggestions that were answered are, by their indices
        self.likely = suggestions.likely
        enough = self.likely.sum() >= ENOUGH
        self.goal = self.likely if enough else np.ones(len(suggestions), bool)  # to be answered; the rest may be
        self._order = {order: suggestions.ordered(order) for order in ORDERS}
        self._position = {order: np.argsort(indices) for order, indices in self._order.items()}
        self._kinds = _kind(suggestions.columns, suggestions.suggested, suggestions.likely)
        cells = zip(suggestions.rows.tolist(), suggestions.columns.tolist(), strict=True)
        self._suggestion_of = {
            (self.table.files[row], self.table.classes[column]): index for index, (row, column) in enumerate(cells)
        }
        self.rows = run.searched
        self._row_of = {self.table.files[row]: row for row in self.rows.tolist()}
        self.added: tuple[str, ...] = ()  # classes that the dataset does not have
        self._entry_of: dict[Place, Entry] = {}
        self._taken_back: dict[Place, Reply | None] = {}
        self._labels: tuple[tuple[int, int], LabelMatrix] | None = None  # as they were after how many answers
        self.opinions = Opinions()
        self.refresh()

    def __len__(self) -> int:
        return len(self.suggestions)

    @property
    def total(self) -> int:
        return int(self.goal.sum())

    @property
    def left(self) -> int:
        return int((self.open & self.goal).sum())

    def refresh(self) -> bool:
        self.added = tuple(name for name in self.store.classes() if name not in self.table.classes)
        return super().refresh()

    def _take(self, entry: Entry) -> None:
        place = entry.file, entry.label
        if entry.undoes is not None:
            self._taken_back[place] = self._entry_of[place].answer
        self._entry_of[place] = entry
        self.opinions.note(entry)
        index = self._suggestion_of.get(place)
        if index is not None:
            self._pace.note(entry)
            self.open[index] = entry.answer is None
            self._right.pop(index, None)
            if entry.answer in ("yes", "no"):
                self._right[index] = (entry.answer == "yes") == (self.suggestions.suggested[index] == POSITIVE)

    # Cells

    @property
    def classes(self) -> tuple[str, ...]:
        """Those of the dataset, and then those that people have added."""
        return self.table.classes + self.added

    def suggestion(self, number: int) -> Cell:
        index = number - 1
        return self._cell(int(self.suggestions.rows[index]), int(self.suggestions.columns[index]))

    def find(self, file: str, label: str) -> Cell | None:
        """The cell of a training image and a class by their names."""
        if file not in self._row_of or label not in self.classes:
            return None
        return self._cell(self._row_of[file], self.classes.index(label))

    def has(self, row: int) -> bool:
        """Whether a row of the table is an image that the review is about."""
        return bool(np.isin(row, self.rows))

    def cells(self, row: int) -> list[Cell]:
        """All labels of an image, in the order of the classes."""
        return [self._cell(row, column) for column in range(len(self.classes))]

    def version(self, row: int) -> int:
        """Of an image: it changes with every answer about it."""
        return max(cell.version for cell in self.cells(row))

    def first_of_image(self, row: int) -> int | None:
        """The number of an image's most probable suggestion."""
        return _first(self.suggestions.rows == row)

    def first_of_class(self, label: str, *, who: str = "") -> int | None:
        """The number of a class's most probable suggestion, an open one if there is any."""
        if label not in self.table.classes:
            return None
        chosen = self.suggestions.columns == self.table.classes.index(label)
        return _first(chosen & self._free(who)) or _first(chosen & self.open) or _first(chosen)

    def _cell(self, row: int, column: int) -> Cell:
        file, label = self.table.files[row], self.classes[column]
        observed = int(self.run.known[row, column]) if column < len(self.table.classes) else UNKNOWN
        entry, index = self._entry_of.get((file, label)), self._suggestion_of.get((file, label))
        if index is None:
            return Cell(row, file, label, observed, entry)
        suggested, probability = int(self.suggestions.suggested[index]), float(self.suggestions.probability[index])
        likely, before = bool(self.likely[index]), self._taken_back.get((file, label))
        return Cell(row, file, label, observed, entry, index + 1, suggested, probability, likely, before)

    def standing(self) -> list[tuple[int, Entry]]:
        """What was answered last about every cell, with the row of its image."""
        with self._lock:
            return [(self._row_of[file], each) for (file, _), each in self._entry_of.items() if file in self._row_of]

    def labels(self) -> LabelMatrix:
        """What is known of all images and classes (N, L) now; whoever was not sure has not changed it."""
        key = self._newest, len(self.added)
        if self._labels is None or self._labels[0] != key:
            column_of = {name: column for column, name in enumerate(self.classes)}
            cells = [
                (row, column_of[each.label], POSITIVE if each.answer == "yes" else NEGATIVE)
                for row, each in self.standing()
                if each.answer in ("yes", "no") and each.label in column_of
            ]
            known = self.run.known.with_classes(len(self.added)) if self.added else self.run.known
            self._labels = key, known.with_entries(*np.array(cells, np.int64).reshape(-1, 3).T)
        return self._labels[1]

    def shows(self, label: str) -> NDArray[np.bool_]:
        """Which rows (N,) are images of the review that show a class, as far as anybody has said."""
        shows = np.zeros(len(self.table), bool)
        if label in self.classes:
            rows, columns = self.labels().positives()
            shows[np.intersect1d(rows[columns == self.classes.index(label)], self.rows)] = True
        return shows

    def examples(self, label: str, *, beside: int) -> list[int]:
        """Rows of a few other images that show a class: those that people have confirmed, then those labelled so."""
        said = (row for row, each in reversed(self.standing()) if (each.label, each.answer) == (label, "yes"))
        labelled = np.flatnonzero(self.shows(label))[:EXAMPLES].tolist()
        return [row for row in dict.fromkeys((*islice(said, EXAMPLES), *labelled)) if row != beside][: EXAMPLES - 1]

    def burst(self, cell: Cell) -> list[Cell]:
        """The same label of photos that look nearly the same, where it is known as little and nobody has answered."""
        others = self._bursts.get((self.table.group or ("",) * len(self.table))[cell.row], ())
        cells = (self.find(self.table.files[row], cell.label) for row in others if row != cell.row)
        return [each for each in cells if each and each.answer is None and each.observed == cell.observed]

    @cached_property
    def _bursts(self) -> dict[str, list[int]]:
        """The rows of photos that look nearly the same, by the name of their group."""
        found: dict[str, list[int]] = defaultdict(list)
        for row in self.rows.tolist() if self.table.group else ():
            if (name := (self.table.group or ())[row]).startswith(ALIKE):
                found[name].append(row)
        return found

    # The queue

    def next_open(self, order: Order, *, after: int | None = None, who: str = "") -> int | None:
        """The number of the next suggestion without an answer, from the top again after the last; None if all have one.

        Likely ones come before all others, and what another person looks at right now comes last.
        """
        start = 0 if after is None else int(self._position[order][after - 1]) + 1
        turned = np.roll(self._order[order], -start)
        free = self._free(who)
        wrong = self.suggestions.wrong
        choices = {"second": [self.second(who)], "wrong": [free & wrong, self.open & wrong]}
        for wanted in choices.get(order, [free & self.likely, free, self.open]):
            waiting = turned[wanted[turned]]
            if len(waiting):
                return int(waiting[0]) + 1
        return None

    def second(self, who: str) -> NDArray[np.bool_]:
        """Which suggestions others have answered with yes or no, but not `who`: to compare opinions on."""
        with self._lock:
            mine = self.opinions.by(who)
            answered = [
                (place, index)
                for place, index in self._suggestion_of.items()
                if not self.open[index] and self._entry_of[place].answer in ("yes", "no")
            ]
        chosen = np.zeros(len(self), bool)
        chosen[[index for place, index in answered if place not in mine]] = True
        return chosen

    def _free(self, who: str) -> NDArray[np.bool_]:
        """Which suggestions are open, and not before another person."""
        free = self.open.copy()
        free[np.array(list(self._claims.others(who)), np.intp) - 1] = False
        return free

    def place(self, order: Order, number: int) -> tuple[int, int]:
        """Where a suggestion stands among those of the goal, or those beyond it; class by class, within its class."""
        if order == "wrong":
            return int(self._position[order][number - 1]) + 1, int(self.suggestions.wrong.sum())
        if order != "class":
            place, asked = int(self._position[order][number - 1]) + 1, int(self.goal.sum())
            return (place, asked) if self.goal[number - 1] else (place - asked, len(self) - asked)
        alike = self.suggestions.columns == self.suggestions.columns[number - 1]
        return int(alike[:number].sum()), int(alike.sum())

    def neighbour(self, order: Order, number: int, step: int) -> int | None:
        """The suggestion before (-1) or after (1) another one, answered or not."""
        position, last = int(self._position[order][number - 1]) + step, len(self)
        if order == "wrong":
            last = int(self.suggestions.wrong.sum())
        return int(self._order[order][position]) + 1 if 0 <= position < last else None

    def soon(self) -> tuple[int, Interval]:
        """How many answers come next, `SOON` at most, and the share of them that changes a label, by those given."""
        coming, told = np.flatnonzero(self.open)[:SOON], np.fromiter(self._right, np.intp)
        if len(coming) == 0:
            return 0, Interval(0.0, 0.0, 1.0)
        logits = logit(np.clip(self.suggestions.probability, 1e-6, 1 - 1e-6))
        right = np.fromiter(self._right.values(), bool)
        correction = Correction.fit(logits[told], right, np.ones(len(told)))
        return len(coming), correction.share(expit(correction(logits[coming])))

    def waiting(self, label: str, suggested: int, likely: bool, *, most: int, who: str = "") -> list[Cell]:
        """The most probable open suggestions of one kind; those before another person only when there are no others."""
        chosen = self._kinds == _kind(self.table.classes.index(label), suggested, likely)
        free = np.flatnonzero(chosen & self._free(who))
        indices = free if len(free) else np.flatnonzero(chosen & self.open)
        return [self.suggestion(int(index) + 1) for index in indices[:most]]

    def kinds(self) -> list[Kind]:
        """The kinds there are: likely ones first, then by class, labels to add before labels to remove."""
        numbers = 4 * len(self.table.classes)
        total, open = (np.bincount(chosen, minlength=numbers) for chosen in (self._kinds, self._kinds[self.open]))
        return [
            Kind(label, suggested, likely, int(total[kind]), int(open[kind]))
            for likely in (True, False)
            for column, label in enumerate(self.table.classes)
            for suggested in (POSITIVE, NEGATIVE)
            if total[kind := _kind(column, suggested, likely)]
        ]

    def next_kind(self, label: str, suggested: int, likely: bool) -> Kind | None:
        """The kind to go on with after another one: if possible with likely suggestions, and of the same class."""
        kinds = self.kinds()
        here = next((place for place, kind in enumerate(kinds) if kind[:3] == (label, suggested, likely)), -1)
        waiting = (kind for kind in kinds[here + 1 :] + kinds[: here + 1] if kind.open)
        return min(waiting, key=lambda kind: (not kind.likely, kind.label != label), default=None)

    # People

    def complete(self, row: int, *, seen: int, who: str) -> list[Entry]:
        """Say that an image shows what it is known to show and nothing else, as one action.

        Answers every label that has none: yes if the dataset has it, else no. What others said after the version `seen`
        stays, and is returned where it is otherwise.
        """
        answers = [
            Answer(cell.file, cell.label, "yes" if cell.observed == POSITIVE else "no", min(cell.version, seen))
            for cell in self.cells(row)
            if cell.answer is None or cell.version > seen
        ]
        return self.record(answers, who=who)

    def add_class(self, name: str, *, who: str) -> None:
        self.store.add_class(name, who=who)
        self.refresh()

    def alike(self) -> list[tuple[str, str]]:
        """Classes of a project that may be one, by their names, with nothing said of them; the larger one first."""
        record = self._project.record() if self._project else None
        if record is None or not self._near:
            return []
        said = {_pair(*each.split("=")) for each in names_in(record.reading.get("same")) or []}
        said |= {_pair(*each) for each in record.different}
        return [pair for pair in self._near if _pair(*pair) not in said]

    def merge(self, other: str, name: str) -> None:
        """Take a class for another one from the next run on, whose name also answers of before get."""
        if self._project is None or not isinstance(self.store, ImageAnswers):
            raise ReviewError("only a project keeps which classes are one; onepair start makes it")
        with locked(self._project.path / ".lock"):
            record = self._project.record() or ProjectRecord(source="")
            same = with_same(record.reading.get("same"), [f"{other}={name}"])
            reading = {**record.reading, **({"same": same} if same else {})}
            self.store.recognise({}, {other: name}, {})
            self._project.write(record.model_copy(update={"reading": reading}))

    def keep_apart(self, one: str, other: str) -> None:
        """Store in the project that two classes with names much alike are two."""
        if self._project is None:
            raise ReviewError("only a project keeps which classes are two; onepair start makes it")
        with locked(self._project.path / ".lock"):
            self._project.keep_apart([(one, other)])

    @cached_property
    def _project(self) -> Project | None:
        return project_of(self.run.path)

    @cached_property
    def _near(self) -> list[tuple[str, str]]:
        classes = [name for name in self.table.classes if not set("=,;") & set(name)]
        number = dict(zip(self.table.classes, self.run.known.count(POSITIVE).tolist(), strict=True))
        near = near_names(classes) if len(classes) <= MOST_CLASSES else []
        return [(one, other) if number[one] >= number[other] else (other, one) for one, other in near]

    def shown_by(self, label: str) -> int:
        """How many images people have given a class."""
        with self._lock:
            return sum(name == label and entry.answer == "yes" for (_, name), entry in self._entry_of.items())

    def answers(self) -> Counter[Reply]:
        """How often the suggestions were answered in each way."""
        return Counter(entry.answer for _, entry in self._answered() if entry.answer is not None)

    def first_skipped(self) -> int | None:
        """The number of the most probable suggestion that somebody was not sure about."""
        return min((number for number, entry in self._answered() if entry.answer == "skip"), default=None)

    def _answered(self) -> list[tuple[int, Entry]]:
        with self._lock:
            entries = [(self._suggestion_of.get(cell), entry) for cell, entry in self._entry_of.items()]
        return [(index + 1, entry) for index, entry in entries if index is not None]

    def still_missing(self, estimated: Interval) -> Interval:
        """How many labels are probably still missing, of those that `onepair find` estimated before any was answered.

        What is left of the suggestions, those that nobody was sure about included, and what was too unlikely to be
        suggested at all.
        """
        missing = np.where(self.suggestions.suggested == POSITIVE, self.suggestions.probability, 0)
        unsure = [number - 1 for number, entry in self._answered() if entry.answer == "skip"]
        left = self.open.copy()
        left[unsure] = True
        suggested, open_ = float(missing.sum()), float(missing[left].sum())
        return Interval(*(max(each - suggested, 0.0) + open_ for each in estimated))


def _kind(column: Any, suggested: Any, likely: Any) -> Any:
    """A number for every kind of suggestions."""
    return 4 * column + 2 * likely + suggested


def _pair(one: str, other: str) -> tuple[str, str]:
    return min(one, other), max(one, other)


def _first(chosen: NDArray[np.bool_]) -> int | None:
    return int(chosen.argmax()) + 1 if chosen.any() else None
