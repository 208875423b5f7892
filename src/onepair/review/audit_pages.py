"""What each page of an audit shows."""

from collections.abc import Mapping, Sequence
from typing import Any

from onepair.review.answers import Entry
from onepair.review.auditing import AuditDesk
from onepair.review.pictures import Pictures
from onepair.review.rendering import Renderer

MANY = 60  # classes from which on their names need more room than the photo


class AuditPages:
    """HTML of every page, for one person at a time."""

    def __init__(self, desk: AuditDesk, pictures: Pictures, *, static: Mapping[str, str]) -> None:
        """`static` has the address of each static file."""
        self.desk = desk
        self._render = Renderer(
            pictures,
            run=desk.run.path,
            split=desk.sample.split,
            population=desk.sample.population,
            many=len(desk.table.classes) >= MANY,
            static=static,
        )

    def image(self, who: str, number: int, *, clashes: Sequence[Entry] = ()) -> str:
        """One image and all labels; `clashes` are what others said in the meantime."""
        desk = self.desk
        desk.hold(number, who=who)
        likely, others = desk.toggles(number)
        coming = desk.next_open(after=number, who=who)
        row = int(desk.rows[number - 1])
        return self._page(
            "audit.html.j2",
            who,
            here=f"/image-{number}",
            number=number,
            file=desk.sample.files[number - 1],
            row=row,
            frame=self._render.frame(row),
            likely=likely,
            others=others,
            complete=bool(desk.complete[number - 1]),
            seen=desk.version(number),
            ahead=[] if coming is None else self._render.image("image", int(desk.rows[coming - 1])),
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
            "total": len(self.desk),
            "finished": int(self.desk.complete.sum()),
            "seconds_left": self.desk.seconds_left(who=who),
            "last": self.desk.last_file(who=who),
            "ahead": [],
        }
        return self._render(template, {**common, **facts})
