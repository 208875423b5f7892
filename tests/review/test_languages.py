"""The page in English, German and Spanish: every sentence is there, in the language that the browser asks for."""

import ast
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from jinja2 import Environment
from starlette.testclient import TestClient

from onepair import review
from onepair.review.answers import Answer
from onepair.review.language import LANGUAGES, best_language, catalogue, language, number, points, time_left
from tests.review.audits import audit_run, open_audit_app
from tests.review.runs import open_app, small_run

FOLDER = Path(review.__file__).parent
OTHERS = [name for name in LANGUAGES if name != "en"]
PAGES = (
    "/", "/?order=wrong", "/suggestion/1", "/suggestion/1/labels", "/grid?label=bar", "/classes", "/photos", "/photo/0",
    "/photos?only=wrong", "/training", "/runs", "/download", "/done", "/help", "/name",
)  # fmt: skip


def messages():
    """Every message that templates and code ask for: its singular and, where there is one, its plural."""
    environment = Environment(extensions=["jinja2.ext.i18n"], autoescape=True)
    found = set()
    for template in (FOLDER / "templates").iterdir():
        for _, _, words in environment.extract_translations(template.read_text()):
            found.add(tuple(filter(None, words)) if isinstance(words, tuple) else (words,))
    for module in FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("gettext", "ngettext"):
                words = tuple(each.value for each in node.args if isinstance(each, ast.Constant))
                found.add(words)
    return sorted(found - {()})


def placeholders(sentence):
    """What is filled in, and the elements."""
    return sorted(re.findall(r"%\(\w+\)s|%%|\{n\}|</?\w+", sentence))


@pytest.mark.parametrize("name", OTHERS)
def test_every_sentence_is_there_with_all_that_is_filled_in(name):
    known = catalogue(name)
    assert len(messages()) > 200
    assert set(known) == {words[0] for words in messages()}
    for words in messages():
        assert len(known[words[0]]) == len(words), words
        for ours, theirs in zip(words, known[words[0]], strict=True):
            assert theirs.strip()
            assert placeholders(ours) == placeholders(theirs), theirs
            assert (ours[-1:] in ".?…") == (theirs[-1:] in ".?…"), theirs


class Words(HTMLParser):
    """What a page says to somebody: texts, and the attributes that are read out or shown."""

    def __init__(self, text):
        super().__init__()
        self.said = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if (
                value
                and value[0] != "/"
                and (name in ("aria-label", "placeholder", "alt", "title") or name.startswith("data-"))
            ):
                self.said.append(value)

    def handle_data(self, data):
        self.said.append(data)


def english_words():
    """Words that are in English sentences, and in none of the German and Spanish ones."""
    ours, theirs = set(), {"run", "ann", "yes", "no"}
    for words in messages():
        ours |= set(re.findall(r"[a-z]{3,}", re.sub(r"%\(\w+\)s|<[^>]*>", " ", " ".join(words).lower())))
    for name in OTHERS:
        for words in catalogue(name).values():
            theirs |= set(re.findall(r"[a-z]{3,}", re.sub(r"%\(\w+\)s|<[^>]*>", " ", " ".join(words).lower())))
    return ours - theirs


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    app, session = open_app(small_run(tmp_path_factory.mktemp("review")))
    cell = session.suggestion(2)
    session.record([Answer(cell.file, cell.label, "yes", 0)], who="Ben")
    session.record([Answer(session.suggestion(3).file, session.suggestion(3).label, "skip", 0)], who="Ann")
    return TestClient(app)


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("address", PAGES)
def test_no_page_shows_english_words_to_others(site, name, address):
    answer = site.get(address, headers={"Accept-Language": f"{name}-XX,{name};q=0.9,en;q=0.1"})
    assert answer.status_code == 200
    assert f'<html lang="{name}">' in answer.text
    said = " ".join(Words(answer.text).said)
    for command in re.findall(r"<code>(.*?)</code>", answer.text):
        said = said.replace(command, "")
    shown = set(re.findall(r"[a-z]{3,}", said.lower()))
    assert shown & english_words() == set()


@pytest.mark.parametrize("name", OTHERS)
def test_an_audit_shows_no_english_words_to_others(name, tmp_path):
    client = TestClient(open_audit_app(audit_run(tmp_path / "audited"))[0], headers={"Accept-Language": name})
    for address in ("/image-1", "/done", "/help", "/name", "/download"):
        answer = client.get(address)
        assert f'<html lang="{name}">' in answer.text
        shown = set(re.findall(r"[a-z]{3,}", " ".join(Words(answer.text).said).lower()))
        assert shown & english_words() == set()


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("", "en"), ("de", "de"), ("DE-at", "de"), ("fr", "en"), ("fr,es;q=0.3", "es"), ("en;q=0.5,es;q=0.7", "es"),
        ("de;q=0", "en"), ("*", "en"), ("de;q=x", "en"), ("../../etc/passwd", "en"), (",;q=1," * 5000, "en"),
        ("de\x00", "en"), ("es;q=1.0, de;q=1", "es"),
    ],
)  # fmt: skip
def test_the_browser_chooses_the_language(header, expected):
    assert best_language(header) == expected


def test_numbers_and_times_are_written_as_the_language_does():
    written = {}
    for name in LANGUAGES:
        token = language.set(name)
        written[name] = number(12345), points(0.8925), time_left(5400)
        language.reset(token)
    assert written["en"] == ("12,345", "89.2", "about 1.5 h left")
    assert written["de"] == ("12.345", "89,2", "noch etwa 1,5 h")
    assert written["es"] == ("12.345", "89,2", "quedan unas 1,5 h")
