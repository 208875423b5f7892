"""The pages: what they show, and what becomes of the answers."""

import csv
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from starlette.testclient import TestClient

from onepair import review
from onepair.review.answers import Decision
from tests.review.runs import (
    CLASSES,
    open_app,
    small_run,
    truth_of,
    write_images,
    write_run,
    write_suggestions,
)

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


@pytest.fixture
def run(tmp_path):
    return small_run(tmp_path)


@pytest.fixture
def site(run):
    app, desk = open_app(run)
    return Site(TestClient(app), desk)


class Site:
    """The application as a browser without scripts uses it."""

    def __init__(self, client, desk):
        self.client, self.desk = client, desk

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


def test_the_first_page_asks_about_the_surest_suggestion(site):
    page, cell = site.get("/"), site.desk.suggestion(1)
    assert site.number == 1
    assert f"Does this image show {cell.label}?" in page.text
    assert "The model is 95 % sure that it does. Nobody has labelled it." in page.text
    assert "0 of 40 answered" in page.text
    (observed,) = [each.label for each in site.desk.cells(cell.row) if each.observed == 1]
    assert f"{observed} labelled" in page.text
    assert cell.file in page.text


def test_a_wrong_label_is_asked_about_in_the_same_words(site):
    page = site.get("/suggestion/40")
    assert "Probably wrong" in page.text
    assert "The model is 55 % sure that it does not. Its label says that it does." in page.text


def test_a_whole_review_without_scripts(site):
    """Forms alone lead through all suggestions; in the end every label is the true one."""
    page = site.get("/")
    while site.url.path != "/done":
        cell = site.desk.suggestion(site.number)
        (action, fields) = next(form for form in page.forms if ("answer", "skip") in form[1])
        hidden = {name: value for name, value in fields if name != "answer"}
        page = site.post(action, **hidden, answer=truth_of(site.desk, cell))
    assert "All 40 suggestions are answered" in page.text
    assert f"onepair labels {site.desk.run.path} --out completed.csv" in page.text
    entries = site.desk.store.entries()
    assert len(entries) == 40
    for entry in entries:
        assert entry.answer == truth_of(site.desk, site.desk.find(entry.file, entry.label))
        assert entry.who == "Ann"


@pytest.mark.parametrize("order", ["probability", "class", "image"])
def test_an_answer_leads_to_the_next_one_in_the_same_order(site, order):
    site.get(f"/?order={order}")
    first, second = (site.desk.suggestions.ordered(order)[:2] + 1).tolist()
    assert site.number == first
    site.answer(site.desk.suggestion(first), "yes", order=order)
    assert (site.number, parse_qs(site.url.query)["order"]) == (second, [order])


def test_answers_to_other_labels_of_the_image_stay_on_the_page(site):
    cell = site.desk.suggestion(1)
    other = next(each for each in site.desk.cells(cell.row) if each.observed == 1)
    page = site.answer(other, "no", number=1)
    assert site.number == 1
    assert page.ids()[f"no-{other.label}"]["aria-pressed"] == "true"
    changed = site.desk.find(other.file, other.label)
    assert (changed.answer, changed.shown) == ("no", False)
    page = site.answer(changed, "", number=1)  # pressed again, the button takes it back
    assert page.ids()[f"no-{other.label}"]["aria-pressed"] == "false"


def test_a_label_that_nobody_suggested_is_added(tmp_path):
    app, desk = open_app(small_run(tmp_path, most=6))
    site, cell = Site(TestClient(app), desk), desk.suggestion(1)
    page = site.get("/suggestion/1/labels")
    offered = [dict(fields)["label"] for _, fields in page.forms if "label" in dict(fields)]
    expected = [each.label for each in desk.cells(cell.row) if each.observed != 1 and each.label != cell.label]
    assert offered == expected
    new = next(each for each in desk.cells(cell.row) if each.label in expected and not each.number)
    page = site.answer(new, "yes", number=1)
    assert f"{new.label} added" in page.text
    assert site.number == 1


