"""Where the server listens, and whom it then lets in."""

import asyncio
import socket

import pytest

from onepair.errors import ReviewError
from onepair.review.server import listen


@pytest.fixture
def listening():
    opened = []

    def start(*arguments):
        opened.append(listen(*arguments))
        return opened[-1]

    yield start
    for each in opened:
        each.socket.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_on_this_machine_no_token_is_asked_for(listening, host):
    found = listening(host, 0)
    address, port = found.socket.getsockname()[:2]
    assert address in ("127.0.0.1", "::1")
    assert found.rules.token is None
    assert found.url in (f"http://127.0.0.1:{port}/", f"http://[::1]:{port}/")


def test_beyond_it_a_fresh_token_is(listening):
    first, second = listening("0.0.0.0", 0), listening("0.0.0.0", 0)  # noqa: S104 (that is what is tested)
    assert len(first.rules.token) >= 32
    assert first.rules.token != second.rules.token
    assert first.url.endswith(f"/?token={first.rules.token}")
    assert socket.gethostname().lower() in first.url
    assert socket.gethostname().lower() in first.rules.names


def test_answers_are_sent_without_waiting_for_more(listening):
    async def accepted():
        arrived = asyncio.Queue()
        serving = await asyncio.start_server(lambda _, writer: arrived.put_nowait(writer), sock=found.socket.dup())
        client = socket.create_connection(found.socket.getsockname())
        writer = await arrived.get()
        delay = writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        client.close()
        writer.close()
        serving.close()
        return delay

    found = listening("127.0.0.1", 0)
    assert asyncio.run(accepted()) == 1


def test_a_port_in_use_is_a_sentence(listening):
    port = listening("127.0.0.1", 0).socket.getsockname()[1]
    with pytest.raises(ReviewError, match=f"cannot listen on 127.0.0.1, port {port} .*; try another --port"):
        listening("127.0.0.1", port)


@pytest.mark.parametrize("arguments", [("192.0.2.1", 0), ("no.such.host.invalid", 0)])
def test_an_address_that_cannot_be_is_a_sentence(listening, arguments):
    with pytest.raises(ReviewError, match="cannot listen on"):
        listening(*arguments)
