"""Templates, and the images that they show."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined

from onepair.data.problems import DataError
from onepair.labels import POSITIVE, UNKNOWN
from onepair.report import wording
from onepair.review.pictures import Frame, Passage, Pictures


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
            percent=wording.probability,
            points=wording.points,
            number=wording.number,
            time_left=wording.time_left,
            ago=wording.ago,
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
