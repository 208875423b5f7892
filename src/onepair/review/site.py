"""What every page of ours stands on: static files, images by row, and who it is that answers."""

import hashlib
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, NamedTuple, TypeVar
from urllib.parse import quote, unquote

from fastapi import Cookie, FastAPI, HTTPException, Request
from fastapi.responses import RedirectResponse, Response

from onepair.data.problems import DataError
from onepair.errors import UserError
from onepair.review.naming import tidy
from onepair.review.pictures import LARGE, SMALL, Picture, Pictures
from onepair.review.rendering import address

FOR_GOOD = {"Cache-Control": "private, max-age=31536000, immutable"}  # for what has its version in its address

Found = TypeVar("Found")

_MEDIA_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


class _StaticFile(NamedTuple):
    content: bytes
    media_type: str
    address: str


class Site:
    """An application with what all pages need; `name` is who answers until somebody says otherwise, None asks first."""

    def __init__(self, pictures: Pictures, *, name: str | None, refresh: Callable[[], None]) -> None:
        self.app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
        self._pictures, self._name, self._refresh, self._static = pictures, name, refresh, _read_static()
        self.static = {file: each.address for file, each in self._static.items()}
        self.app.exception_handler(UserError)(_say)
        self.app.get("/image/{row}")(self._image)
        self.app.get("/thumbnail/{row}")(self._thumbnail)
        self.app.get("/static/{file}")(self._static_file)

    # Who answers

    def known_name(self, onepair_name: Annotated[str, Cookie()] = "") -> str:
        return tidy(unquote(onepair_name)) or self._name or ""

    def reviewer(self, onepair_name: Annotated[str, Cookie()] = "") -> str:
        """Who comes to read or to answer, and sees what others did; who has no name yet is asked for it."""
        known = self.known_name(onepair_name)
        if not known:
            raise HTTPException(HTTPStatus.SEE_OTHER, headers={"Location": "/name"})
        self._refresh()
        return known

    def take_name(self, name: str) -> Response:
        answer = go("/")
        answer.set_cookie("onepair_name", quote(tidy(name)), max_age=10**8, httponly=True, samesite="lax")
        return answer

    # Images and static files

    def send(self, make: Callable[[], Picture]) -> Response:
        try:
            content, media_type = make()
        except DataError as error:
            return Response(f"{error}\n", HTTPStatus.NOT_FOUND, media_type="text/plain")
        return Response(content, media_type=media_type, headers=FOR_GOOD)

    def _image(self, row: int) -> Response:
        require(0 <= row < len(self._pictures.table))
        return self.send(lambda: self._pictures.picture(row, LARGE))

    def _thumbnail(self, row: int) -> Response:
        require(0 <= row < len(self._pictures.table))
        return self.send(lambda: self._pictures.picture(row, SMALL))

    def _static_file(self, file: str) -> Response:
        content, media_type, _ = there(self._static.get(file))
        return Response(content, media_type=media_type, headers=FOR_GOOD)


def _say(_: Request, error: Exception) -> Response:
    """What a full disk or a folder that has become read-only looks like on the page."""
    return Response(f"{error}\n", HTTPStatus.SERVICE_UNAVAILABLE, media_type="text/plain")


def go(path: str, **query: object) -> RedirectResponse:
    return RedirectResponse(address(path, **query), HTTPStatus.SEE_OTHER)


def there(value: Found | None) -> Found:
    """The value, or the answer that there is none."""
    if value is None:
        raise HTTPException(HTTPStatus.NOT_FOUND)
    return value


def require(found: bool) -> None:
    if not found:
        raise HTTPException(HTTPStatus.NOT_FOUND)


def _read_static() -> dict[str, _StaticFile]:
    files = {path.name: path.read_bytes() for path in (Path(__file__).parent / "static").iterdir()}
    versions = {name: hashlib.sha256(content).hexdigest()[:16] for name, content in files.items()}
    return {
        name: _StaticFile(content, _MEDIA_TYPES[Path(name).suffix], address(f"/static/{name}", v=versions[name]))
        for name, content in files.items()
    }
