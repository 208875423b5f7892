"""The pages: what they show, and what becomes of the answers."""

import csv
import json
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from starlette.testclient import TestClient

from onepair import review
from onepair.probability.intervals import Interval
from onepair.review.answers import Answer
from tests.review.runs import (
    CLASSES,
    open_app,
    small_run,
    truth_of,
    write_images,
    write_run,
    write_suggestions,
)
from tests.review.sites import Site


def test_the_first_page_asks_about_the_surest_suggestion(site):
    page, cell = site.get("/"), site.session.suggestion(1)
    assert site.number == 1
    assert f"Does this image show {cell.label}?" in page.text
    assert "The model is 95 % sure that it does. Nobody has labelled it." in page.text
    assert "0 of 40 answered" in page.text
    (observed,) = [each.label for each in site.session.cells(cell.row) if each.observed == 1]
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
        cell = site.session.suggestion(site.number)
        (action, fields) = next(form for form in page.forms if ("answer", "skip") in form[1])
        hidden = {name: value for name, value in fields if name != "answer"}
        page = site.post(action, **hidden, answer=truth_of(site.session, cell))
    assert "All suggestions are answered" in page.text
    assert "Download labels" in page.text
    entries = site.session.store.entries()
    assert len(entries) == 40
    for entry in entries:
        assert entry.answer == truth_of(site.session, site.session.find(entry.file, entry.label))
        assert entry.who == "Ann"


@pytest.mark.parametrize("order", ["probability", "class", "image"])
def test_an_answer_leads_to_the_next_one_in_the_same_order(site, order):
    site.get(f"/?order={order}")
    first, second = (site.session.suggestions.ordered(order)[:2] + 1).tolist()
    assert site.number == first
    site.answer(site.session.suggestion(first), "yes", order=order)
    assert (site.number, parse_qs(site.url.query)["order"]) == (second, [order])


def test_answers_to_other_labels_of_the_image_stay_on_the_page(site):
    cell = site.session.suggestion(1)
    other = next(each for each in site.session.cells(cell.row) if each.observed == 1)
    page = site.answer(other, "no", number=1)
    assert site.number == 1
    assert page.ids()[f"no-{other.label}"]["aria-pressed"] == "true"
    changed = site.session.find(other.file, other.label)
    assert (changed.answer, changed.shown) == ("no", False)
    page = site.answer(changed, "", number=1)  # pressed again, the button takes it back
    assert page.ids()[f"no-{other.label}"]["aria-pressed"] == "false"


def test_a_label_that_nobody_suggested_is_added(tmp_path):
    app, session = open_app(small_run(tmp_path, most=6))
    site, cell = Site(TestClient(app), session), session.suggestion(1)
    page = site.get("/suggestion/1/labels")
    offered = [dict(fields)["label"] for _, fields in page.forms if "label" in dict(fields)]
    expected = [each.label for each in session.cells(cell.row) if each.observed != 1 and each.label != cell.label]
    assert offered == expected
    new = next(each for each in session.cells(cell.row) if each.label in expected and not each.number)
    page = site.answer(new, "yes", number=1)
    assert f"{new.label} added" in page.text
    assert site.number == 1


def test_undo_leads_back_to_what_it_undid(site):
    site.get("/")
    for answer in ("yes", "no"):
        page = site.answer(site.session.suggestion(site.number), answer)
    assert f"You said no to {site.session.suggestion(2).label}" in page.text
    page = site.post("/undo")
    assert site.number == 2
    assert f"You said yes to {site.session.suggestion(1).label}" in page.text
    page = site.post("/undo")
    assert site.number == 1
    assert "undo" not in page.ids()
    site.post("/undo")  # with nothing left, it does nothing
    assert (site.status, site.number) == (200, 1)
    assert len(site.session.store.entries()) == 4


def test_an_answer_can_be_changed_later(site):
    site.get("/")
    site.answer(site.session.suggestion(1), "yes")
    page = site.get("/suggestion/1")
    assert "You said yes just now." in page.text
    assert page.ids()["yes"]["aria-pressed"] == "true"
    site.answer(site.session.suggestion(1), "no")
    assert site.session.suggestion(1).answer == "no"


