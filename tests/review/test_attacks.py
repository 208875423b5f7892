"""The page under attack, byte by byte: names, origins, paths, bodies, and connections that never end."""

import time
from contextlib import ExitStack

import pytest

from onepair.review import server
from tests.review.audits import audit_run, open_audit_app
from tests.review.browsers import served
from tests.review.runs import open_app, small_run
from tests.review.wire import PAGES, ask, connect, post, read

pytestmark = pytest.mark.usefixtures("no_stumbling")

FORMS = ("/answer", "/complete", "/undo", "/grid", "/training", "/class", "/name", "/run", "/alike")


@pytest.fixture(scope="module")
def review(tmp_path_factory):
    """The session of a server that nobody has answered at, with its address."""
    app, session = open_app(small_run(tmp_path_factory.mktemp("review")))
    with served(app) as session.url:
        yield session


@pytest.fixture(scope="module")
def audit(tmp_path_factory):
    app, session = open_audit_app(audit_run(tmp_path_factory.mktemp("audit") / "audited"))
    with served(app) as session.url:
        yield session


@pytest.fixture
def impatient(tmp_path, monkeypatch):
    """A server with little time and few places, which are changed back only after it has ended."""
    monkeypatch.setattr(server, "LONGEST_REQUEST", 0.5)
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 4)
    app, session = open_app(small_run(tmp_path))
    with served(app) as session.url:
        yield session


def port(session):
    return session.url.rstrip("/").rpartition(":")[2]


def keep_sending(connection):
    """A byte now and then, for two hundred times as long as the impatient server waits."""
    for _ in range(1000):
        connection.sendall(b"x")
        time.sleep(0.1)


def untouched(session):
    session.refresh()
    return not session.store.entries() and not session.store.classes()


# Another name for this machine: a foreign page whose name leads here is the page's own origin to the browser


@pytest.mark.parametrize(
    "host",
    [
        "evil.example:{port}", "127.0.0.1.evil.example:{port}", "localhost.evil.example", "evil.example#127.0.0.1",
        "evil@127.0.0.1:{port}", "127.0.0.1:{port}@evil.example", "127.0.0.1/evil", "127.0.0.1?evil", "127.0.0.1\\evil",
        "127.0.0.1:{port}:80", "127.0.0.1:{port}, evil.example", "127.0.0.1 evil.example", "0.0.0.0:{port}", "127.1",
        "2130706433", "0x7f000001", "[::ffff:127.0.0.1]", "localhost.", "", "[", "[::1", "xn--lcalhost-54a", "%6cocal",
    ],
)  # fmt: skip
def test_other_hosts(review, host):
    reply = ask(review.url, "GET /suggestion/1 HTTP/1.1", f"Host: {host.format(port=port(review))}")
    assert reply.status in (400, 403)
    assert b"<html" not in reply.body


@pytest.mark.parametrize(("first", "second"), [("127.0.0.1", "evil.example"), ("evil.example", "127.0.0.1")])
def test_two_hosts(review, first, second):
    assert ask(review.url, "GET / HTTP/1.1", f"Host: {first}", f"Host: {second}").status in (400, 403)


def test_no_host(review):
    with connect(review.url) as connection:
        connection.sendall(b"GET /suggestion/1 HTTP/1.0\r\n\r\n")
        assert read(connection).status == 403


@pytest.mark.parametrize(
    "header",
    ["X-Forwarded-Host: 127.0.0.1", "X-Host: 127.0.0.1", "Forwarded: host=127.0.0.1", "X-Original-URL: /"],
)  # fmt: skip
def test_the_word_of_a_proxy_is_nobodys(review, header):
    assert ask(review.url, "GET / HTTP/1.1", "Host: evil.example", header).status in (400, 403)


@pytest.mark.parametrize("header", ["X-Forwarded-Proto: https", "X-Forwarded-Prefix: //evil.example"])
def test_addresses_do_not_change_by_a_header(review, header):
    reply = ask(review.url, "GET / HTTP/1.1", header)
    assert (reply.status, "location: /suggestion/" in reply.head) == (303, True)
    corrected = ask(review.url, "GET /help/ HTTP/1.1", header)  # the one answer that names its own scheme and host
    assert f"location: {review.url}help\r\n" in corrected.head


@pytest.mark.parametrize("target", ["http://evil.example/", "//evil.example/", "evil.example:443", "*", "/\\evil"])
def test_other_forms_of_addresses_lead_nowhere(review, target):
    reply = ask(review.url, f"GET {target} HTTP/1.1")
    assert reply.status in (400, 404)
    assert "evil.example" not in reply.head


# Answers from other pages


