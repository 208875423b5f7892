"""The web application of a review or an audit: routes, and what is sent to them."""

import threading
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import quote, unquote

from fastapi import Cookie, Depends, FastAPI, Form, HTTPException, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from onepair.errors import DataError, OnepairError
from onepair.labels import POSITIVE
from onepair.review.answers import Answer, Reply, new_class, tidy
from onepair.review.audit_session import AuditSession
from onepair.review.completion import FORMS, download
from onepair.review.image_answers import open_answers
from onepair.review.language import best_language, language
from onepair.review.pages import GRID, AuditPages, Pages, ReviewPages, address, grid_address
from onepair.review.photos import LARGE, SMALL, Filter, Only, Picture, Pictures, heat_map
from onepair.review.queue import Order, read_queue
from onepair.review.retraining import runs_beside
from onepair.review.session import Cell, ReviewSession
from onepair.runs.finished import FinishedRun

LONGEST_WORD = 4096  # bytes of a file name with its folders

Found = TypeVar("Found")
Text = Annotated[str, Form()]
Number = Annotated[int, Form()]
Word = Annotated[str, Query(max_length=LONGEST_WORD)]

_STATIC = {path.name: path.read_bytes() for path in (Path(__file__).parent / "static").iterdir()}
_MEDIA_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


class Application:
    """The pages of a session, in the language of whoever reads them.

    Args:
        session: the review or the audit that is shown first; a review can go on to another run of its project.
        pictures: its images.
        name: who answers until somebody says otherwise; None asks everybody first.
    """

    def __init__(self, session: ReviewSession | AuditSession, pictures: Pictures, *, name: str | None) -> None:
        self.name = name
        self._shown = session, pictures
        self._sessions = {session.run.path: self._shown}
        self._routes = _routes(self, *self._shown)
        self._opening = threading.Lock()

    def show(self, run: Path) -> None:
        """Show the review of another run from now on, to everybody."""
        with self._opening:
            if run not in self._sessions:
                opened, pictures = FinishedRun(run), self._shown[1]
                session = ReviewSession(opened, read_queue(opened), open_answers(opened))
                others = Pictures(session.table, cache=pictures.cache, follow_links=pictures.follow_links)
                self._sessions[run] = session, others
            self._shown = self._sessions[run]
            self._routes = _routes(self, *self._shown)

    def close(self) -> None:
        """Stop what is trained; it goes on where it was another time."""
        for session, _ in self._sessions.values():
            if isinstance(session, ReviewSession):
                session.retraining.stop()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        language.set(best_language(Headers(scope=scope).get("accept-language", "")))
        await self._routes(scope, receive, send)


def _routes(application: Application, session: ReviewSession | AuditSession, pictures: Pictures) -> FastAPI:
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    app.exception_handler(OnepairError)(_explain)
    name = application.name

    def known_name(onepair_name: Annotated[str, Cookie()] = "") -> str:
        return tidy(unquote(onepair_name)) or name or ""

    def reviewer(onepair_name: Annotated[str, Cookie()] = "") -> str:
        """Who comes to read or to answer, and sees what others did; who has no name yet is asked for it."""
        known = known_name(onepair_name)
        if not known:
            raise HTTPException(HTTPStatus.SEE_OTHER, headers={"Location": "/name"})
        session.refresh()
        return known

    pages: Pages
    if isinstance(session, AuditSession):
        pages = AuditPages(session, pictures)
        _add_audit(app, session, pages, Depends(reviewer))
    else:
        pages = ReviewPages(session, pictures)
        _add_review(app, application, session, pages, Depends(reviewer))

    @app.get("/done")
    def done(who: Annotated[str, Depends(reviewer)]) -> Response:
        return HTMLResponse(pages.done(who))

    @app.get("/download")
    def downloads(who: Annotated[str, Depends(reviewer)]) -> Response:
        return HTMLResponse(pages.downloads(who))

    @app.get("/download/{form}")
    def send_labels(who: Annotated[str, Depends(reviewer)], form: str) -> Response:
        """The labels as they are now, as a file to keep."""
        ensure(form in FORMS)
        file = download(session.run, form)
        named = f"attachment; filename*=UTF-8''{quote(file.name, safe='')}"
        return Response(file.content, media_type=file.media_type, headers={"Content-Disposition": named})

    @app.get("/help")
    def help(who: Annotated[str, Depends(reviewer)]) -> Response:
        return HTMLResponse(pages.help(who))

    @app.get("/name")
    def ask_name(known: Annotated[str, Depends(known_name)]) -> Response:
        return HTMLResponse(pages.name(known))

    @app.post("/name")
    def take_name(name: Text) -> Response:
        answer = redirect("/")
        answer.set_cookie("onepair_name", quote(tidy(name)), max_age=10**8, httponly=True, samesite="lax")
        return answer

    def send_image(row: int, side: int) -> Response:
        ensure(0 <= row < len(pictures.table))
        try:
            return _send(pictures.picture(row, side))
        except DataError as error:
            return Response(f"{error}\n", HTTPStatus.NOT_FOUND, media_type="text/plain")

    @app.get("/image/{row}")
    def image(row: int) -> Response:
        return send_image(row, LARGE)

    @app.get("/thumbnail/{row}")
    def thumbnail(row: int) -> Response:
        return send_image(row, SMALL)

    @app.get("/static/{file}")
    def static_file(file: str) -> Response:
        return Response(or_404(_STATIC.get(file)), media_type=_MEDIA_TYPES[Path(file).suffix])

    return app


