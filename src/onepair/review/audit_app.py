"""The audit's application: addresses, what is sent to them, and where they lead."""

from http import HTTPStatus
from typing import Annotated

from fastapi import Depends, FastAPI, Form
from fastapi.responses import HTMLResponse, Response

from onepair.review.audit_pages import AuditPages
from onepair.review.auditing import AuditDesk
from onepair.review.pictures import Pictures
from onepair.review.site import Site, go, require


def create_audit_app(desk: AuditDesk, pictures: Pictures, *, name: str | None) -> FastAPI:
    """The application; `name` is who answers until somebody says otherwise, None asks everybody first."""
    site = Site(pictures, name=name, refresh=desk.refresh)
    app, pages = site.app, AuditPages(desk, pictures, static=site.static)
    Who = Annotated[str, Depends(site.reviewer)]  # noqa: N806 (a type)

    def next_open(who: str, *, after: int = 0) -> Response:
        coming = desk.next_open(after=after, who=who)
        if coming is None:
            return go("/done")
        desk.hold(coming, who=who)  # from now on, not from when the page is asked for: others come in between
        return go(f"/image-{coming}")

    @app.get("/")
    def begin(who: Who) -> Response:
        return next_open(who)

    @app.get("/image-{number}")
    def image(who: Who, number: int) -> Response:
        require(1 <= number <= len(desk))
        return HTMLResponse(pages.image(who, number))

    @app.post("/complete")
    def complete(
        who: Who,
        number: Annotated[int, Form()],
        seen: Annotated[int, Form(ge=0)],
        ticked: Annotated[list[str], Form()] = [],  # noqa: B006 (FastAPI copies it)
    ) -> Response:
        """The image shows the ticked labels, and no others."""
        require(1 <= number <= len(desk) and set(ticked) <= set(desk.table.classes))
        clashes = desk.finish(number, set(ticked), seen=seen, who=who)
        if clashes:
            return HTMLResponse(pages.image(who, number, clashes=clashes), HTTPStatus.CONFLICT)
        return next_open(who, after=number)

    @app.post("/undo")
    def undo(who: Who) -> Response:
        """Take the last image back, and go to it."""
        number = desk.undo(who=who)
        return next_open(who) if number is None else go(f"/image-{number}")

    @app.get("/done")
    def done(who: Who) -> Response:
        return HTMLResponse(pages.done(who))

    @app.get("/help")
    def help(who: Who) -> Response:
        return HTMLResponse(pages.help(who))

    @app.get("/name")
    def ask_name(known: Annotated[str, Depends(site.known_name)]) -> Response:
        return HTMLResponse(pages.name(known))

    @app.post("/name")
    def take_name(name: Annotated[str, Form()]) -> Response:
        return site.take_name(name)

    return app
