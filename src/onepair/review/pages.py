"""What each page shows."""

import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined

from onepair import words
from onepair.errors import DataError, UserError
from onepair.labels import POSITIVE, UNKNOWN
from onepair.review.answers import Entry, NewClass
from onepair.review.audit_session import AuditSession
from onepair.review.before_after import BeforeAfter, compare
from onepair.review.pictures import Frame, Passage, Pictures
from onepair.review.queue import Order, estimated_missing
from onepair.review.retraining import Retraining
from onepair.review.session import Kind, ReviewSession
from onepair.runs.finished import FinishedRun


def address(path: str, **query: object) -> str:
    """
    >>> address("/grid", label="cat & dog")
    '/grid?label=cat+%26+dog'
    """
    return f"{path}?{urlencode(query)}" if query else path


class Renderer:
    """Fills templates in; `facts` are known to all of them."""

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
        self._environment.filters.update(
            percent=words.probability,
            points=words.points,
            number=words.number,
            time_left=words.time_left,
            ago=words.ago,
        )
        texts = pictures.table.ids and pictures.table.texts is not None
        self._environment.globals.update(
            address=address, POSITIVE=POSITIVE, UNKNOWN=UNKNOWN, thing="text" if texts else "image", **facts
        )

    def __call__(self, template: str, facts: Mapping[str, Any]) -> str:
        return self._environment.get_template(template).render(facts)

    def frame(self, row: int) -> Frame | Passage | str:
        """The frame of an image, the text in its place, or the sentence that says why it cannot be shown."""
        try:
            return self.pictures.passage(row) or self.pictures.frame(row)
        except DataError as error:
            return str(error)

    def image(self, kind: str, row: int) -> list[str]:
        """The address of an image, if it can be shown."""
        frame = self.frame(row)
        return [address(f"/{kind}/{row}", v=frame.version)] if isinstance(frame, Frame) else []


GRID = 24  # thumbnails on a page


def grid_address(label: str, suggested: int | None, likely: bool) -> str:
    return address("/grid", label=label, suggested=suggested, likely=int(likely))