@pytest.mark.parametrize(
    "origin",
    [
        "", "null", "http://evil.example", "https://127.0.0.1:{port}", "http://127.0.0.1", "http://127.0.0.1:1",
        "http://localhost:{port}", "http://127.0.0.1:{port}.evil.example", "http://evil@127.0.0.1:{port}", "file://",
        "http://127.0.0.1:{port}/", "127.0.0.1:{port}", "http://[", "http://evil.example, http://127.0.0.1:{port}",
    ],
)  # fmt: skip
def test_answers_from_other_origins(review, origin):
    reply = post(review.url, "/class", b"name=evil", origin=origin.format(port=port(review)))
    assert reply.status == 403
    assert untouched(review)


@pytest.mark.parametrize("address", FORMS)
def test_every_form_asks_for_the_origin(review, address):
    body = b"name=evil&wish=start&order=worth"
    assert post(review.url, address, body, origin="http://evil.example").status == 403
    assert post(review.url, address, body, "Origin:").status == 403
    assert untouched(review)


def test_two_origins(review):
    assert (
        post(review.url, "/class", b"name=evil", "Origin: http://evil.example", f"Origin: {review.url[:-1]}").status
        == 403
    )


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_what_another_page_fetches(review, site):
    headers = f"Sec-Fetch-Site: {site}", "Sec-Fetch-Dest: image"
    for mode in ("no-cors", "cors", "websocket"):
        assert ask(review.url, "GET /image/0 HTTP/1.1", *headers, f"Sec-Fetch-Mode: {mode}").status == 403
    assert ask(review.url, "GET /help HTTP/1.1", f"Sec-Fetch-Site: {site}", "Sec-Fetch-Mode: navigate").status == 200


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "get", "X"])
def test_other_methods(review, method):
    from_elsewhere = ask(review.url, f"{method} /answer HTTP/1.1", "Origin: http://evil.example",
                         "Access-Control-Request-Method: POST")  # fmt: skip
    assert from_elsewhere.status in (400, 403)
    assert "access-control-allow" not in from_elsewhere.head
    own = ask(review.url, f"{method} /answer HTTP/1.1", f"Origin: {review.url[:-1]}", "Content-Length: 0",
              "Content-Type: application/x-www-form-urlencoded", "Cookie: secret=1")  # fmt: skip
    assert own.status in (400, 404, 405)
    assert b"secret" not in own.body


@pytest.mark.parametrize("header", ["X-HTTP-Method-Override: POST", "X-Method: POST"])
def test_reading_does_not_write(review, header):
    for address in (*FORMS, "/class?name=evil", "/training?wish=start", "/undo?order=worth"):
        ask(review.url, f"GET {address} HTTP/1.1", header)
    assert untouched(review)
    assert not (review.run.path / "finding" / "retraining.json").exists()


@pytest.mark.parametrize("protocol", ["websocket", "h2c", "TLS/1.0"])
def test_no_other_protocol_is_spoken(review, protocol):
    lines = (
        "GET /help HTTP/1.1", f"Host: 127.0.0.1:{port(review)}", "Connection: Upgrade, close", f"Upgrade: {protocol}",
        "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "", "",
    )  # fmt: skip
    with connect(review.url) as connection:
        connection.sendall("\r\n".join(lines).encode())
        assert read(connection).status == 200  # an ordinary answer, and no 101


# Paths


STEPS = (
    "..%2f..%2f..%2fetc%2fpasswd", "%2e%2e/%2e%2e/etc/passwd", "../../../etc/passwd", "..%252f..%252fetc%252fpasswd",
    "..\\..\\etc\\passwd", "..%5c..%5cetc%5cpasswd", "%2fetc%2fpasswd", "/etc/passwd", "file:%2f%2f%2fetc%2fpasswd",
    "%00", "1%00.png", "0%0d%0aSet-Cookie:%20a=b", "%c0%ae%c0%ae%c0%afetc", "-1", "1e1", "0x1", "9" * 4999, "%ff",
)  # fmt: skip
REVIEW_PATHS = (
    "/static/{}",
    "/image/{}",
    "/photo/{}",
    "/download/{}",
    "/thumbnail/{}",
    "/map/{}",
    "/suggestion/{}",
    "/suggestion/{}/labels",
    "/{}",
)


@pytest.mark.parametrize("path", REVIEW_PATHS)
def test_paths_lead_nowhere_else(review, path):
    for step in STEPS:
        reply = ask(review.url, f"GET {path.format(step)} HTTP/1.1")
        assert reply.status in (400, 404, 422), step
        assert b"root:" not in reply.body
        assert "set-cookie" not in reply.head


def test_paths_of_an_audit_lead_nowhere_else(audit):
    for step in STEPS:
        assert ask(audit.url, f"GET /image-{step} HTTP/1.1").status in (400, 404, 422), step


