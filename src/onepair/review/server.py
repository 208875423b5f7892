"""The server: listens on loopback, and refuses requests by Host, Origin and token."""

import asyncio
import re
import secrets
import socket
import threading
import weakref
from contextlib import ExitStack
from dataclasses import dataclass
from html import escape
from http import HTTPStatus
from ipaddress import ip_address

import uvicorn
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from onepair.errors import ReviewError, Stopped
from onepair.files import cache_folder
from onepair.review.answers import login_name
from onepair.review.app import Application
from onepair.review.photos import Pictures
from onepair.review.session import Session

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; img-src 'self'; style-src 'self'; script-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "same-origin",  # no-referrer would also blank the Origin of forms
}
LARGEST_BODY = 1_000_000  # bytes; a grid of answers has a few thousand
LARGEST_HEAD = 65_536  # bytes of address and headers; h11 counts them only where they come in pieces
READING = ("GET", "HEAD")
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
    """Return the answer to a request that may not go further; None if it may."""
    hosts, headers, reads = request.headers.getlist("host"), request.headers, request.method in READING
    if len(hosts) != 1 or not _is_ours(hosts[0], rules):
        return _refuse(HTTPStatus.FORBIDDEN, "This server does not go by that name; use the address it printed.")
    if not reads and headers.getlist("origin") != [f"http://{hosts[0]}"]:
        return _refuse(HTTPStatus.FORBIDDEN, "Answers are taken only from the page itself.")
    # What a browser fetches for a page of somebody else; to follow a link from there is fine.
    if headers.get("sec-fetch-site") in ("cross-site", "same-site") and headers.get("sec-fetch-mode") != "navigate":
        return _refuse(HTTPStatus.FORBIDDEN, "Nothing here is for other pages to show.")
    if too_large := _is_too_large(request):
        return _refuse(too_large, "That is too much for one request.")
    if not reads and headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
        return _refuse(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "Answers are sent as a form.")
    if rules.token is None or _matches(request.cookies.get(rules.cookie), rules.token):
        return None
    if request.method == "GET" and _matches(request.query_params.get("token"), rules.token):
        # One slash: two would lead to another host.
        entry = RedirectResponse(f"/{request.scope['path'].lstrip('/')}", HTTPStatus.SEE_OTHER)
        entry.set_cookie(rules.cookie, rules.token, httponly=True, samesite="lax")
        return entry
    return _refuse(HTTPStatus.UNAUTHORIZED, "Open the whole address that onepair printed, with its token.")


class Guard:
    """Lets only requests through that the rules allow, and sends every answer with strict headers.

    Starlette's own TrustedHostMiddleware cuts a host at its first colon: it takes no IPv6 address, and takes
    "127.0.0.1:1, evil.example" for this machine.
    """

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
    if name in rules.names or rules.token is None:
        return name in rules.names
    try:
        return bool(ip_address(name))
    except ValueError:
        return False


def _is_too_large(request: Request) -> HTTPStatus | None:
    """The status of a request whose head is too large, or whose body is or does not say how large it is."""
    head = sum(len(name) + len(value) + 4 for name, value in request.headers.raw)
    if head + len(request.scope["raw_path"] or b"") + len(request.scope["query_string"]) > LARGEST_HEAD:
        return HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
    length = request.headers.get("content-length", "0" if request.method in READING else "")
    fair = _LENGTH.fullmatch(length) and "transfer-encoding" not in request.headers and int(length) <= LARGEST_BODY
    return None if fair else HTTPStatus.REQUEST_ENTITY_TOO_LARGE


def _matches(given: str | None, token: str) -> bool:
    return given is not None and secrets.compare_digest(given.encode(), token.encode())


def _refuse(status: HTTPStatus, sentence: str) -> Response:
    """Say no, and hang up: what is left of the body is not listened to."""
    return PlainTextResponse(f"{sentence}\n", status, {"Connection": "close"})


MOST_CONNECTIONS = 256  # a browser opens six at most, and a process may have 1,024 files open
LONGEST_REQUEST = 60.0  # seconds from its first byte to the last of its answer; to stop a training takes 20


@dataclass(frozen=True)
class Listener:
    """A socket that listens, and who may connect."""

    socket: socket.socket
    rules: Rules
    url: str  # for the first visit