class Pages:
    """HTML of every page, for one reviewer at a time."""

    def __init__(
        self, session: ReviewSession, pictures: Pictures, retraining: Retraining, *, static: Mapping[str, str]
    ) -> None:
        """`static` has the address of each static file."""
        self.session, self._estimated = session, estimated_missing(session.run)
        self._retraining = retraining
        self._compared: dict[Path, BeforeAfter] = {}  # by the run after
        # Heat maps are kept for good by the version `started`: others may be there after a restart.
        started = secrets.token_hex(4)
        self._render = Renderer(
            pictures, run=session.run.path, started=started, static=static, grid_address=grid_address
        )

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
            frame=self._render.frame(cell.row),
            labelled=[each for each in others if not each.number and (each.shown or each.answer)],
            suggested=sorted((each for each in others if each.number), key=lambda each: each.number or 0),
            order=order,
            place=place,
            places=places,
            before=session.neighbour(order, number, -1),
            after=session.neighbour(order, number, 1),
            has_maps=session.suggestions.maps is not None,
            ahead=[] if coming is None else self._render.image("image", session.suggestion(coming).row),
            clash=clash,
        )

    def grid(self, who: str, label: str, suggested: int, likely: bool, *, clashes: int = 0) -> str:
        """Many images with the same suggestion; `clashes` counts the answers on the last page that were not stored."""
        waiting = self.session.waiting(label, suggested, likely, most=2 * GRID, who=who)
        now, ahead = waiting[:GRID], waiting[GRID:]
        self.session.hold([cell.number for cell in now if cell.number], who=who)
        kinds = self.session.kinds()
        here = next((place for place, kind in enumerate(kinds) if kind[:3] == (label, suggested, likely)), 0)
        return self._page(
            "grid.html.j2",
            who,
            here=grid_address(label, suggested, likely),
            label=label,
            suggested=suggested,
            likely=likely,
            rest="yes" if likely == (suggested == POSITIVE) else "no",  # what most of them are
            kinds=[kind for kind in kinds if kind.label == label],
            cells=[(cell, self._render.frame(cell.row)) for cell in now],
            coming=next((kind for kind in kinds[here + 1 :] + kinds[:here] if kind.open), None),
            ahead=[image for cell in ahead for image in self._render.image("thumbnail", cell.row)],
            clashes=clashes,
        )

    def done(self, who: str) -> str:
        agreement = self.session.opinions.agreement()
        return self._page(
            "done.html.j2",
            who,
            here="/done",
            answers=self.session.answers(),
            still_missing=None if self._estimated is None else round(self.session.still_missing(self._estimated)),
            agreement=agreement,
            second=int(self.session.second(who).sum()),
            disputed=[
                cell for place in agreement.open if (cell := self.session.find(*place)) is not None and cell.number
            ],
            skipped=self.session.first_skipped(),
            coming=self.session.next_open("probability", who=who),
        )

    def classes(self, who: str) -> str:
        """Every class with suggestions and its kinds: what has most left of all that is to be answered comes first.

        Then come classes that have only suggestions beyond it, and those that are answered.
        """
        kinds_of: dict[str, list[Kind]] = {label: [] for label in self.session.table.classes}
        for kind in self.session.kinds():
            kinds_of[kind.label].append(kind)
        some_likely = bool(self.session.likely.any())
        groups: dict[str, list[tuple[str, int, int, list[Kind]]]] = {
            "Still open": [],
            "Less likely": [],
            "Answered": [],
        }
        for label, kinds in kinds_of.items():
            asked = [kind for kind in kinds if kind.likely or not some_likely]
            open, total = (sum(getattr(kind, what) for kind in asked or kinds) for what in ("open", "total"))
            if kinds:
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
        now, comparison, failure = self._retraining.progress(), None, ""
        if now is not None and now.state == "done":
            try:
                comparison = self._compare(now.run)
            except UserError as error:
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
            photos=[(photo, self._render.frame(photo.row)) for photo in comparison.photos] if comparison else [],
            planned=self._retraining.plan(),
            answered=len(answers),
            answers_since=sum(now is not None and entry.id > now.newest for entry in answers),
        )

    def _compare(self, after: Path) -> BeforeAfter:
        if after not in self._compared:
            self._compared[after] = compare(self.session.run, FinishedRun(after))
        return self._compared[after]

    def help(self, who: str) -> str:
        return self._page("help.html.j2", who, here="/help")

    def name(self, who: str) -> str:
        return self._page("name.html.j2", who, here="/name")

    def _page(self, template: str, who: str, **facts: Any) -> str:
        common = {
            "base": "page.html.j2",
            "who": who,
            "order": "probability",
            "total": int(self.session.goal.sum()),
            "open": int((self.session.open & self.session.goal).sum()),
            "unlikely": int((self.session.open & ~self.session.goal).sum()),
            "seconds_left": self.session.seconds_left(who=who),
            "last": self.session.store.last_action(who=who),
            "ahead": [],
            "training": self._retraining.progress(),
        }
        return self._render(template, {**common, **facts})


MANY = 60  # classes from which on their names need more room than the photo


class AuditPages:
    """HTML of every page, for one person at a time."""

    def __init__(self, session: AuditSession, pictures: Pictures, *, static: Mapping[str, str]) -> None:
        """`static` has the address of each static file."""
        self.session = session
        self._render = Renderer(
            pictures,
            run=session.run.path,
            split=session.sample.split,
            population=session.sample.population,
            many=len(session.table.classes) >= MANY,
            static=static,
        )

    def image(self, who: str, number: int, *, clashes: Sequence[Entry] = ()) -> str:
        """One image and all labels; `clashes` are what others said in the meantime."""
        session = self.session
        session.hold(number, who=who)
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
            frame=self._render.frame(row),
            likely=likely,
            others=others,
            complete=bool(session.complete[number - 1]),
            seen=session.version(number),
            ahead=[] if coming is None else self._render.image("image", int(session.rows[coming - 1])),
            clashes=clashes,
        )

    def done(self, who: str) -> str:
        return self._page("audited.html.j2", who, here="/done")

    def help(self, who: str) -> str:
        return self._page("audit_help.html.j2", who, here="/help")

    def name(self, who: str) -> str:
        return self._page("name.html.j2", who, here="/name")

    def _page(self, template: str, who: str, **facts: Any) -> str:
        common = {
            "base": "audit_page.html.j2",
            "who": who,
            "total": len(self.session),
            "finished": int(self.session.complete.sum()),
            "seconds_left": self.session.seconds_left(who=who),
            "last": self.session.last_file(who=who),
            "ahead": [],
        }
        return self._render(template, {**common, **facts})