def test_undo_leads_back_to_what_it_undid(site):
    site.get("/")
    for answer in ("yes", "no"):
        page = site.answer(site.desk.suggestion(site.number), answer)
    assert f"You said no to {site.desk.suggestion(2).label}" in page.text
    page = site.post("/undo")
    assert site.number == 2
    assert f"You said yes to {site.desk.suggestion(1).label}" in page.text
    page = site.post("/undo")
    assert site.number == 1
    assert "undo" not in page.ids()
    site.post("/undo")  # with nothing left, it does nothing
    assert (site.status, site.number) == (200, 1)
    assert len(site.desk.store.entries()) == 4


def test_an_answer_can_be_changed_later(site):
    site.get("/")
    site.answer(site.desk.suggestion(1), "yes")
    page = site.get("/suggestion/1")
    assert "You said yes just now." in page.text
    assert page.ids()["yes"]["aria-pressed"] == "true"
    site.answer(site.desk.suggestion(1), "no")
    assert site.desk.suggestion(1).answer == "no"


def test_who_comes_second_sees_what_the_first_one_said(site):
    cell = site.desk.suggestion(1)
    site.desk.store.record([Decision(cell.file, cell.label, "no", 0)], who="Ben")
    page = site.answer(cell, "yes")
    assert site.status == 409
    assert "Ben said no just now, after you opened this page. Your answer was not stored" in page.text
    assert site.desk.suggestion(1).answer == "no"
    (fields,) = [dict(fields) for _, fields in page.forms if ("answer", "skip") in fields]
    site.answer(cell, "yes")  # the stale version stays refused, however often it is sent
    assert site.desk.suggestion(1).answer == "no"
    site.post("/answer", **{**fields, "answer": "yes"})
    assert (site.status, site.desk.suggestion(1).answer) == (200, "yes")


def test_what_nobody_was_sure_about_is_offered_again_at_the_end(site):
    site.desk.decide(
        [Decision(c.file, c.label, "skip", 0) for c in map(site.desk.suggestion, range(1, 41))],
        who="Ann",
    )
    page = site.get("/")
    assert site.url.path == "/done"
    assert "0 × yes, 0 × no, 40 × not sure" in page.text
    assert {"class": "button", "href": "/suggestion/1"} in [facts for tag, facts in page.elements if tag == "a"]


def test_the_grid_takes_all_but_those_marked(site):
    page = site.get("/grid?label=cross")
    waiting = site.desk.waiting("cross", 1, True, most=24)
    assert "Most of these show cross. Click those that do not." in page.text
    (fields,) = [fields for action, fields in page.forms if action == "/grid"]
    files = [value for name, value in fields if name == "file"]
    assert files == [cell.file for cell in waiting]
    seen = [value for name, value in fields if name == "seen"]
    page = site.post(
        "/grid", label="cross", suggested=1, likely=1, rest="yes", file=files, seen=seen, marked=files[1:3]
    )
    answers = [site.desk.find(file, "cross").answer for file in files]
    assert answers == ["yes", "no", "no"] + ["yes"] * (len(files) - 3)
    assert f"You answered {len(files)} × cross" in page.text
    assert "No cross that is probably missing is left" in page.text
    page = site.post("/undo")
    assert site.url.path == "/grid"
    assert [value for name, value in page.forms[0][1] if name == "file"] == files


def test_the_grid_shows_24_at_a_time(tmp_path):
    run = small_run(tmp_path)
    desk = open_app(run)[1]
    cells = [(desk.table.files[row], "cross") for row in desk.task.train.tolist()]
    unknown = [cell for cell in cells if desk.find(*cell).observed < 0]
    write_suggestions(run, [(*cell, 0.5, "missing") for cell in unknown])
    app, desk = open_app(run)
    page = Site(TestClient(app), desk).get("/grid?label=cross")
    thumbnails = [facts for tag, facts in page.elements if tag == "img"]
    assert len(unknown) > len(thumbnails) == 24
    ahead = next(facts["data-ahead"] for _, facts in page.elements if "data-ahead" in facts).split()
    assert len(ahead) == len(unknown) - 24  # the next page's thumbnails are fetched already


def test_the_grid_of_wrong_labels_asks_the_other_way_round(site):
    cell = site.desk.suggestion(40)
    write_suggestions(site.desk.run.path, [(cell.file, cell.label, 0.7, "wrong")])
    app, desk = open_app(site.desk.run.path)
    page = Site(TestClient(app), desk).get(f"/grid?label={cell.label}&suggested=0")
    assert f"Most of these do not show {cell.label}. Click those that do." in page.text
    assert ("rest", "no") in page.forms[0][1]


