"""Attempts to come in without the token, and to get hold of it."""

import logging

import pytest

from tests.review.browsers import served
from tests.review.runs import open_app, small_run
from tests.review.wire import PAGES, ask, post

pytestmark = pytest.mark.usefixtures("no_stumbling")

TOKEN = "a-token-that-opens-nothing"  # noqa: S105 (as it says)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """The address of a server that asks for a token."""
    app, _ = open_app(small_run(tmp_path_factory.mktemp("guarded")))
    with served(app, token=TOKEN) as url:
        yield url


@pytest.mark.parametrize("address", PAGES)
def test_without_the_token_nothing_is_seen(guarded, address):
    for cookie in ("", "onepair_token=" + TOKEN, "onepair_token_1=" + TOKEN, f"x={TOKEN}", f"onepair_name={TOKEN}"):
        assert ask(guarded, f"GET {address} HTTP/1.1", f"Cookie: {cookie}").status == 401
    for header in (f"Authorization: Bearer {TOKEN}", f"X-Token: {TOKEN}", f"Referer: {guarded}?token={TOKEN}"):
        assert ask(guarded, f"GET {address} HTTP/1.1", header).status == 401


@pytest.mark.parametrize(
    "given", ["", "x", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "%00", "a%C3%A4", TOKEN + "%20", "[]"]
)
def test_wrong_tokens(guarded, given):
    assert ask(guarded, f"GET /?token={given} HTTP/1.1").status == 401
    assert ask(guarded, f"GET /?token[]={TOKEN}&token={given} HTTP/1.1").status == 401
    assert ask(guarded, f"HEAD /?token={given} HTTP/1.1").status == 401


def test_a_token_in_the_address_answers_nothing(guarded):
    assert post(guarded, f"/class?token={TOKEN}", b"name=evil").status == 401
    assert post(guarded, "/class", f"name=evil&token={TOKEN}".encode()).status == 401


@pytest.mark.parametrize(
    "path", ["//evil.example/", "///evil.example", "/%5Cevil.example", "/%2fevil.example", "/%0d%0aX:y"]
)
def test_the_entrance_leads_to_no_other_host(guarded, path):
    reply = ask(guarded, f"GET {path}?token={TOKEN} HTTP/1.1")
    target = next((line[10:] for line in reply.head.split("\r\n") if line.startswith("location: ")), "/")
    assert target.startswith("/")
    assert not target.startswith(("//", "/\\"))
    assert "\r\nx:" not in reply.head


def test_the_token_is_in_no_page_no_header_and_no_log(guarded, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    cookie = f"onepair_token_{guarded.rstrip('/').rpartition(':')[2]}={TOKEN}"
    entry = ask(guarded, f"GET /?token={TOKEN} HTTP/1.1")
    assert "location: /\r\n" in f"{entry.head}\r\n"
    for attribute in ("httponly", "samesite=lax", f"set-cookie: {cookie}"):
        assert attribute in entry.head
    for address in (*PAGES, "/no-such-page", f"/grid?label={TOKEN[::-1]}", "/suggestion/x"):
        reply = ask(guarded, f"GET {address} HTTP/1.1", f"Cookie: {cookie}")
        assert reply.status != 401
        assert TOKEN not in reply.head + reply.body.decode("latin-1")
        assert "referrer-policy: same-origin" in reply.head
    assert TOKEN not in caplog.text + "".join(capfd.readouterr())
