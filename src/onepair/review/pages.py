"""What each page shows."""

import secrets
from collections.abc import Mapping
from statistics import fmean
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined

from onepair.data.problems import DataError
from onepair.labels import POSITIVE, UNKNOWN
from onepair.review import wording
from onepair.review.desk import Desk
from onepair.review.pictures import Frame, Pictures
from onepair.review.store import Entry
from onepair.review.suggestions import Order

GRID = 24  # thumbnails on a page


def address(path: str, **query: object) -> str:
    """
    >>> address("/grid", label="cat & dog")
    '/grid?label=cat+%26+dog'
    """
    return f"{path}?{urlencode(query)}" if query else path


class Pages:
    """HTML of every page, for one reviewer at a time."""

    def __init__(self, desk: Desk, pictures: Pictures, *, static: Mapping[str, str]) -> None:
        """`static` has the address of each static file."""
        self.desk, self.pictures = desk, pictures
        self._environment = Environment(
            loader=PackageLoader("onepair.review"),
            autoescape=True,
            undefined=StrictUndefined,
            auto_reload=False,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters.update(
            percent=wording.percent, number=wording.number, time_left=wording.time_left, ago=wording.ago
        )
        self._environment.globals.update(
            run=desk.run.folder,
            started=secrets.token_hex(4),  # the version of all heat maps: others may be there after a restart
            static=static,
            address=address,
            POSITIVE=POSITIVE,
            UNKNOWN=UNKNOWN,
        )

    def suggestion(self, who: str, number: int, order: Order, *, clash: Entry | None = None) -> str:
        """One image and the question about it; `clash` is what another person said in the meantime."""
        desk = self.desk
        desk.hold([number], who=who)
        cell, coming = desk.suggestion(number), desk.next_open(order, after=number, who=who)
        others = [each for each in desk.cells(cell.row) if each.label != cell.label]
        place, places = desk.place(order, number)
        return self._page(
            "suggestion.html.j2",
            who,
            here=address(f"/suggestion/{number}", order=order),
            cell=cell,
            frame=self._frame(cell.row),
            labelled=[each for each in others if not each.number and (each.shown or each.answer)],
            suggested=sorted((each for each in others if each.number), key=lambda each: each.number or 0),
            order=order,
            place=place,
            places=places,
            before=desk.neighbour(order, number, -1),
            after=desk.neighbour(order, number, 1),
            has_maps=desk.suggestions.maps is not None,
            ahead=[] if coming is None else self._image("image", desk.suggestion(coming).row),
            clash=clash,
        )

    def grid(self, who: str, label: str, suggested: int, *, clashes: int = 0) -> str:
        """Many images with the same suggestion; `clashes` counts the answers on the last page that were not stored."""
        waiting = self.desk.waiting(label, suggested, most=2 * GRID, who=who)
        now, ahead = waiting[:GRID], waiting[GRID:]
        self.desk.hold([cell.number for cell in now if cell.number], who=who)
        likely = fmean(cell.probability or 0 for cell in now) >= 0.5 if now else True
        classes = self.desk.classes()
        here = next((place for place, each in enumerate(classes) if each.label == label), 0)
        coming = [each for each in classes[here:] + classes[:here] if each.open and each.label != label]
        return self._page(
            "grid.html.j2",
            who,
            here=address("/grid", label=label, suggested=suggested),
            label=label,
            suggested=suggested,
            rest="yes" if likely == (suggested == POSITIVE) else "no",  # what most of them are
            kinds=[each for each in classes if each.label == label],
            cells=[(cell, self._frame(cell.row)) for cell in now],
            coming=coming[0] if coming else None,
            ahead=[image for cell in ahead for image in self._image("thumbnail", cell.row)],
            clashes=clashes,
        )

    def done(self, who: str) -> str:
        answers, skipped = self.desk.answers(), self.desk.first_skipped()
        return self._page("done.html.j2", who, here="/done", answers=answers, skipped=skipped)

    def classes(self, who: str) -> str:
        return self._page("classes.html.j2", who, here="/classes", classes=self.desk.classes())

    def labels(self, who: str, number: int, order: Order) -> str:
        """The labels that can be added to the image of a suggestion."""
        cell = self.desk.suggestion(number)
        cells = [each for each in self.desk.cells(cell.row) if not each.shown and each.label != cell.label]
        here = address(f"/suggestion/{number}/labels", order=order)
        return self._page("labels.html.j2", who, here=here, cell=cell, cells=cells, order=order)

    def help(self, who: str) -> str:
        return self._page("help.html.j2", who, here="/help")

    def name(self, who: str) -> str:
        return self._page("name.html.j2", who, here="/name")

    def _page(self, template: str, who: str, **facts: Any) -> str:
        common = {
            "who": who,
            "order": "probability",
            "total": len(self.desk),
            "open": int(self.desk.open.sum()),
            "seconds_left": self.desk.seconds_left(who=who),
            "last": self.desk.store.last_action(who=who),
            "ahead": [],
        }
        return self._environment.get_template(template).render({**common, **facts})

    def _frame(self, row: int) -> Frame | str:
        """The frame of an image, or the sentence that says why it cannot be shown."""
        try:
            return self.pictures.frame(row)
        except DataError as error:
            return str(error)

    def _image(self, kind: str, row: int) -> list[str]:
        """The address of an image, if it can be shown."""
        frame = self._frame(row)
        return [] if isinstance(frame, str) else [address(f"/{kind}/{row}", v=frame.version)]