@pytest.mark.parametrize(
    "path",
    [
        "/?label={}",
        "/?order={}",
        "/grid?label={}",
        "/grid?label=bar&suggested={}",
        "/photos?page={}",
        "/photos?only={}",
    ],
)
def test_queries_lead_nowhere_else(review, path):
    for step in STEPS:
        assert ask(review.url, f"GET {path.format(step)} HTTP/1.1").status in (400, 404, 422), step


@pytest.mark.parametrize("field", ["file", "label", "seen", "number", "order", "answer"])
def test_fields_of_an_answer(review, field):
    cell = review.suggestion(1)
    fields = {"file": cell.file, "label": cell.label, "seen": "0", "number": "1", "order": "worth", "answer": "yes"}
    for step in (*STEPS, "'; DROP TABLE decisions; --".replace(" ", "+"), "=1%2B1", "%F0%9F"):
        if (field, step) in (("seen", "-1"), ("number", "-1")):
            continue  # a number, though no place
        body = "&".join(f"{name}={value}" for name, value in {**fields, field: step}.items())
        assert post(review.url, "/answer", body.encode()).status in (400, 404, 422), step
    assert untouched(review)


@pytest.mark.parametrize("field", ["label", "without", "folder", "by", "text"])
def test_what_is_searched_is_only_ever_compared(review, field):
    hostile = (
        "%27%20OR%201=1--",
        "%00",
        "%0d%0aSet-Cookie:%20a=b",
        "../../etc/passwd",
        "(a+)+$",
        "%25s%7B7*7%7D",
        "%ff",
    )
    for words in (*hostile, "%3Cscript%3Ealert(1)%3C/script%3E", "%22%3E%3Cimg%20src=x%20onerror=alert(1)%3E"):
        reply = ask(review.url, f"GET /photos?{field}={words} HTTP/1.1")
        assert reply.status == 200, words
        assert b"<script>alert" not in reply.body
        assert b"<img src=x" not in reply.body
        assert (b'<li><a href="/photo/' in reply.body) == (field == "without")  # nothing is called so
        assert "set-cookie" not in reply.head
    assert ask(review.url, f"GET /photos?{field}={'x' * 5000} HTTP/1.1").status == 422
    assert ask(review.url, "GET /photos?page=" + "9" * 9 + " HTTP/1.1").status == 422


@pytest.mark.parametrize(
    "run", [b"..", b".", b"", b"%2e%2e%2f", b"/etc", b"run%00", b"run%2f..", b"images", b"x" * 90_000]
)
def test_only_runs_that_belong_together_are_shown(review, run):
    assert post(review.url, "/run", b"run=" + run).status in (404, 422)
    assert ask(review.url, "GET /suggestion/1 HTTP/1.1").status == 200


@pytest.mark.parametrize(
    "languages", ["de" * 30_000, "de;q=1e999", "de\x00,es", "../de", "de;q=" + "1" * 5000, ",".join(["a;q=0.1"] * 9000)]
)
def test_languages_lead_nowhere_else(review, languages):
    reply = ask(review.url, "GET /help HTTP/1.1", f"Accept-Language: {languages}")
    assert reply.status in (0, 200, 400, 431)
    assert b"root:" not in reply.body


def test_labels_are_for_those_who_may_read_them(review):
    for form in ("same", "csv", "json", "answers"):
        foreign = "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors"
        assert ask(review.url, f"GET /download/{form} HTTP/1.1", *foreign).status == 403
        assert ask(review.url, f"GET /download/{form} HTTP/1.1", "Host: evil.example").status == 403
        assert post(review.url, f"/download/{form}", b"").status == 405


def test_answers_of_an_audit_about_what_it_does_not_have(audit):
    for body in (
        b"number=1&seen=0&ticked=evil",
        b"number=-1&seen=0",
        b"number=1&seen=-1",
        b"number=1&seen=0&ticked=%00",
    ):
        assert post(audit.url, "/complete", body).status in (404, 422)
    assert audit.store.is_empty


# Bodies