def listen(host: str, port: int) -> Listener:
    """Listen on an address; beyond this machine, with a fresh token. Port 0 takes any that is free."""
    try:
        listening = _bind(host, port)
    except OSError as error:
        raise ReviewError(f"cannot listen on {host}, port {port} ({error.strerror}); try another --port") from None
    bound, port = listening.getsockname()[:2]
    cookie = f"onepair_token_{port}"
    names = frozenset({host, "localhost", "127.0.0.1", "::1"})
    if ip_address(bound).is_loopback:
        shown = f"[{bound}]" if ":" in bound else bound
        return Listener(listening, Rules(names, None, cookie), f"http://{shown}:{port}/")
    hardware = socket.gethostname().lower()
    token = secrets.token_urlsafe(24)
    rules = Rules(names | {hardware, f"{hardware}.local"}, token, cookie)
    shown = hardware if ip_address(bound).is_unspecified else f"[{bound}]" if ":" in bound else bound
    return Listener(listening, rules, f"http://{shown}:{port}/?token={token}")


def _bind(host: str, port: int) -> socket.socket:
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    # Named by its protocol: for any other kind of socket asyncio keeps Nagle's delay, 40 ms an answer.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # to start again at once after being killed
        listening.bind(address)
        listening.listen()
    except OSError:
        listening.close()
        raise
    return listening


class Connection(H11Protocol):
    """A connection that is cut when a request takes too long, and refused when there are too many.

    Without, whoever sends or reads a byte a minute could hold all of them. The time of a request begins with the
    connection, or with the end of the answer before.
    """

    _end: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._limit_time()
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()

    def on_response_complete(self) -> None:
        self._limit_time()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._end is not None:
            self._end.cancel()
        super().connection_lost(exc)

    def _limit_time(self) -> None:
        if self._end is not None:
            self._end.cancel()
        # Not closed but cut, as closing would wait until the other side has read everything.
        self._end = self.loop.call_later(LONGEST_REQUEST, self.transport.abort)


def make_server(app: ASGIApp, rules: Rules) -> uvicorn.Server:
    """What serves an application behind the guard: HTTP alone, and no word of a proxy is believed."""
    config = uvicorn.Config(
        Guard(app, rules),
        http=Connection,
        ws="none",
        proxy_headers=False,
        log_config=None,  # warnings go where Python's warnings go
        log_level="warning",
        access_log=False,  # the first address has the token in it
        server_header=False,
        lifespan="off",
        timeout_graceful_shutdown=2,
    )
    return uvicorn.Server(config)


class Page:
    """The page of a review or an audit, which is served in the background until `stop` is called or the program ends.

    Attributes:
        url: where to open it.
        session: what it asks; the other arguments are those of its `serve`.
    """

    def __init__(self, session: Session, *, host: str, port: int, name: str | None, follow_links: bool) -> None:
        with ExitStack() as held:
            held.enter_context(session.alone())
            listener = listen(host, port)
            self.url, self.session = listener.url, session
            pictures = Pictures(session.table, cache=cache_folder() / "thumbnails", follow_links=follow_links)
            known = name or (login_name() if listener.rules.token is None else None)
            app = Application(session, pictures, name=known)  # type: ignore[arg-type]  # a review or an audit
            server = make_server(app, listener.rules)
            # Waited for instead of the thread: a join that Ctrl-C interrupts takes a thread that runs for ended.
            self._ended = threading.Event()
            args = (server, listener.socket, self._ended)
            threading.Thread(target=_serve, args=args, daemon=True, name="onepair").start()
            self.stop = weakref.finalize(self, _stop, server, self._ended, app, listener.socket, held.pop_all())

    @property
    def left(self) -> int:
        """How many questions are open."""
        self.session.refresh()
        return self.session.left

    def wait(self) -> None:
        """Serve until Ctrl-C."""
        try:
            with self:
                while not self._ended.wait(timeout=1):  # on Windows, nothing interrupts a wait without end
                    pass
        except Stopped:  # by SIGTERM, which has an exit code of its own
            raise
        except KeyboardInterrupt:
            pass

    def __enter__(self) -> "Page":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"Page({self.url})"

    def _repr_html_(self) -> str:
        return f"<a href='{escape(self.url)}' target='_blank'>{escape(self.url)}</a>, {self.left:,} to answer"


def _serve(server: uvicorn.Server, listening: socket.socket, ended: threading.Event) -> None:
    try:
        server.run([listening])
    finally:
        ended.set()


def _stop(
    server: uvicorn.Server, ended: threading.Event, app: Application, listening: socket.socket, held: ExitStack
) -> None:
    server.should_exit = True
    ended.wait()  # two seconds at most of requests that are under way; what they use is closed only afterwards
    listening.close()
    app.close()
    held.close()