def test_unlikely_suggestions_are_asked_about_the_other_way_round_and_at_the_end(site):
    run, cells = site.desk.run.path, [site.desk.suggestion(number) for number in (1, 2)]
    shares = (0.8, 0.3)
    lines = [(cell.file, cell.label, share, "missing") for cell, share in zip(cells, shares, strict=True)]
    write_suggestions(run, lines)
    app, desk = open_app(run)
    site, unlikely = Site(TestClient(app), desk), desk.suggestion(2)
    page = site.get("/")
    assert "0 of 1 answered" in page.text
    page = site.answer(desk.suggestion(1), "yes")
    assert site.url.path == "/done"
    assert "All 1 suggestions are answered" in page.text
    assert "Go on with 1 unlikely ones" in page.text
    assert page.ids()["coming"]["href"] == "/suggestion/2"
    assert "Perhaps missing" in site.get("/suggestion/2").text
    page = site.get(f"/grid?label={unlikely.label}&likely=0")
    assert f"Most of these do not show {unlikely.label}. Click those that do." in page.text
    (fields,) = [dict(fields) for action, fields in page.forms if action == "/grid"]
    site.post("/grid", **fields)
    assert desk.suggestion(2).answer == "no"
    assert "All 1 suggestions are answered" in site.get("/done").text


def test_in_a_grid_one_may_be_unsure_and_undo_keeps_the_marks(site):
    files = [cell.file for cell in site.desk.waiting("bar", 1, True, most=24)]
    fields = {"label": "bar", "suggested": 1, "likely": 1, "rest": "yes", "file": files, "seen": [0] * len(files)}
    site.post("/grid", **fields, marked=[files[0]], unsure=[files[1]])
    answers = [site.desk.find(file, "bar").answer for file in files]
    assert answers == ["no", "skip"] + ["yes"] * (len(files) - 2)
    page = site.post("/undo")
    assert site.url.path == "/grid"
    boxes = [facts for _, facts in page.elements if facts.get("type") == "checkbox" and "checked" in facts]
    assert [(box["name"], box["value"]) for box in boxes] == [("marked", files[0]), ("unsure", files[1])]


def test_an_image_that_is_complete_leads_to_the_next_and_back(site):
    page = site.get("/suggestion/1")
    (fields,) = [dict(fields) for action, fields in page.forms if action == "/complete"]
    row = site.desk.suggestion(1).row
    page = site.post("/complete", **fields)
    assert all(cell.answer == ("yes" if cell.observed == 1 else "no") for cell in site.desk.cells(row))
    assert f"You completed {site.desk.suggestion(1).file}" in page.text
    assert site.desk.suggestion(site.number).row != row
    site.post("/undo")
    assert site.number == 1
    assert all(cell.answer is None for cell in site.desk.cells(row))


def test_the_end_tells_what_is_missing_and_who_disagrees(site):
    (site.desk.run.path / "finding" / "summary.json").write_text('{"missing": 100.0}')
    app, desk = open_app(site.desk.run.path)
    site = Site(TestClient(app), desk)
    for number in range(1, len(desk) + 1):
        site.answer(desk.suggestion(number), "yes")
    page = site.get("/done")
    left = round(desk.still_missing(100.0))
    assert 0 < left < 100
    assert f"About {left} labels are probably still missing" in page.text
    assert "said the same" not in page.text
    client = TestClient(app, cookies={"onepair_name": "Ben"})
    other = Site(client, desk)
    page = other.get("/done")
    assert f"Give a second opinion on {len(desk)} answers of others" in page.text
    page = other.get("/?order=second")
    assert other.number == 1
    assert "What do you say?" in page.text
    assert "said yes" not in page.text
    page = other.answer(desk.suggestion(1), "no", order="second")
    assert other.number == 2
    other.answer(desk.suggestion(2), "yes", order="second")
    page = other.get("/done")
    assert "Two people answered 2 of the questions, and said the same 1 times." in page.text
    cell = desk.suggestion(1)
    assert f"Answered differently {cell.label} {cell.file}" in page.text


