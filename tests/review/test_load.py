"""Several people at once over real connections: benchmarks/review_load.py in short."""

import os
import re
import signal
import threading
from contextlib import closing, suppress
from html import unescape
from http.client import HTTPConnection, HTTPException
from urllib.parse import quote, urlencode, urlsplit

import pytest

from tests.review.browsers import served
from tests.review.processes import serving
from tests.review.runs import open_app, open_session, small_run

PEOPLE = ("Ann", "Bob", "Cem", "Dan", "Eve")
HIDDEN = re.compile(r'type="hidden" name="(\w+)" value="([^"]*)"')


@pytest.fixture
def review(tmp_path):
    app, session = open_app(small_run(tmp_path))
    with served(app) as session.url:
        yield session


class Person:
    """Answers until nothing is open, and remembers what was acknowledged."""

    def __init__(self, url, name, *, acknowledged=lambda: None):
        self.host, self.name, self.acknowledged = urlsplit(url).netloc, name, acknowledged
        self.connection = HTTPConnection(self.host, timeout=600)
        self.said = []

    def send(self, method, address, fields=None):
        headers = {"Cookie": f"onepair_name={quote(self.name)}", "Origin": f"http://{self.host}"}
        if fields:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        self.connection.request(method, address, urlencode(fields) if fields else None, headers)
        response = self.connection.getresponse()
        return response.status, response.headers.get("Location"), response.read().decode()

    def work(self):
        _, address, _ = self.send("GET", "/")
        while address != "/done":
            _, _, text = self.send("GET", address)
            form = text.split('class="answers"')[1].split("</form>")[0]
            fields = {name: unescape(value) for name, value in HIDDEN.findall(form)}
            status, address, _ = self.send("POST", "/answer", {**fields, "answer": "yes"})
            assert status == 303  # all say the same, so nobody contradicts
            self.said.append((fields["file"], fields["label"]))
            self.acknowledged()
        self.connection.close()


def test_what_is_acknowledged_is_stored_once_by_somebody_and_in_order(review):
    people = [Person(review.url, name) for name in PEOPLE]
    threads = [threading.Thread(target=person.work) for person in people]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stored = [(entry.who, (entry.file, entry.label)) for entry in review.store.entries()]
    assert {cell for _, cell in stored} == {cell for person in people for cell in person.said}
    assert len({cell for _, cell in stored}) == len(review)
    for person in people:
        own = [cell for who, cell in stored if who == person.name]
        assert len(own) == len(set(own))  # nothing twice
        assert own == [cell for cell in person.said if cell in set(own)]  # of two who say the same at once, one counts


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, 143)])
def test_every_acknowledged_answer_outlives_the_server(tmp_path, number, code):
    run, some = small_run(tmp_path), threading.Semaphore(0)

    def work(person):
        with closing(person.connection), suppress(OSError, HTTPException):  # until the server is gone
            person.work()

    with serving(run) as server:
        people = [Person(server.url, name, acknowledged=some.release) for name in PEOPLE]
        threads = [threading.Thread(target=work, args=[person]) for person in people]
        for thread in threads:
            thread.start()
        for _ in range(12):
            assert some.acquire(timeout=600)
        os.kill(server.process.pid, number)
        for thread in threads:
            thread.join()
        assert server.process.wait() == code
    stored = [(entry.file, entry.label) for entry in open_session(run).store.entries()]
    acknowledged = {cell for person in people for cell in person.said}
    assert 12 <= len(acknowledged) <= len(stored)
    assert acknowledged <= set(stored)
    assert len(stored) == len(set(stored))
    assert len(stored) - len(acknowledged) <= len(people)  # what was stored, and could not be told any more
    with serving(run) as server:
        Person(server.url, "Fay").work()  # and the rest
    session = open_session(run)
    answered = {(entry.file, entry.label) for entry in session.store.entries()}
    assert set(stored) <= answered
    assert len(answered) == len(session)  # whether the server was still at work when the signal came, or done
