"""Requests as bytes, for what no well-behaved client sends."""

import socket
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import urlsplit

PAGES = ("/", "/suggestion/1", "/suggestion/1/labels", "/grid?label=bar", "/classes", "/training", "/done", "/help",
         "/name", "/photos", "/photo/0", "/runs", "/download", "/download/csv", "/image/0", "/thumbnail/0", "/map/1",
         "/static/review.js")  # fmt: skip


class Reply(NamedTuple):
    """What came back until the server hung up; status 0: nothing."""

    status: int
    head: str
    body: bytes


def connect(url: str) -> socket.socket:
    address = urlsplit(url)
    return socket.create_connection((address.hostname, address.port), timeout=120)


def ask(url: str, request: str, *headers: str, body: bytes = b"") -> Reply:
    """Send a request line, headers and a body as they are; `Host` is the right one unless the headers have any."""
    host = [] if any(each.lower().startswith("host:") for each in headers) else [f"Host: {urlsplit(url).netloc}"]
    lines = [request, *host, *headers, "Connection: close", "", ""]
    with connect(url) as connection:
        connection.sendall("\r\n".join(lines).encode("latin-1"))
        with suppress(ConnectionError):  # once the server has heard enough
            connection.sendall(body)
        return read(connection)


def post(url: str, address: str, body: bytes = b"order=worth", *headers: str, origin: str | None = None) -> Reply:
    """A form as the page itself sends it, unless told otherwise; `headers` come after the usual ones."""
    usual = [
        f"Origin: {url.rstrip('/') if origin is None else origin}",
        "Content-Type: application/x-www-form-urlencoded",
        f"Content-Length: {len(body)}",
    ]
    replaced = {header.partition(":")[0].lower() for header in headers}
    kept = [header for header in usual if header.partition(":")[0].lower() not in replaced]
    return ask(url, f"POST {address} HTTP/1.1", *kept, *(each for each in headers if each.partition(":")[2]), body=body)


def read(connection: socket.socket) -> Reply:
    received = b""
    with suppress(ConnectionError):  # if it is cut, not closed
        while piece := connection.recv(65536):
            received += piece
    head, _, body = received.partition(b"\r\n\r\n")
    return Reply(int(head.split(b" ")[1]) if head else 0, head.decode("latin-1").lower(), body)