def redirect(path: str, **query: object) -> RedirectResponse:
    return RedirectResponse(address(path, **query), HTTPStatus.SEE_OTHER)


def or_404(value: Found | None) -> Found:
    """Return the value, or answer that there is none."""
    if value is None:
        raise HTTPException(HTTPStatus.NOT_FOUND)
    return value


def ensure(found: bool) -> None:
    """Answer that there is no such thing, unless it is found."""
    if not found:
        raise HTTPException(HTTPStatus.NOT_FOUND)


def _explain(_: Request, error: Exception) -> Response:
    """What a full disk or a run that was put aside looks like on the page."""
    return Response(f"{error}\n", HTTPStatus.SERVICE_UNAVAILABLE, media_type="text/plain")


def _send(picture: Picture) -> Response:
    """An image, which a browser may keep for good: its version is in its address."""
    headers = {"Cache-Control": "private, max-age=31536000, immutable"}
    return Response(picture.content, media_type=picture.media_type, headers=headers)


def _add_review(
    app: FastAPI, application: Application, session: ReviewSession, pages: ReviewPages, reviewer: Any
) -> None:
    Who = Annotated[str, reviewer]  # noqa: N806 (a type)
    taking = threading.Lock()

    def cell_of(file: str, label: str) -> Cell:
        return or_404(session.find(file, label))

    def next_open(who: str, order: Order, *, after: int | None = None) -> Response:
        """On to the next open suggestion; before the unlikely ones begin, to the page that says so."""
        with taking:  # or two people at once are sent to the same one
            coming = session.next_open(order, after=after, who=who)
            if coming is not None:
                session.hold([coming], who=who)  # from now on, not from when the page is asked for
        if coming is None or (
            order not in ("second", "wrong")
            and not session.goal[coming - 1]
            and (after is None or session.goal[after - 1])
        ):
            return redirect("/done")
        return redirect(f"/suggestion/{coming}", order=order)

    # One by one

    @app.get("/")
    def begin(who: Who, order: Order = "probability", label: str | None = None) -> Response:
        """On to the first open suggestion, of all or of a class."""
        if label is None:
            return next_open(who, order)
        first = or_404(session.first_of_class(label, who=who))
        return redirect(f"/suggestion/{first}", order="class")

    @app.get("/suggestion/{number}")
    def suggestion(who: Who, number: int, order: Order = "probability") -> Response:
        ensure(1 <= number <= len(session))
        return HTMLResponse(pages.suggestion(who, number, order))

    @app.post("/answer")
    def answer(
        who: Who,
        file: Text,
        label: Text,
        seen: Number,
        number: Number,
        order: Annotated[Order, Form()],
        answer: Annotated[Reply | None, Form()] = None,
        burst: Annotated[bool, Form()] = False,
    ) -> Response:
        """Take an answer from the page of suggestion `number`, to its question or on another label of the image.

        Number 0 is the page of the image itself. With `burst`, it also goes for photos that look nearly the same.
        """
        cell = cell_of(file, label)
        ensure(0 <= number <= len(session))
        others = session.burst(cell) if burst and cell.version == seen else []
        answers = [Answer(each.file, label, answer, each.version) for each in others]
        clashes = session.record([Answer(file, label, answer, seen), *answers], who=who)
        if clashes and number == 0:
            return HTMLResponse(pages.photo(who, cell.row, clash=clashes[0]), HTTPStatus.CONFLICT)
        if clashes:
            page = pages.suggestion(who, cell.number or number, order, clash=clashes[0])
            return HTMLResponse(page, HTTPStatus.CONFLICT)
        if number == 0:
            return redirect(f"/photo/{cell.row}")
        if cell.number == number and answer is not None:
            return next_open(who, order, after=number)
        return redirect(f"/suggestion/{number}", order=order)

    @app.post("/complete")
    def complete(
        who: Who,
        file: Text,
        label: Text,
        seen: Number,
        number: Number,
        order: Annotated[Order, Form()],
    ) -> Response:
        """The image of suggestion `number` shows what is known and ticked, and nothing else."""
        cell = cell_of(file, label)
        ensure(cell.number == number)
        clashes = session.complete(cell.row, seen=seen, who=who)
        if clashes:
            return HTMLResponse(pages.suggestion(who, number, order, clash=clashes[0]), HTTPStatus.CONFLICT)
        return next_open(who, order, after=number)

    @app.post("/undo")
    def undo(who: Who, order: Annotated[Order, Form()] = "probability") -> Response:
        """Take the last answer back, and go to where it was given."""
        undone = session.undo(who=who)
        cell = session.find(undone[0].file, undone[0].label) if undone else None
        many = {entry.file for entry in undone}
        if cell is not None and cell.number and not many <= {cell.file, *(e.file for e in session.burst(cell))}:
            return redirect(grid_address(cell.label, cell.suggested, cell.likely))
        if cell is None:
            return next_open(who, order)
        number = cell.number or session.first_of_image(cell.row)
        return redirect(f"/photo/{cell.row}") if number is None else redirect(f"/suggestion/{number}", order=order)

    # Many at once

    @app.get("/grid")
    def grid(
        who: Who, label: str, suggested: Annotated[int, Query(ge=0, le=1)] = POSITIVE, likely: bool = True
    ) -> Response:
        ensure(label in session.table.classes)
        return HTMLResponse(pages.grid(who, label, suggested, likely))

    @app.post("/grid")
    def answer_grid(
        who: Who,
        label: Text,
        suggested: Annotated[int, Form(ge=0, le=1)],
        likely: Annotated[bool, Form()],
        file: Annotated[list[str], Form(max_length=GRID)],
        seen: Annotated[list[int], Form(max_length=GRID)],
        rest: Annotated[Literal["yes", "no"], Form()],
        marked: Annotated[list[str], Form()] = [],  # noqa: B006 (FastAPI copies it)
        unsure: Annotated[list[str], Form()] = [],  # noqa: B006
    ) -> Response:
        """Give the files of a page the answer `rest`, the marked ones the other, and skip those that are unsure."""
        ensure(len(file) == len(seen))
        other: Reply = "no" if rest == "yes" else "yes"
        answers = [
            Answer(
                cell_of(each, label).file,
                label,
                "skip" if each in unsure else other if each in marked else rest,
                version,
            )
            for each, version in zip(file, seen, strict=True)
        ]
        clashes = session.record(answers, who=who)
        if clashes:
            return HTMLResponse(pages.grid(who, label, suggested, likely, clashes=len(clashes)), HTTPStatus.CONFLICT)
        return redirect(grid_address(label, suggested, likely))

    # All images

    @app.get("/photos")
    def photos(
        who: Who,
        label: Word = "",
        without: Word = "",
        folder: Word = "",
        by: Word = "",
        only: Only = "",
        text: Word = "",
        page: Annotated[int, Query(ge=1, le=10**6)] = 1,
    ) -> Response:
        return HTMLResponse(pages.photos(who, Filter(label, without, folder, by, only, text), page))

    @app.get("/photo/{row}")
    def photo(who: Who, row: int) -> Response:
        ensure(session.has(row))
        return HTMLResponse(pages.photo(who, row))

    # Training again, and other runs

    @app.get("/runs")
    def runs(who: Who) -> Response:
        return HTMLResponse(pages.runs(who))

    @app.post("/run")
    def show_run(who: Who, run: Text) -> Response:
        application.show(or_404({each.name: each for each in runs_beside(session.run.path)}.get(run)))
        return redirect("/")

    @app.get("/training")
    def training(who: Who) -> Response:
        return HTMLResponse(pages.training(who))

    @app.post("/training")
    def train(who: Who, wish: Annotated[Literal["start", "resume", "stop"], Form()]) -> Response:
        getattr(session.retraining, wish)()
        return redirect("/training")

    # Beside the pages: what opens in a dialog

    @app.get("/classes")
    def classes(who: Who) -> Response:
        return HTMLResponse(pages.classes(who))

    @app.post("/class")
    def add_class(
        who: Who,
        name: Text = "",
        sure: Annotated[bool, Form()] = False,
        number: Annotated[int | None, Form()] = None,
        order: Annotated[Order, Form()] = "probability",
    ) -> Response:
        """Add a class, and give it to the image of suggestion `number`; without `sure`, ask if there is one like it."""
        ensure(number is None or 1 <= number <= len(session))
        wanted = new_class(name, session.classes)
        if wanted.impossible or (not sure and (wanted.taken or wanted.near)):
            return HTMLResponse(pages.asked_class(who, wanted, number, order))
        label = wanted.taken or wanted.name
        if label not in session.classes:
            session.add_class(label, who=who)
        if number is None:
            return redirect("/classes")
        cell = or_404(session.find(session.suggestion(number).file, label))
        session.record([Answer(cell.file, label, "yes", cell.version)], who=who)
        return redirect(f"/suggestion/{number}", order=order)

    @app.post("/alike")
    def decide_alike(who: Who, one: Text, other: Text, name: Text = "", number: Number = 0) -> Response:
        """Take two classes for one by one of their names, or without a name for two."""
        ensure((one, other) in session.alike() and name in ("", one, other) and 0 <= number <= len(session))
        if name:
            session.merge(other if name == one else one, name)
        else:
            session.keep_apart(one, other)
        return redirect(f"/suggestion/{number}" if number else "/classes")

    @app.get("/class")
    def back_to_classes(who: Who) -> Response:
        return redirect("/classes")  # a question that was reloaded

    @app.get("/suggestion/{number}/labels")
    def labels(who: Who, number: int, order: Order = "probability") -> Response:
        ensure(1 <= number <= len(session))
        return HTMLResponse(pages.labels(who, number, order))

    @app.get("/map/{number}")
    def overlay(number: int) -> Response:
        maps = or_404(session.suggestions.maps)
        ensure(1 <= number <= len(session))
        return _send(heat_map(maps[number - 1]))


