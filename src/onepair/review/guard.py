"""Who may use the page: requests are judged by their Host, their Origin and their token before anything else."""

import re
import secrets
from dataclasses import dataclass
from http import HTTPStatus
from ipaddress import ip_address

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
FORM = "application/x-www-form-urlencoded"  # the one kind of body that our pages send

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[\w.-]+)(:\d{1,5})?", re.ASCII | re.IGNORECASE)
_LENGTH = re.compile(r"\d{1,9}", re.ASCII)


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
    hosts = request.headers.getlist("host")
    if len(hosts) != 1 or not _is_ours(hosts[0], rules):
        return _refuse(HTTPStatus.FORBIDDEN, "This server does not go by that name; use the address it printed.")
    reads = request.method in ("GET", "HEAD")
    if not reads and request.headers.getlist("origin") != [f"http://{hosts[0]}"]:
        return _refuse(HTTPStatus.FORBIDDEN, "Answers are taken only from the page itself.")
    if _is_for_another_page(request):
        return _refuse(HTTPStatus.FORBIDDEN, "Nothing here is for other pages to show.")
    if not _has_a_fair_size(request, "0" if reads else None):
        return _refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "That is too much for one answer.")
    if not reads and request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
        return _refuse(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "Answers are sent as a form.")
    if rules.token is None or _matches(request.cookies.get(rules.cookie), rules.token):
        return None
    if request.method == "GET" and _matches(request.query_params.get("token"), rules.token):
        # One slash: two would lead to another host.
        entry = RedirectResponse(f"/{request.scope['path'].lstrip('/')}", HTTPStatus.SEE_OTHER)
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
    found = _HOST.fullmatch(host)
    name = found[1].strip("[]").lower() if found else ""
    return name in rules.names or (rules.token is not None and _is_address(name))


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _is_for_another_page(request: Request) -> bool:
    """Whether a browser fetches this for a page of somebody else; to follow a link from there is fine."""
    site, mode = request.headers.get("sec-fetch-site"), request.headers.get("sec-fetch-mode")
    return site in ("cross-site", "same-site") and mode != "navigate"


def _has_a_fair_size(request: Request, unsaid: str | None) -> bool:
    """Whether the body has a length that is said beforehand and is not too large; `unsaid` is what none stands for."""
    length = request.headers.get("content-length", unsaid)
    said = length is not None and _LENGTH.fullmatch(length) is not None and "transfer-encoding" not in request.headers
    return said and int(length or 0) <= LARGEST_BODY


def _matches(given: str | None, token: str) -> bool:
    return given is not None and secrets.compare_digest(given.encode(), token.encode())


def _refuse(status: HTTPStatus, sentence: str) -> Response:
    """Say no, and hang up: what is left of the body is not listened to."""
    return PlainTextResponse(f"{sentence}\n", status, {"Connection": "close"})