def test_of_a_grid_that_two_fill_in_only_what_is_new_counts(site):
    files = [cell.file for cell in site.desk.waiting("bar", 1, True, most=24)]
    site.desk.store.record([Decision(files[0], "bar", "no", 0)], who="Ben")
    page = site.post("/grid", label="bar", suggested=1, likely=1, rest="yes", file=files, seen=[0] * len(files))
    assert site.status == 409
    assert "Somebody else had answered 1 of the images on the last page differently" in page.text
    assert [site.desk.find(file, "bar").answer for file in files] == ["no"] + ["yes"] * (len(files) - 1)


def test_the_class_list_leads_to_classes_those_with_most_left_first(site):
    for cell in site.desk.waiting("square", 1, True, most=100):
        site.answer(cell, "yes")
    page = site.get("/classes")
    for label in CLASSES:
        assert label in page.text
    open_of = {label: sum(kind.open for kind in site.desk.kinds() if kind.label == label) for label in CLASSES}
    names = [facts["data-name"] for tag, facts in page.elements if tag == "li" and "data-name" in facts]
    assert [open_of[name] for name in names] == sorted(open_of.values(), reverse=True)
    assert ("Answered" in page.text) == (0 in open_of.values())
    site.get("/?label=square")
    assert site.desk.suggestion(site.number).label == "square"
    assert parse_qs(site.url.query)["order"] == ["class"]


def test_names_are_asked_for_and_kept(run):
    app, desk = open_app(run, name=None)
    site = Site(TestClient(app), desk)
    site.get("/")
    assert site.url.path == "/name"
    site.answer(desk.suggestion(1), "yes")
    assert (site.url.path, desk.store.entries()) == ("/name", [])
    site.post("/name", name="  \n ")
    assert site.url.path == "/name"
    page = site.post("/name", name=" Zoë\n<b> ")
    assert site.number == 1
    assert "Answering as Zoë <b>" in page.text
    site.answer(desk.suggestion(1), "yes")
    assert desk.store.entries()[0].who == "Zoë <b>"


@pytest.mark.parametrize(
    "address",
    [
        "/suggestion/0", "/suggestion/41", "/suggestion/x", "/image/-1", "/image/44", "/image/..%2f..%2fetc%2fpasswd",
        "/image/%2e%2e/%2e%2e/labels.csv", "/thumbnail/1e9", "/map/0", "/map/41", "/static/..%2fapp.py",
        "/static/%2e%2e/app.py", "/static/nothing.css", "/grid?label=star", "/grid?label=bar&suggested=7", "/grid",
        "/?label=star", "/?order=odd", "/docs", "/openapi.json", "/run/config.toml", "//etc/passwd",
    ],
)  # fmt: skip
def test_what_is_not_there_is_not_found(site, address):
    assert site.client.get(address).status_code in (404, 422)


@pytest.mark.parametrize(
    "change",
    [
        {"file": "gone.png"}, {"file": "../run/config.toml"}, {"file": "43.png"}, {"label": "star"}, {"seen": "x"},
        {"number": 99}, {"answer": "maybe"}, {"order": "odd"},
    ],
)  # fmt: skip
def test_answers_that_make_no_sense_are_not_stored(site, change):
    cell = site.desk.suggestion(1)
    fields = {"file": cell.file, "label": cell.label, "seen": 0, "number": 1, "order": "class", "answer": "yes"}
    assert site.client.post("/answer", data={**fields, **change}).status_code in (404, 422)
    assert site.desk.store.entries() == []


def test_images_and_maps_are_sent_as_images_and_kept_by_the_browser(site):
    page = site.get("/")
    addresses = [facts["src"] for tag, facts in page.elements if tag == "img"]
    addresses += [facts["href"] for tag, facts in page.elements if tag == "image"]
    addresses += [facts["href"] for tag, facts in page.elements if tag == "link"]
    assert len(addresses) == 4
    for address in addresses:
        answer = site.client.get(address)
        assert answer.status_code == 200
        assert answer.headers["content-type"].split(";")[0] in ("image/jpeg", "image/png", "image/svg+xml", "text/css")
        assert "immutable" in answer.headers["cache-control"]
        assert "v=" in address


