"""Who may use the page: requests are judged by their Host, their Origin and their token before anything else."""

import secrets
from dataclasses import dataclass
from http import HTTPStatus
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; img-src 'self'; style-src 'self'; script-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "same-origin",  # no-referrer would also blank the Origin of forms
}
LARGEST_BODY = 1_000_000  # bytes; a grid of answers has a few thousand


@dataclass(frozen=True)
class Rules:
    """What a request must bring.

    Args:
        names: the host names that the server answers to.
        token: what must be in the address at first and in a cookie from then on; None: nothing. With a token, addresses
            in numbers are answered too: what a foreign page can fake is a name.
        cookie: its name, which differs by port as browsers do not tell ports apart.
    """

    names: frozenset[str]
    token: str | None = None
    cookie: str = "onepair_token"


def judge(request: Request, rules: Rules) -> Response | None:
    """The answer to a request that may not go further; None if it may."""
    host = request.headers.get("host", "")
    if not _is_ours(host, rules):
        return _refuse(HTTPStatus.FORBIDDEN, "This server does not go by that name; use the address it printed.")
    if request.method not in ("GET", "HEAD"):
        origin = request.headers.get("origin", "")
        if not origin or urlsplit(origin).netloc != host:
            return _refuse(HTTPStatus.FORBIDDEN, "Answers are taken only from the page itself.")
        if int(request.headers.get("content-length") or LARGEST_BODY + 1) > LARGEST_BODY:
            return _refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "That is too much for one answer.")
    if rules.token is None or _matches(request.cookies.get(rules.cookie), rules.token):
        return None
    if request.method == "GET" and _matches(request.query_params.get("token"), rules.token):
        entry = RedirectResponse(request.url.path, HTTPStatus.SEE_OTHER)
        entry.set_cookie(rules.cookie, rules.token, httponly=True, samesite="lax")
        return entry
    return _refuse(HTTPStatus.UNAUTHORIZED, "Open the whole address that onepair review printed, with its token.")


class Guard:
    """Lets only requests through that the rules allow, and sends every answer with strict headers."""

    def __init__(self, app: ASGIApp, rules: Rules) -> None:
        self.app, self.rules = app, rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # no other protocol is spoken here

        async def send_strictly(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        answer: ASGIApp = judge(Request(scope), self.rules) or self.app
        await answer(scope, receive, send_strictly)


def _is_ours(host: str, rules: Rules) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    return name in rules.names or (rules.token is not None and _is_address(name))


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _matches(given: str | None, token: str) -> bool:
    return given is not None and secrets.compare_digest(given.encode(), token.encode())


def _refuse(status: HTTPStatus, sentence: str) -> Response:
    return PlainTextResponse(f"{sentence}\n", status)