def test_who_comes_second_sees_what_the_first_one_said(site):
    cell = site.session.suggestion(1)
    site.session.store.record([Answer(cell.file, cell.label, "no", 0)], who="Ben")
    page = site.answer(cell, "yes")
    assert site.status == 409
    assert "Ben said no just now, after you opened this page. Your answer was not stored" in page.text
    assert site.session.suggestion(1).answer == "no"
    (fields,) = [dict(fields) for _, fields in page.forms if ("answer", "skip") in fields]
    site.answer(cell, "yes")  # the stale version stays refused, however often it is sent
    assert site.session.suggestion(1).answer == "no"
    site.post("/answer", **{**fields, "answer": "yes"})
    assert (site.status, site.session.suggestion(1).answer) == (200, "yes")


def test_what_one_is_sent_to_is_given_to_nobody_else_before_it_is_loaded(run):
    app, session = open_app(run)
    ann, bob = (TestClient(app, follow_redirects=False, cookies={"onepair_name": name}) for name in ("Ann", "Bob"))
    assert ann.get("/").headers["location"] != bob.get("/").headers["location"]
    assert not session.store.entries()


def test_what_nobody_was_sure_about_is_offered_again_at_the_end(site):
    site.session.record(
        [Answer(c.file, c.label, "skip", 0) for c in map(site.session.suggestion, range(1, 41))],
        who="Ann",
    )
    page = site.get("/")
    assert site.url.path == "/done"
    assert "0 × yes, 0 × no, 40 × not sure" in page.text
    assert {"class": "button", "href": "/suggestion/1"} in [facts for tag, facts in page.elements if tag == "a"]


def test_an_image_that_is_complete_leads_to_the_next_and_back(site):
    page = site.get("/suggestion/1")
    (fields,) = [dict(fields) for action, fields in page.forms if action == "/complete"]
    row = site.session.suggestion(1).row
    page = site.post("/complete", **fields)
    assert all(cell.answer == ("yes" if cell.observed == 1 else "no") for cell in site.session.cells(row))
    assert f"You completed {site.session.suggestion(1).file}" in page.text
    assert site.session.suggestion(site.number).row != row
    site.post("/undo")
    assert site.number == 1
    assert all(cell.answer is None for cell in site.session.cells(row))


@pytest.mark.parametrize(("low", "high"), [(80.0, 120.0), (50.0, 2000.0)])
def test_the_end_tells_what_is_missing_and_who_disagrees(site, low, high):
    estimated = {"missing": 100.0, "missing_low": low, "missing_high": high}
    (site.session.run.path / "finding" / "summary.json").write_text(json.dumps(estimated))
    app, session = open_app(site.session.run.path)
    site = Site(TestClient(app), session)
    for number in range(1, len(session) + 1):
        site.answer(session.suggestion(number), "yes")
    page = site.get("/done")
    left = round(session.still_missing(Interval(100.0, low, high)).value)
    assert 0 < left < 100
    assert (f"About {left} labels are probably still missing" in page.text) == (high < 200)
    words = "2,000 labels are probably still missing. Complete 50 images to know"
    assert (words in page.text) == (high > 200)
    assert "said the same" not in page.text
    client = TestClient(app, cookies={"onepair_name": "Ben"})
    other = Site(client, session)
    page = other.get("/done")
    assert f"Give a second opinion on {len(session)} answers of others" in page.text
    page = other.get("/?order=second")
    assert other.number == 1
    assert "What do you say?" in page.text
    assert "said yes" not in page.text
    page = other.answer(session.suggestion(1), "no", order="second")
    assert other.number == 2
    other.answer(session.suggestion(2), "yes", order="second")
    page = other.get("/done")
    assert "Two people answered 2 of the questions, and said the same 1 times." in page.text
    cell = session.suggestion(1)
    assert f"Answered differently {cell.label} {cell.file}" in page.text