LARGE = b"name=" + b"x" * 1_000_000


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ([], LARGE, 413),
        (["Content-Length: 99999999999"], b"", 413),
        (["Content-Length: -1"], b"", 400),
        (["Content-Length: 1_0"], b"name=evil", 400),
        (["Content-Length:"], b"", 413),
        (["Content-Length: 9", "Content-Length: 10"], b"name=evil", 400),
        (["Content-Length:", "Transfer-Encoding: chunked"], b"9\r\nname=evil\r\n0\r\n\r\n", 413),
        (["Transfer-Encoding: chunked"], b"9\r\nname=evil\r\n0\r\n\r\n", 413),
        (["Content-Length: 9", "Transfer-Encoding: gzip"], b"name=evil", 501),
        (["Content-Type: text/plain"], b"name=evil", 415),
        (["Content-Type: application/json"], b'{"name": "evil"}', 415),
        (["Content-Type: multipart/form-data; boundary=x"], b"--x--", 415),
        (["Content-Type:"], b"name=evil", 415),
        ([], b"a=1&" * 200_000, 400),
    ],
)
def test_bodies_that_are_no_answer(review, headers, body, status):
    assert post(review.url, "/class", body, *headers).status in (status, 400)
    assert untouched(review)


def test_a_body_where_none_belongs(review):
    assert ask(review.url, "GET /help HTTP/1.1", "Content-Length: 5000000", body=b"x" * 5_000_000).status in (0, 413)


def test_a_second_request_within_the_first_is_not_heard(review):
    hidden = f"POST /class HTTP/1.1\r\nHost: 127.0.0.1:{port(review)}\r\n\r\n".encode()
    reply = post(review.url, "/undo", b"0\r\n\r\n" + hidden, "Transfer-Encoding: chunked")
    assert reply.status in (400, 413)
    assert reply.body.count(b"HTTP/1.1") == 0


def test_endless_headers(review):
    for size in (70_000, 200_000):
        assert ask(review.url, "GET / HTTP/1.1", f"X: {'x' * size}").status in (0, 400, 431)
        assert ask(review.url, f"GET /?{'x' * size} HTTP/1.1").status in (0, 400, 414, 431)


@pytest.mark.parametrize("bytes_sent", [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\x00" * 100, b"GET\r\n\r\n"])
def test_what_is_no_http(review, bytes_sent):
    with connect(review.url) as connection:
        connection.sendall(bytes_sent + b"\r\n\r\n")
        assert read(connection).status == 400


# Time and places


@pytest.mark.parametrize(
    "start",
    [
        b"",
        b"GET / HT",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ",
        b"POST /class HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\nContent-Length: 900\r\n"
        b"Content-Type: application/x-www-form-urlencoded\r\n\r\nname=",
    ],
)
def test_who_sends_slowly_is_cut_off(impatient, start):
    with connect(impatient.url) as connection:
        connection.sendall(start.replace(b"{host}", f"127.0.0.1:{port(impatient)}".encode()))
        with pytest.raises(ConnectionError):
            keep_sending(connection)
    assert untouched(impatient)


def test_who_does_not_read_is_cut_off(impatient):
    with connect(impatient.url) as connection:
        request = f"GET /static/review.js HTTP/1.1\r\nHost: 127.0.0.1:{port(impatient)}\r\n\r\n".encode()
        with pytest.raises(ConnectionError):
            connection.sendall(request * 200_000)


def test_who_takes_all_places_gets_no_more_and_loses_them(impatient, monkeypatch):
    monkeypatch.setattr(server, "LONGEST_REQUEST", 5.0)  # for three questions on a busy machine
    with ExitStack() as held:
        silent = [held.enter_context(connect(impatient.url)) for _ in range(4)]
        assert [ask(impatient.url, "GET /help HTTP/1.1").status for _ in range(3)] == [0, 0, 0]
        assert [read(each).status for each in silent] == [0] * 4  # after their time
        monkeypatch.setattr(server, "LONGEST_REQUEST", 60.0)
        assert ask(impatient.url, "GET /help HTTP/1.1").status == 200


# What is sent with every answer


@pytest.mark.parametrize("address", [*PAGES, "/no-such-page", "/suggestion/x"])
def test_every_answer_is_strict(review, address):
    head = ask(review.url, f"GET {address} HTTP/1.1").head
    assert "default-src 'none'" in head
    for header in ("x-content-type-options: nosniff", "cross-origin-resource-policy: same-origin",
                   "cross-origin-opener-policy: same-origin", "frame-ancestors 'none'"):  # fmt: skip
        assert header in head
    assert "server:" not in head
    assert "access-control-allow" not in head


@pytest.mark.parametrize(
    "name",
    ["%0d%0aSet-Cookie:%20evil=1", "evil%3B%20Path=/evil", "%00", "%E2%80%AEnnA", "%FF%FE", "x" * 100_000, "%ed%a0%80"],
)
def test_names_are_no_headers(review, name):
    reply = post(review.url, "/name", f"name={name}".encode())
    assert reply.status == 303
    assert reply.head.count("\r\nset-cookie:") == 1
    assert "path=/evil" not in reply.head
    assert ask(review.url, "GET /help HTTP/1.1", f"Cookie: onepair_name={name[:60_000]}").status in (0, 200, 303, 400)
