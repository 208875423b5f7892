"""Listening: on this machine alone, unless told otherwise."""

import asyncio
import secrets
import socket
from dataclasses import dataclass
from ipaddress import ip_address

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from onepair.errors import UserError
from onepair.review.guard import Guard, Rules

MOST_CONNECTIONS = 256  # a browser opens six at most, and a process may have 1,024 files open
LONGEST_REQUEST = 60.0  # seconds from its first byte to the last of its answer; to stop a training takes 20


class ServerError(UserError, OSError):
    """The server cannot listen where it should."""


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
        raise ServerError(f"cannot listen on {host}, port {port} ({error.strerror}); try another --port") from None
    bound, port = listening.getsockname()[:2]
    cookie = f"onepair_token_{port}"
    names = frozenset({host, "localhost", "127.0.0.1", "::1"})
    if ip_address(bound).is_loopback:
        shown = f"[{bound}]" if ":" in bound else bound
        return Listener(listening, Rules(names, None, cookie), f"http://{shown}:{port}/")
    machine = socket.gethostname().lower()
    token = secrets.token_urlsafe(24)
    rules = Rules(names | {machine, f"{machine}.local"}, token, cookie)
    shown = machine if ip_address(bound).is_unspecified else f"[{bound}]" if ":" in bound else bound
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
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()
        else:
            self._allow_more_time()

    def on_response_complete(self) -> None:
        self._allow_more_time()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_the_end()
        super().connection_lost(exc)

    def _allow_more_time(self) -> None:
        self._forget_the_end()
        # Not closed but cut, as closing would wait until the other side has read everything.
        self._end = self.loop.call_later(LONGEST_REQUEST, self.transport.abort)

    def _forget_the_end(self) -> None:
        if self._end is not None:
            self._end.cancel()


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


def serve(app: ASGIApp, listener: Listener) -> None:
    """Serve until Ctrl-C."""
    try:
        make_server(app, listener.rules).run([listener.socket])
    except KeyboardInterrupt:  # raised by uvicorn once it has closed every connection
        pass
    finally:
        listener.socket.close()
