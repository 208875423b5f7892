"""What each page shows."""

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlencode

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined

from onepair import words
from onepair.errors import DataError, OnepairError
from onepair.label_matrix import LabelMatrix
from onepair.labels import POSITIVE, UNKNOWN
from onepair.remote import is_remote
from onepair.review import language
from onepair.review.answers import Entry, NewClass
from onepair.review.audit_session import AuditSession
from onepair.review.completion import own_table
from onepair.review.photos import Filter, Frame, Passage, PhotoList, Pictures
from onepair.review.queue import Order, estimated_missing
from onepair.review.retraining import BeforeAfter, compare, runs_beside
from onepair.review.session import Kind, ReviewSession
from onepair.runs.finished import FinishedRun
from onepair.runs.project import project_of

GRID = 24  # thumbnails on a page of the grid
PHOTOS = 48  # and of the list of all images
MANY = 60  # classes from which on their names need more room than the photo


def address(path: str, **query: object) -> str:
    """
    >>> address("/grid", label="cat & dog")
    '/grid?label=cat+%26+dog'
    """
    return f"{path}?{urlencode(query)}" if query else path


_FIELDS = ("label", "without", "folder", "by", "only", "text")  # of a `Filter`, in the address


def grid_address(label: str, suggested: int | None, likely: bool) -> str:
    return address("/grid", label=label, suggested=suggested, likely=int(likely))


