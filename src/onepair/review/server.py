"""Listening: on this machine alone, unless told otherwise."""

import secrets
import socket
from dataclasses import dataclass
from ipaddress import ip_address

import uvicorn
from starlette.types import ASGIApp

from onepair.errors import UserError
from onepair.review.guard import Guard, Rules


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


def serve(app: ASGIApp, listener: Listener) -> None:
    """Serve until Ctrl-C."""
    config = uvicorn.Config(
        Guard(app, listener.rules),
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="off",
        timeout_graceful_shutdown=2,
    )
    try:
        uvicorn.Server(config).run([listener.socket])
    except KeyboardInterrupt:  # raised by uvicorn once it has closed every connection
        pass
    finally:
        listener.socket.close()