def _add_audit(app: FastAPI, session: AuditSession, pages: AuditPages, reviewer: Any) -> None:
    Who = Annotated[str, reviewer]  # noqa: N806 (a type)
    taking = threading.Lock()

    def next_open(who: str, *, after: int = 0) -> Response:
        with taking:  # or two people at once are sent to the same one
            coming = session.next_open(after=after, who=who)
            if coming is not None:
                session.hold([coming], who=who)  # from now on, not from when the page is asked for
        if coming is None:
            return redirect("/done")
        return redirect(f"/image-{coming}")

    @app.get("/")
    def begin(who: Who) -> Response:
        return next_open(who)

    @app.get("/image-{number}")
    def image(who: Who, number: int) -> Response:
        ensure(1 <= number <= len(session))
        return HTMLResponse(pages.image(who, number))

    @app.post("/complete")
    def complete(
        who: Who,
        number: Number,
        seen: Annotated[int, Form(ge=0)],
        ticked: Annotated[list[str], Form()] = [],  # noqa: B006 (FastAPI copies it)
    ) -> Response:
        """The image shows the ticked labels, and no others."""
        ensure(1 <= number <= len(session) and set(ticked) <= set(session.table.classes))
        clashes = session.finish(number, set(ticked), seen=seen, who=who)
        if clashes:
            return HTMLResponse(pages.image(who, number, clashes=clashes), HTTPStatus.CONFLICT)
        return next_open(who, after=number)

    @app.post("/undo")
    def undo(who: Who) -> Response:
        """Take the last image back, and go to it."""
        undone = session.undo(who=who)
        number = session.number_of(undone[0].file) if undone else None
        return next_open(who) if number is None else redirect(f"/image-{number}")
