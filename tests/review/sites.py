"""The application as a browser without scripts uses it, and its pages as a machine reads them."""

from html.parser import HTMLParser
from urllib.parse import urlsplit

VOID = {"meta", "img", "link", "input"}


class Page(HTMLParser):
    """Checks that elements nest, and keeps what they hold."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.words, self.forms = [], [], "", []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        facts = dict(attributes)
        self.elements.append((tag, facts))
        if tag == "form":
            self.forms.append((facts["action"], []))
        if tag in ("input", "button") and "form" in self.open and facts.get("type") != "checkbox" and "name" in facts:
            self.forms[-1][1].append((facts["name"], facts["value"]))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words += data

    @property
    def text(self):
        return " ".join(self.words.split())

    def ids(self):
        return {facts["id"]: facts for _, facts in self.elements if "id" in facts}


class Site:
    """The application as a browser without scripts uses it."""

    def __init__(self, client, session):
        self.client, self.session = client, session

    def get(self, address):
        return self.keep(self.client.get(address))

    def post(self, address, **fields):
        return self.keep(self.client.post(address, data=fields))

    def keep(self, answer):
        self.status, self.url = answer.status_code, urlsplit(str(answer.url))
        return Page(answer.text) if answer.headers["content-type"].startswith("text/html") else answer

    def answer(self, cell, answer, *, number=None, order="probability"):
        fields = {"file": cell.file, "label": cell.label, "seen": cell.version, "number": number or cell.number}
        return self.post("/answer", answer=answer, order=order, **fields)

    @property
    def number(self):
        return int(self.url.path.removeprefix("/suggestion/"))