class Pages:
    """HTML of the pages that a review and an audit share, for one person at a time; `facts` are known to all."""

    base: ClassVar[str]  # the template of the frame around every page

    def __init__(self, run: FinishedRun, pictures: Pictures, **facts: Any) -> None:
        self.run, self.pictures = run, pictures
        self._environment = Environment(
            loader=PackageLoader("onepair.review"),
            autoescape=True,
            undefined=StrictUndefined,
            auto_reload=False,
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.i18n"],
        )
        self._environment.install_gettext_callables(  # type: ignore[attr-defined]
            language.gettext, language.ngettext, newstyle=True
        )
        filters = {name: getattr(language, name) for name in ("points", "number", "size", "time_left", "ago")}
        self._environment.filters.update(filters, percent=words.probability)
        texts = bool(pictures.table.ids and pictures.table.texts is not None)
        self._environment.globals.update(
            base=self.base,
            address=address,
            grid_address=grid_address,
            POSITIVE=POSITIVE,
            UNKNOWN=UNKNOWN,
            texts=texts,
            run=run.path.name,
            **facts,
        )

    def done(self, who: str) -> str:
        """What is said once everything is answered."""
        raise NotImplementedError

    def downloads(self, who: str) -> str:
        own = own_table(self.run)
        return self._page("download.html.j2", who, here="/download", own=own and own.name, files=self._files)

    @property
    def _files(self) -> bool:
        """Whether the images are files of this machine, which keywords can be written beside."""
        table = self.pictures.table
        return table.pixels is None and not table.ids and not is_remote(table.root)

    def help(self, who: str) -> str:
        return self._page("help.html.j2", who, here="/help")

    def name(self, who: str) -> str:
        return self._page("name.html.j2", who, here="/name")

    def _common(self, who: str) -> dict[str, Any]:
        """What the frame shows, for `who`."""
        raise NotImplementedError

    def _page(self, template: str, who: str, **facts: Any) -> str:
        known = {"who": who, "ahead": [], "tab": "", "language": language.language.get(), **self._common(who), **facts}
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
        super().__init__(
            session.run, pictures, started=secrets.token_hex(4), has_maps=session.suggestions.maps is not None
        )
        self.session, self._estimated, self.list = session, estimated_missing(session.run), PhotoList(session)
        self._compared: dict[Path, BeforeAfter] = {}  # by the run after

    def suggestion(self, who: str, number: int, order: Order, *, clash: Entry | None = None) -> str:
        """One image and the question about it; `clash` is what another person said in the meantime."""
        session = self.session
        session.hold([number], who=who)
        cell, coming = session.suggestion(number), session.next_open(order, after=number, who=who)
        place, places = session.place(order, number)
        return self._page(
            "suggestion.html.j2",
            who,
            here=address(f"/suggestion/{number}", order=order),
            tab="wrong" if order == "wrong" else "questions",
            cell=cell,
            blind=order == "second" and bool(session.second(who)[number - 1]),
            order=order,
            place=place,
            places=places,
            soon=session.soon(),
            before=session.neighbour(order, number, -1),
            after=session.neighbour(order, number, 1),
            ahead=[] if coming is None else self._image("image", session.suggestion(coming).row),
            clash=clash,
            alike=[pair for pair in session.alike() if cell.label in pair][:1],
            examples=[(row, self._frame(row)) for row in session.examples(cell.label, beside=cell.row)],
            burst=[(each.row, each.file, self._frame(each.row)) for each in session.burst(cell)],
            **self._about(cell.row, apart=cell.label),
        )

    def photo(self, who: str, row: int, *, clash: Entry | None = None) -> str:
        """One image and all its labels, with no question."""
        return self._page(
            "photo.html.j2", who, here=f"/photo/{row}", tab="photos", row=row, clash=clash, **self._about(row)
        )

    def _about(self, row: int, *, apart: str | None = None) -> dict[str, Any]:
        """What there is to show and to say of an image, without one of its labels."""
        session, file = self.session, self.session.table.files[row]
        others = [each for each in session.cells(row) if each.label != apart]
        return {
            "file": file,
            "version": session.version(row),
            "frame": self._frame(row),
            "labelled": [each for each in others if not each.number and (each.shown or each.answer)],
            "suggested": sorted((each for each in others if each.number), key=lambda each: each.number or 0),
            "unlabelled": [each for each in others if not each.number and not each.shown and not each.answer],
            "facts": self.list.facts.get(file, ()),
        }

    def photos(self, who: str, wanted: Filter, page: int) -> str:
        """The images that fit, some at a time."""
        rows = self.list.find(wanted)
        last = max(1, -(-len(rows) // PHOTOS))
        page = min(page, last)
        labels = self.session.labels()
        shown = rows[PHOTOS * (page - 1) : PHOTOS * page].tolist()
        classes = self.session.classes
        fields = {name: value for name, value in zip(_FIELDS, wanted, strict=True) if value}
        return self._page(
            "photos.html.j2",
            who,
            here=address("/photos", **fields, **({"page": page} if page > 1 else {})),
            tab="photos",
            wanted=wanted,
            fields=fields,
            found=len(rows),
            page=page,
            last_page=last,
            photos=[
                (row, self.session.table.files[row], self._frame(row), [classes[i] for i in _positives(labels, row)])
                for row in shown
            ],
            ahead=[
                each
                for row in rows[PHOTOS * page : PHOTOS * (page + 1)].tolist()
                for each in self._image("thumbnail", row)
            ],
            classes=sorted(classes, key=str.lower),
            folders=self.list.folders,
            people=self.list.people,
        )

    def runs(self, who: str) -> str:
        """The runs that can be shown in place of this one."""
        return self._page(
            "runs.html.j2",
            who,
            here="/runs",
            others=[each.name for each in self._runs()],
            in_project=project_of(self.run.path) is not None,
        )

    def _runs(self) -> list[Path]:
        return runs_beside(self.session.run.path)

    def grid(self, who: str, label: str, suggested: int, likely: bool, *, clashes: int = 0) -> str:
        """Many images with the same suggestion; `clashes` counts the answers on the last page that were not stored."""
        waiting = self.session.waiting(label, suggested, likely, most=2 * GRID, who=who)
        now, ahead = waiting[:GRID], waiting[GRID:]
        self.session.hold([cell.number for cell in now if cell.number], who=who)
        return self._page(
            "grid.html.j2",
            who,
            here=grid_address(label, suggested, likely),
            tab="questions",
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
            still_missing=None if self._estimated is None else session.still_missing(self._estimated),
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
        whole = bool(self.session.goal.all())
        groups: dict[str, list[tuple[str, int, int, list[Kind]]]] = {"open": [], "unlikely": [], "answered": []}
        for label, kinds in kinds_of.items():
            asked = [kind for kind in kinds if kind.likely or whole]
            open, total = (sum(getattr(kind, what) for kind in asked or kinds) for what in ("open", "total"))
            heading = "answered" if not open else "open" if asked else "unlikely"
            groups[heading].append((label, open, total, kinds))
        return self._page(
            "classes.html.j2",
            who,
            here="/classes",
            alike=self.session.alike(),
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
            worth=next((each.precision_recall for each in self.run.results.worth.values()), None),
            failure=failure,
            photos=[(photo, self._frame(photo.row)) for photo in comparison.photos] if comparison else [],
            new_run=None if now is None else now.run.name,
            planned=self.session.retraining.plan(),
            answered=len(answers),
            answers_since=sum(now is not None and entry.id > now.newest for entry in answers),
        )

    def _common(self, who: str) -> dict[str, Any]:
        session = self.session
        return {
            "order": "probability",
            "total": int(session.goal.sum()),
            "wrong": int((session.open & session.suggestions.wrong).sum()),
            "several_runs": len(self._runs()) > 1,
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
        super().__init__(session.run, pictures, split=sample.split, population=sample.population, many=many)
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


def _positives(labels: LabelMatrix, row: int) -> list[int]:
    found: list[int] = np.flatnonzero(labels[row] == POSITIVE).tolist()
    return found