def test_the_class_list_leads_to_classes_those_with_most_left_first(site):
    for cell in site.session.waiting("square", 1, True, most=100):
        site.answer(cell, "yes")
    page = site.get("/classes")
    for label in CLASSES:
        assert label in page.text
    open_of = {label: sum(kind.open for kind in site.session.kinds() if kind.label == label) for label in CLASSES}
    names = [facts["data-name"] for tag, facts in page.elements if tag == "li" and "data-name" in facts]
    assert [open_of[name] for name in names] == sorted(open_of.values(), reverse=True)
    assert ("Answered" in page.text) == (0 in open_of.values())
    site.get("/?label=square")
    assert site.session.suggestion(site.number).label == "square"
    assert parse_qs(site.url.query)["order"] == ["class"]


def test_names_are_asked_for_and_kept(run):
    app, session = open_app(run, name=None)
    site = Site(TestClient(app), session)
    site.get("/")
    assert site.url.path == "/name"
    site.answer(session.suggestion(1), "yes")
    assert (site.url.path, session.store.entries()) == ("/name", [])
    site.post("/name", name="  \n ")
    assert site.url.path == "/name"
    page = site.post("/name", name=" Zoë\n<b> ")
    assert site.number == 1
    assert "Answering as Zoë <b>" in page.text
    site.answer(session.suggestion(1), "yes")
    assert session.store.entries()[0].who == "Zoë <b>"


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
    cell = site.session.suggestion(1)
    fields = {"file": cell.file, "label": cell.label, "seen": 0, "number": 1, "order": "class", "answer": "yes"}
    assert site.client.post("/answer", data={**fields, **change}).status_code in (404, 422)
    assert site.session.store.entries() == []


def test_images_and_maps_are_sent_as_images_and_kept_by_the_browser(site):
    page = site.get("/")
    addresses = [facts["src"] for tag, facts in page.elements if tag == "img"]
    addresses += [facts["href"] for tag, facts in page.elements if tag == "image"]
    assert len(addresses) == 6  # the photo, its map, and four of the same class
    for address in addresses:
        answer = site.client.get(address)
        assert answer.status_code == 200
        assert answer.headers["content-type"].split(";")[0] in ("image/jpeg", "image/png")
        assert "immutable" in answer.headers["cache-control"]
        assert "v=" in address


def test_an_image_that_cannot_be_shown_says_why(site):
    cell = site.session.suggestion(1)
    site.session.table.path(cell.row).write_text("no image")
    page = site.get("/suggestion/1")
    assert f"{cell.file}: cannot be read as an image" in page.text
    assert "photo" not in {facts.get("class") for _, facts in page.elements}
    assert f"{cell.file}: cannot be read as an image" in site.get(f"/grid?label={cell.label}").text
    assert site.client.get(f"/image/{cell.row}").status_code == 404


def test_without_maps_there_is_nothing_to_show_them_with(run):
    (run / "finding" / "maps.npy").unlink()
    app, session = open_app(run)
    page = Site(TestClient(app), session).get("/")
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
        assert tag != "script" or facts["src"] == "/static/review.js"
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
    app, session = open_app(run)
    for address in ("/", "/classes", f"/grid?label={label}&suggested={session.suggestion(1).suggested}"):
        text = TestClient(app).get(address).text
        assert "<script>alert" not in text
        assert "<img src=x" not in text
        assert "&lt;script&gt;" in text


def test_the_page_does_not_load_torch(run):
    code = (
        "import sys; from pathlib import Path; from tests.review.runs import open_app\n"
        "from starlette.testclient import TestClient\n"
        "app, session = open_app(Path(sys.argv[1])); client = TestClient(app)\n"
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


def test_what_is_open_class_by_class_is_what_is_open_in_all(site):
    site.answer(site.session.waiting("square", 1, True, most=1)[0], "yes")
    for _ in range(2):  # the second time of likely suggestions alone
        text = site.client.get("/classes").text.partition("<h2>Still open</h2>")[2].partition("<h2>")[0]
        counts = [int(number.replace(",", "")) for number in re.findall(r"<small>([\d,]+)<", text)]
        assert sum(counts) == int((site.session.open & site.session.goal).sum())
        for cell in site.session.waiting("bar", 1, True, most=100):
            site.answer(cell, "no")
