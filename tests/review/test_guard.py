"""Who gets in: by Host, Origin and token."""

import pytest
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from onepair.review.server import Guard, Rules

TOKEN = "a-token-of-some-length"  # noqa: S105 (it opens nothing)
ALONE = Rules(frozenset({"127.0.0.1", "localhost", "::1"}))
SHARED = Rules(frozenset({"127.0.0.1", "localhost", "den"}), TOKEN, "onepair_token_80")


def client(rules, host="127.0.0.1"):
    async def inside(scope, receive, send):
        await PlainTextResponse("inside")(scope, receive, send)

    return TestClient(Guard(inside, rules), base_url=f"http://{host}", follow_redirects=False)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:8765", "localhost:9000", "LOCALHOST", "[::1]:8765"])
def test_this_machine_is_let_in_by_its_own_names(host):
    assert client(ALONE).get("/", headers={"host": host}).text == "inside"


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8765", "10.0.0.7", "", "[", "a@localhost.x"],
)
def test_other_names_are_refused(host):
    """A foreign page may let its own name point to this machine, but the browser says by which name it comes."""
    answer = client(ALONE).get("/", headers={"host": host})
    assert answer.status_code == 403
    assert "inside" not in answer.text


@pytest.mark.parametrize("host", ["127.0.0.1:8765", "localhost"])
def test_answers_from_the_page_itself_are_taken(host):
    headers = {"host": host, "origin": f"http://{host}"}
    assert client(ALONE).post("/answer", headers=headers, data={"a": 1}).text == "inside"


@pytest.mark.parametrize(
    "origin",
    [
        None,
        "",
        "null",
        "http://evil.example",
        "http://127.0.0.1:9999",
        "http://127.0.0.1:8765.evil.example",
        "127.0.0.1:8765",
    ],
)
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_answers_from_anywhere_else_are_refused(origin, method):
    headers = {"host": "127.0.0.1:8765"} | ({} if origin is None else {"origin": origin})
    answer = client(ALONE).request(method, "/answer", headers=headers, data={"a": 1})
    assert (answer.status_code, "inside" in answer.text) == (403, False)


def test_bodies_have_a_largest_size():
    headers = {"origin": "http://127.0.0.1", "content-type": "application/x-www-form-urlencoded"}
    assert client(ALONE).post("/", headers=headers, content=b"x" * 1_000_000).text == "inside"
    assert client(ALONE).post("/", headers=headers, content=b"x" * 1_000_001).status_code == 413
    endless = (b"x" for _ in range(3))  # sent in pieces, without saying how many
    assert client(ALONE).post("/", headers=headers, content=endless).status_code == 413


@pytest.mark.parametrize("headers", [{"x": "x" * 70_000}, {"x": "x" * 40_000, "y": "y" * 30_000}])
def test_headers_have_a_largest_size(headers):
    assert client(ALONE).get("/", headers={"x": "x" * 60_000}).text == "inside"
    assert client(ALONE).get("/", headers=headers).status_code == 431


def test_a_token_in_the_address_becomes_a_cookie():
    visitor = client(SHARED, "den")
    assert visitor.get("/").status_code == 401
    entry = visitor.get(f"/?token={TOKEN}")
    assert (entry.status_code, entry.headers["location"]) == (303, "/")
    cookie = entry.headers["set-cookie"].lower()
    assert cookie.startswith("onepair_token_80=")
    assert "httponly" in cookie
    assert "samesite=lax" in cookie
    assert visitor.get("/image/3").text == "inside"


@pytest.mark.parametrize("token", ["", "x", TOKEN[:-1], TOKEN + "x", "ä"])
def test_wrong_tokens_stay_outside(token):
    visitor = client(SHARED, "den")
    assert visitor.get("/", params={"token": token}).status_code == 401
    assert visitor.get("/", headers={"cookie": f"onepair_token_80={token}".encode()}).status_code == 401
    assert visitor.get("/", headers={"cookie": f"onepair_token_99={TOKEN}"}).status_code == 401
    answer = visitor.post(f"/answer?token={TOKEN}", headers={"origin": "http://den"}, data={"a": 1})
    assert answer.status_code == 401  # a token in the address opens pages, it does not answer


def test_with_a_token_addresses_in_numbers_are_answered_and_other_names_are_not():
    cookie = {"cookie": f"onepair_token_80={TOKEN}"}
    for host, status in (("192.168.1.7:8765", 200), ("[fe80::1]:8765", 200), ("den", 200), ("evil.example", 403)):
        assert client(SHARED).get("/", headers={**cookie, "host": host}).status_code == status


def test_every_answer_has_strict_headers():
    for host in ("localhost", "evil.example"):
        headers = client(ALONE).get("/", headers={"host": host}).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["cache-control"] == "no-store"
