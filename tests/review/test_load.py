"""Several people at once over real connections: benchmarks/review_load.py in short."""

import re
import threading
from html import unescape
from http.client import HTTPConnection
from urllib.parse import quote, urlencode, urlsplit

import pytest

from tests.review.browsers import served
from tests.review.runs import open_app, small_run

PEOPLE = ("Ann", "Bob", "Cem", "Dan", "Eve")
HIDDEN = re.compile(r'type="hidden" name="(\w+)" value="([^"]*)"')


@pytest.fixture
def review(tmp_path):
    app, desk = open_app(small_run(tmp_path))
    with served(app) as desk.url:
        yield desk


class Person:
    """Answers until nothing is open, and remembers what was acknowledged."""

    def __init__(self, url, name):
        self.host, self.name = urlsplit(url).netloc, name
        self.connection = HTTPConnection(self.host, timeout=60)
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