def test_an_image_that_cannot_be_shown_says_why(site):
    cell = site.desk.suggestion(1)
    site.desk.table.path(cell.row).write_text("no image")
    page = site.get("/suggestion/1")
    assert f"{cell.file}: cannot be read as an image" in page.text
    assert "photo" not in {facts.get("class") for _, facts in page.elements}
    assert f"{cell.file}: cannot be read as an image" in site.get(f"/grid?label={cell.label}").text
    assert site.client.get(f"/image/{cell.row}").status_code == 404


def test_without_maps_there_is_nothing_to_show_them_with(run):
    (run / "finding" / "maps.npy").unlink()
    app, desk = open_app(run)
    page = Site(TestClient(app), desk).get("/")
    assert "where" not in page.ids()
    assert not [facts for _, facts in page.elements if "data-map" in facts]


EVERY_PAGE = ["/", "/grid?label=bar", "/done", "/classes", "/suggestion/1/labels", "/help", "/name"]


@pytest.mark.parametrize("address", EVERY_PAGE)
def test_no_page_needs_anything_from_outside_or_inline(site, address):
    page = site.get(address)
    assert site.status == 200
    for tag, facts in page.elements:
        assert "style" not in facts
        assert not [name for name in facts if name.startswith("on")]
        for name in ("src", "href", "action"):
            assert facts.get(name, "/").startswith("/")
            assert not facts.get(name, "").startswith("//")
        assert tag != "style"
        assert tag != "script" or facts["src"].startswith("/static/review.js?v=")
    assert page.text.count("{") == 0  # nothing of a template or script is left in the text


@pytest.mark.parametrize("address", EVERY_PAGE)
def test_every_page_can_be_read_without_seeing_it(site, address):
    page = site.get(address)
    elements = page.elements
    assert ("html", {"lang": "en"}) in elements
    assert len([tag for tag, _ in elements if tag == "h1"]) == 1
    assert all("alt" in facts for tag, facts in elements if tag == "img")
    identifiers = [facts["id"] for _, facts in elements if "id" in facts]
    assert len(identifiers) == len(set(identifiers))
    for _, facts in elements:
        assert set(facts.get("aria-labelledby", "heading").split()) <= {*identifiers, "heading"}
    labels = {facts.get("for") for tag, facts in elements if tag == "label"}
    for tag, facts in elements:
        if tag == "input" and facts.get("type") != "hidden":
            assert "aria-label" in facts or facts.get("id") in labels or facts["id"] == "single-keys"


def test_names_in_the_data_are_only_ever_text(tmp_path):
    label, file = '<script>alert("x")</script>', '"><img src=x onerror=alert(1)>.png'
    table = write_images(tmp_path / "images")
    (tmp_path / "images" / "00.png").rename(tmp_path / "images" / file)
    rows = [row.split(",") for row in table.read_text().splitlines()]
    rows[0][2], rows[1][0] = label, file
    with table.open("w", newline="") as text:
        csv.writer(text).writerows(rows)
    run = write_run(tmp_path / "run", table)
    write_suggestions(run, [(file, label, 0.5, "wrong")])
    app, desk = open_app(run)
    for address in ("/", "/classes", f"/grid?label={label}&suggested={desk.suggestion(1).suggested}"):
        text = TestClient(app).get(address).text
        assert "<script>alert" not in text
        assert "<img src=x" not in text
        assert "&lt;script&gt;" in text


def test_the_page_does_not_load_torch(run):
    code = (
        "import sys; from pathlib import Path; from tests.review.runs import open_app\n"
        "from starlette.testclient import TestClient\n"
        "app, desk = open_app(Path(sys.argv[1])); client = TestClient(app)\n"
        "assert all(client.get(address).status_code == 200 for address in ('/', '/image/0', '/map/1'))\n"
        "print('torch' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code, run], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


def test_the_script_presses_only_what_a_page_has():
    """Every identifier that the script looks for is in a template."""
    folder = Path(review.__file__).parent
    script = (folder / "static" / "review.js").read_text()
    templates = "".join(path.read_text() for path in (folder / "templates").iterdir())
    names = re.findall(r'getElementById\("([\w-]+)"\)', script)
    assert "page" in names
    for name in names:
        assert f'id="{name}"' in templates
