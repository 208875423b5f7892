"""`onepair review` as a user runs it: it starts, serves, ends at Ctrl-C, and says what is wrong in a sentence."""

import signal
import socket

import httpx2
import pytest

from onepair.cli.finding import has_screen
from onepair.review.answers import Store
from tests.review.processes import serving
from tests.review.runs import open_session, small_run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return small_run(tmp_path_factory.mktemp("review"))


@pytest.fixture
def refused(in_process):
    """The sentence that the command ends in."""

    def run(*arguments):
        code, output, errors = in_process(*arguments)
        assert (code, output) == (2, "")
        assert errors.startswith("onepair: ")
        assert errors.count("\n") == 1
        return errors

    return run


def test_it_serves_until_ctrl_c_and_says_what_comes_next(run):
    with serving(run, "--name", "Ann") as server:
        assert "40 suggestions, 0 answered" in server.said
        page = httpx2.get(server.url, follow_redirects=True)
        assert "Does this image show" in page.text
        assert "Answering as <b>Ann</b>" in page.text
        assert httpx2.get(server.url, headers={"host": "evil.example"}).status_code == 403
        cell = open_session(run).suggestion(1)
        fields = {"file": cell.file, "label": cell.label, "seen": 0, "number": 1, "order": "class", "answer": "no"}
        assert httpx2.post(f"{server.url}/answer", data=fields).status_code == 403  # not from the page
        stored = httpx2.post(f"{server.url}/answer", data=fields, headers={"origin": server.url})
        assert stored.status_code == 303
        server.process.send_signal(signal.SIGINT)
        rest = server.process.stdout.read()
        assert server.process.wait(timeout=600) == 0
    assert f"1 of 40 answered; onepair labels {run} --out completed.csv writes the labels" in rest
    assert "Traceback" not in rest
    assert [entry.answer for entry in Store(run / "finding" / "review.sqlite").entries()] == ["no"]


def test_beyond_this_machine_it_asks_for_the_token_and_a_name(run):
    with serving(run, "--host", "0.0.0.0") as server:  # noqa: S104 (that is what is tested)
        port, token = server.url.split(":")[2].split("/?token=")
        visitor = httpx2.Client(base_url=f"http://127.0.0.1:{port}", follow_redirects=True)
        assert visitor.get("/").status_code == visitor.get("/image/0").status_code == 401
        page = visitor.get("/", params={"token": token})
        assert (page.status_code, page.url.path) == (200, "/name")
        assert "token" not in str(page.url)
        page = visitor.post("/name", data={"name": "Ben"}, headers={"origin": f"http://127.0.0.1:{port}"})
        assert "Answering as <b>Ben</b>" in page.text
        visitor.close()


def test_a_folder_of_runs_will_do(run):
    with serving(run.parent) as server:
        assert httpx2.get(server.url, follow_redirects=True).status_code == 200


def test_a_busy_port_is_a_sentence(run, refused):
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        assert f"cannot listen on 127.0.0.1, port {port}" in refused("review", run, "--port", port)


def test_without_suggestions_it_says_what_to_run_first(tmp_path, refused):
    run = small_run(tmp_path, most=2)
    (run / "finding" / "suggestions.csv").unlink()
    assert f"{run}: nothing is suggested yet; run onepair find {run} first" in refused("review", run, "--port", 0)
    assert "holds no run with suggestions" in refused("review", tmp_path / "nowhere", "--port", 0)
    assert not (run / "finding" / "review.sqlite").exists()


def test_a_folder_that_cannot_be_written_to_is_a_sentence(tmp_path, refused):
    run = small_run(tmp_path, most=2)
    (run / "finding" / "review.sqlite").mkdir()
    assert "review.sqlite: cannot keep answers" in refused("review", run, "--port", 0)


@pytest.mark.parametrize("screen", [True, False])
def test_a_browser_is_opened_where_there_is_a_screen_for_it(run, in_process, monkeypatch, screen):
    opened, served = [], []

    def wait(page):
        served.append(page.url)
        page.stop()

    monkeypatch.setattr("onepair.review.server.Page.wait", wait)
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setattr("onepair.cli.finding.has_screen", lambda: screen)
    assert in_process("review", run, "--port", 0, "--open").returncode == 0
    assert opened == (served if screen else [])


def test_no_window_is_opened_over_a_bare_connection(monkeypatch):
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    assert not has_screen()
    monkeypatch.setenv("DISPLAY", ":0")
    assert has_screen()
    monkeypatch.setattr("sys.stdout.isatty", lambda: False, raising=False)
    assert not has_screen()
