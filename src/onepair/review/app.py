"""The web application: addresses, what is sent to them, and where they lead."""

import hashlib
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, TypeVar
from urllib.parse import quote, unquote

from fastapi import Cookie, Depends, FastAPI, Form, HTTPException, Query
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from onepair.data.problems import DataError
from onepair.labels import POSITIVE
from onepair.review.answers import Answer, Decision
from onepair.review.desk import Cell, Desk
from onepair.review.pages import GRID, Pages, address, grid_address
from onepair.review.pictures import LARGE, SMALL, Picture, Pictures, heat_map
from onepair.review.queue import Order

LONGEST_NAME = 60
FOR_GOOD = {"Cache-Control": "private, max-age=31536000, immutable"}  # for what has its version in its address

Found = TypeVar("Found")

_MEDIA_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


class _StaticFile(NamedTuple):
    content: bytes
    media_type: str
    address: str


def create_app(desk: Desk, pictures: Pictures, *, name: str | None) -> FastAPI:
    """The application; `name` is who answers until somebody says otherwise, None asks everybody first."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    static = _read_static()
    pages = Pages(desk, pictures, static={file: each.address for file, each in static.items()})

    def known_name(onepair_name: Annotated[str, Cookie()] = "") -> str:
        return _tidy(unquote(onepair_name)) or name or ""

    def reviewer(known: Annotated[str, Depends(known_name)]) -> str:
        if not known:
            raise HTTPException(HTTPStatus.SEE_OTHER, headers={"Location": "/name"})
        desk.refresh()  # who comes to read or to answer sees what others did
        return known

    Who = Annotated[str, Depends(reviewer)]  # noqa: N806 (a type)

    def cell_of(file: str, label: str) -> Cell:
        return _there(desk.find(file, label))

    def next_open(who: str, order: Order, *, after: int | None = None) -> Response:
        """On to the next open suggestion; before the unlikely ones begin, to the page that says so."""
        coming = desk.next_open(order, after=after, who=who)
        if coming is None or (not desk.goal[coming - 1] and (after is None or desk.goal[after - 1])):
            return _go("/done")
        return _go(f"/suggestion/{coming}", order=order)

    # One by one

    @app.get("/")
    def begin(who: Who, order: Order = "probability", label: str | None = None) -> Response:
        """On to the first open suggestion, of all or of a class."""
        if label is None:
            return next_open(who, order)
        first = _there(desk.first_of_class(label, who=who))
        return _go(f"/suggestion/{first}", order="class")

    @app.get("/suggestion/{number}")
    def suggestion(who: Who, number: int, order: Order = "probability") -> Response:
        _require(1 <= number <= len(desk))
        return HTMLResponse(pages.suggestion(who, number, order))

    @app.post("/answer")
    def answer(
        who: Who,
        file: Annotated[str, Form()],
        label: Annotated[str, Form()],
        seen: Annotated[int, Form()],
        number: Annotated[int, Form()],
        order: Annotated[Order, Form()],
        answer: Annotated[Answer | None, Form()] = None,
    ) -> Response:
        """Take an answer from the page of suggestion `number`, to its question or on another label of the image."""
        cell = cell_of(file, label)
        _require(1 <= number <= len(desk))
        clashes = desk.decide([Decision(file, label, answer, seen)], who=who)
        if clashes:
            page = pages.suggestion(who, cell.number or number, order, clash=clashes[0])
            return HTMLResponse(page, HTTPStatus.CONFLICT)
        if cell.number == number and answer is not None:
            return next_open(who, order, after=number)
        return _go(f"/suggestion/{number}", order=order)

    @app.post("/undo")
    def undo(who: Who, order: Annotated[Order, Form()] = "probability") -> Response:
        """Take the last answer back, and go to where it was given."""
        undone = desk.undo(who=who)
        cell = desk.find(undone[0].file, undone[0].label) if undone else None
        if cell is not None and cell.number and len(undone) > 1:
            return _go(grid_address(cell.label, cell.suggested, cell.likely))
        number = None if cell is None else cell.number or desk.first_of_image(cell.row)
        return next_open(who, order) if number is None else _go(f"/suggestion/{number}", order=order)

    @app.get("/done")
    def done(who: Who) -> Response:
        return HTMLResponse(pages.done(who))

    # Many at once

    @app.get("/grid")
    def grid(
        who: Who, label: str, suggested: Annotated[int, Query(ge=0, le=1)] = POSITIVE, likely: bool = True
    ) -> Response:
        _require(label in desk.table.classes)
        return HTMLResponse(pages.grid(who, label, suggested, likely))

    @app.post("/grid")
    def answer_grid(
        who: Who,
        label: Annotated[str, Form()],
        suggested: Annotated[int, Form(ge=0, le=1)],
        likely: Annotated[bool, Form()],
        file: Annotated[list[str], Form(max_length=GRID)],
        seen: Annotated[list[int], Form(max_length=GRID)],
        rest: Annotated[Literal["yes", "no"], Form()],
        marked: Annotated[list[str], Form()] = [],  # noqa: B006 (FastAPI copies it)
    ) -> Response:
        """Give the files of a page the answer `rest`, and the marked ones the other."""
        _require(len(file) == len(seen))
        other: Answer = "no" if rest == "yes" else "yes"
        decisions = [
            Decision(cell_of(each, label).file, label, other if each in marked else rest, version)
            for each, version in zip(file, seen, strict=True)
        ]
        clashes = desk.decide(decisions, who=who)
        if clashes:
            return HTMLResponse(pages.grid(who, label, suggested, likely, clashes=len(clashes)), HTTPStatus.CONFLICT)
        return _go(grid_address(label, suggested, likely))

    # Beside the pages: what opens in a dialog

    @app.get("/classes")
    def classes(who: Who) -> Response:
        return HTMLResponse(pages.classes(who))

    @app.get("/suggestion/{number}/labels")
    def labels(who: Who, number: int, order: Order = "probability") -> Response:
        _require(1 <= number <= len(desk))
        return HTMLResponse(pages.labels(who, number, order))

    @app.get("/help")
    def help(who: Who) -> Response:
        return HTMLResponse(pages.help(who))

    @app.get("/name")
    def ask_name(known: Annotated[str, Depends(known_name)]) -> Response:
        return HTMLResponse(pages.name(known))

    @app.post("/name")
    def take_name(name: Annotated[str, Form()]) -> Response:
        answer = _go("/")
        answer.set_cookie("onepair_name", quote(_tidy(name)), max_age=10**8, httponly=True, samesite="lax")
        return answer

    # Images and static files

    def send(make: Callable[[], Picture]) -> Response:
        try:
            content, media_type = make()
        except DataError as error:
            return Response(f"{error}\n", HTTPStatus.NOT_FOUND, media_type="text/plain")
        return Response(content, media_type=media_type, headers=FOR_GOOD)

    @app.get("/image/{row}")
    def image(row: int) -> Response:
        _require(0 <= row < len(desk.table))
        return send(lambda: pictures.picture(row, LARGE))

    @app.get("/thumbnail/{row}")
    def thumbnail(row: int) -> Response:
        _require(0 <= row < len(desk.table))
        return send(lambda: pictures.picture(row, SMALL))

    @app.get("/map/{number}")
    def overlay(number: int) -> Response:
        maps = _there(desk.suggestions.maps)
        _require(1 <= number <= len(desk))
        return send(lambda: heat_map(maps[number - 1]))

    @app.get("/static/{file}")
    def static_file(file: str) -> Response:
        content, media_type, _ = _there(static.get(file))
        return Response(content, media_type=media_type, headers=FOR_GOOD)

    return app


def _read_static() -> dict[str, _StaticFile]:
    files = {path.name: path.read_bytes() for path in (Path(__file__).parent / "static").iterdir()}
    versions = {name: hashlib.sha256(content).hexdigest()[:16] for name, content in files.items()}
    return {
        name: _StaticFile(content, _MEDIA_TYPES[Path(name).suffix], address(f"/static/{name}", v=versions[name]))
        for name, content in files.items()
    }


def _tidy(name: str) -> str:
    """A name as it is stored: printable, on one line, not endless."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in name).split())[:LONGEST_NAME]


def _go(path: str, **query: object) -> RedirectResponse:
    return RedirectResponse(address(path, **query), HTTPStatus.SEE_OTHER)


def _there(value: Found | None) -> Found:
    if value is None:
        raise HTTPException(HTTPStatus.NOT_FOUND)
    return value


def _require(there: bool) -> None:
    if not there:
        raise HTTPException(HTTPStatus.NOT_FOUND)
