"""What each page shows."""

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined

from onepair import words
from onepair.errors import DataError, OnepairError
from onepair.labels import POSITIVE, UNKNOWN
from onepair.review.answers import Entry, NewClass
from onepair.review.audit_session import AuditSession
from onepair.review.before_after import BeforeAfter, compare
from onepair.review.pictures import Frame, Passage, Pictures
from onepair.review.queue import Order, estimated_missing
from onepair.review.session import Kind, ReviewSession
from onepair.runs.finished import FinishedRun

GRID = 24  # thumbnails on a page
MANY = 60  # classes from which on their names need more room than the photo


def address(path: str, **query: object) -> str:
    """
    >>> address("/grid", label="cat & dog")
    '/grid?label=cat+%26+dog'
    """
    return f"{path}?{urlencode(query)}" if query else path


def grid_address(label: str, suggested: int | None, likely: bool) -> str:
    return address("/grid", label=label, suggested=suggested, likely=int(likely))


class Pages:
    """HTML of the pages that a review and an audit share, for one person at a time; `facts` are known to all."""

    base: ClassVar[str]  # the template of the frame around every page

    def __init__(self, pictures: Pictures, **facts: Any) -> None:
        self.pictures = pictures
        self._environment = Environment(
            loader=PackageLoader("onepair.review"),
            autoescape=True,
            undefined=StrictUndefined,
            auto_reload=False,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        filters = {name: getattr(words, name) for name in ("points", "number", "time_left", "ago")}
        self._environment.filters.update(filters, percent=words.probability)
        texts = pictures.table.ids and pictures.table.texts is not None
        self._environment.globals.update(
            base=self.base,
            address=address,
            grid_address=grid_address,
            POSITIVE=POSITIVE,
            UNKNOWN=UNKNOWN,
            thing="text" if texts else "image",
            **facts,
        )

    def done(self, who: str) -> str:
        """What is said once everything is answered."""
        raise NotImplementedError

    def help(self, who: str) -> str:
        return self._page("help.html.j2", who, here="/help")

    def name(self, who: str) -> str:
        return self._page("name.html.j2", who, here="/name")

    def _common(self, who: str) -> dict[str, Any]:
        """What the frame shows, for `who`."""
        raise NotImplementedError

    def _page(self, template: str, who: str, **facts: Any) -> str:
        known = {"who": who, "ahead": [], **self._common(who), **facts}
        return self._environment.get_template(template).render(known)

    def _frame(self, row: int) -> Frame | Passage | str:
        """The frame of an image, the text in its place, or the sentence that says why it cannot be shown."""
        try:
            return self.pictures.passage(row) or self.pictures.frame(row)
        except DataError as error:
            return str(error)

    def _image(self, kind: str, row: int) -> list[str]:
        """The address of an image, if it can be shown."""
        frame = self._frame(row)
        return [address(f"/{kind}/{row}", v=frame.version)] if isinstance(frame, Frame) else []


class ReviewPages(Pages):
    base = "page.html.j2"

    def __init__(self, session: ReviewSession, pictures: Pictures) -> None:
        # Heat maps are kept for good by the version `started`: others may be there after a restart.
        super().__init__(pictures, run=session.run.path, started=secrets.token_hex(4))
        self.session, self._estimated = session, estimated_missing(session.run)
        self._compared: dict[Path, BeforeAfter] = {}  # by the run after

    def suggestion(self, who: str, number: int, order: Order, *, clash: Entry | None = None) -> str:
        """One image and the question about it; `clash` is what another person said in the meantime."""
        session = self.session
        session.hold([number], who=who)
        cell, coming = session.suggestion(number), session.next_open(order, after=number, who=who)
        others = [each for each in session.cells(cell.row) if each.label != cell.label]
        place, places = session.place(order, number)
        return self._page(
            "suggestion.html.j2",
            who,
            here=address(f"/suggestion/{number}", order=order),
            cell=cell,
            version=session.version(cell.row),
            blind=order == "second" and bool(session.second(who)[number - 1]),
            frame=self._frame(cell.row),
            labelled=[each for each in others if not each.number and (each.shown or each.answer)],
            suggested=sorted((each for each in others if each.number), key=lambda each: each.number or 0),
            order=order,
            place=place,
            places=places,
            before=session.neighbour(order, number, -1),
            after=session.neighbour(order, number, 1),
            has_maps=session.suggestions.maps is not None,
            ahead=[] if coming is None else self._image("image", session.suggestion(coming).row),
            clash=clash,
        )

    def grid(self, who: str, label: str, suggested: int, likely: bool, *, clashes: int = 0) -> str:
        """Many images with the same suggestion; `clashes` counts the answers on the last page that were not stored."""
        waiting = self.session.waiting(label, suggested, likely, most=2 * GRID, who=who)
        now, ahead = waiting[:GRID], waiting[GRID:]
        self.session.hold([cell.number for cell in now if cell.number], who=who)
        return self._page(
            "grid.html.j2",
            who,
            here=grid_address(label, suggested, likely),
            label=label,
            suggested=suggested,
            likely=likely,
            rest="yes" if likely == (suggested == POSITIVE) else "no",  # what most of them are
            kinds=[kind for kind in self.session.kinds() if kind.label == label],
            cells=[(cell, self._frame(cell.row)) for cell in now],
            coming=self.session.next_kind(label, suggested, likely),
            ahead=[image for cell in ahead for image in self._image("thumbnail", cell.row)],
            clashes=clashes,
        )

    def done(self, who: str) -> str:
        session, agreement = self.session, self.session.opinions.agreement()
        return self._page(
            "done.html.j2",
            who,
            here="/done",
            answers=session.answers(),
            still_missing=None if self._estimated is None else round(session.still_missing(self._estimated)),
            agreement=agreement,
            second=int(session.second(who).sum()),
            disputed=[cell for place in agreement.open if (cell := session.find(*place)) is not None and cell.number],
            skipped=session.first_skipped(),
            coming=session.next_open("probability", who=who),
        )

    def classes(self, who: str) -> str:
        """Every class with suggestions and its kinds: what has most left of all that is to be answered comes first.

        Then come classes that have only suggestions beyond it, and those that are answered.
        """
        kinds_of: dict[str, list[Kind]] = {}
        for kind in self.session.kinds():
            kinds_of.setdefault(kind.label, []).append(kind)
        some_likely = bool(self.session.likely.any())
        groups: dict[str, list[tuple[str, int, int, list[Kind]]]] = {
            "Still open": [],
            "Less likely": [],
            "Answered": [],
        }
        for label, kinds in kinds_of.items():
            asked = [kind for kind in kinds if kind.likely or not some_likely]
            open, total = (sum(getattr(kind, what) for kind in asked or kinds) for what in ("open", "total"))
            heading = "Answered" if not open else "Still open" if asked else "Less likely"
            groups[heading].append((label, open, total, kinds))
        return self._page(
            "classes.html.j2",
            who,
            here="/classes",
            groups=[(heading, sorted(found, key=lambda each: -each[1])) for heading, found in groups.items() if found],
            added=[(label, self.session.shown_by(label)) for label in self.session.added],
        )

    def asked_class(self, who: str, wanted: NewClass, number: int | None, order: Order) -> str:
        """What speaks against a class that somebody wants to add, perhaps to the image of a suggestion."""
        return self._page("asked_class.html.j2", who, here="/class", wanted=wanted, number=number, order=order)

    def labels(self, who: str, number: int, order: Order) -> str:
        """The labels that can be added to the image of a suggestion."""
        cell = self.session.suggestion(number)
        cells = [each for each in self.session.cells(cell.row) if not each.shown and each.label != cell.label]
        here = address(f"/suggestion/{number}/labels", order=order)
        return self._page("labels.html.j2", who, here=here, cell=cell, cells=cells, order=order)

    def training(self, who: str) -> str:
        """Training again: what it would do, how far it is, or what it has changed."""
        now, comparison, failure = self.session.retraining.progress(), None, ""
        if now is not None and now.state == "done":
            try:
                if now.run not in self._compared:
                    self._compared[now.run] = compare(self.session.run, FinishedRun(now.run))
                comparison = self._compared[now.run]
            except OnepairError as error:
                failure = str(error)
        answers = [entry for entry in self.session.store.entries() if entry.answer in ("yes", "no")]
        return self._page(
            "training.html.j2",
            who,
            here="/training",
            now=now,
            state=None if now is None else now.state,
            comparison=comparison,
            failure=failure,
            photos=[(photo, self._frame(photo.row)) for photo in comparison.photos] if comparison else [],
            planned=self.session.retraining.plan(),
            answered=len(answers),
            answers_since=sum(now is not None and entry.id > now.newest for entry in answers),
        )

    def _common(self, who: str) -> dict[str, Any]:
        session = self.session
        return {
            "order": "probability",
            "total": int(session.goal.sum()),
            "open": session.left,
            "unlikely": int((session.open & ~session.goal).sum()),
            "seconds_left": session.seconds_left(who=who),
            "last": session.store.last_action(who=who),
            "training": session.retraining.progress(),
        }


class AuditPages(Pages):
    base = "audit_page.html.j2"

    def __init__(self, session: AuditSession, pictures: Pictures) -> None:
        sample, many = session.sample, len(session.table.classes) >= MANY
        super().__init__(pictures, run=session.run.path, split=sample.split, population=sample.population, many=many)
        self.session = session

    def image(self, who: str, number: int, *, clashes: Sequence[Entry] = ()) -> str:
        """One image and all labels; `clashes` are what others said in the meantime."""
        session = self.session
        session.hold([number], who=who)
        likely, others = session.toggles(number)
        coming = session.next_open(after=number, who=who)
        row = int(session.rows[number - 1])
        return self._page(
            "audit.html.j2",
            who,
            here=f"/image-{number}",
            number=number,
            file=session.sample.files[number - 1],
            row=row,
            frame=self._frame(row),
            likely=likely,
            others=others,
            complete=bool(session.complete[number - 1]),
            seen=session.version(number),
            ahead=[] if coming is None else self._image("image", int(session.rows[coming - 1])),
            clashes=clashes,
        )

    def done(self, who: str) -> str:
        return self._page("audited.html.j2", who, here="/done")

    def _common(self, who: str) -> dict[str, Any]:
        session = self.session
        return {
            "total": len(session),
            "finished": len(session) - session.left,
            "seconds_left": session.seconds_left(who=who),
            "last": session.last_file(who=who),
        }
