"""The list of all images: what is found, what is said of them, and answers from an image's own page."""

import csv

import pytest
from starlette.testclient import TestClient

from onepair.labels import POSITIVE, UNKNOWN
from onepair.probability.intervals import Interval
from onepair.probability.precision_recall import Cut, PrecisionRecall
from onepair.review.answers import Answer
from onepair.review.photos import Filter, PhotoList
from onepair.runs.finished import FinishedRun
from onepair.runs.folder import RunFolder, Worth
from tests.review.runs import (
    CLASSES,
    full_labels,
    open_app,
    open_session,
    picture,
    small_run,
    write_run,
    write_suggestions,
)
from tests.review.sites import Site


@pytest.fixture
def session(tmp_path):
    return open_session(small_run(tmp_path))


def found(session, **wanted):
    return PhotoList(session).find(Filter(**wanted)).tolist()


def answer(session, row, label, reply, who="Ann"):
    file = session.table.files[row]
    session.record([Answer(file, label, reply, session.find(file, label).version)], who=who)


def rows_with(session, label):
    column = CLASSES.index(label)
    return [row for row in session.rows.tolist() if session.run.known[row, column] == POSITIVE]


def test_everything_that_is_asked_about_is_found(session):
    assert found(session) == session.run.searched.tolist()
    assert found(session, text="no such name") == []


def test_images_with_one_class_and_without_another_as_people_say(session):
    bars = rows_with(session, "bar")
    assert found(session, label="bar") == bars
    answer(session, bars[0], "bar", "no")
    other = next(row for row in session.rows.tolist() if row not in bars)
    answer(session, other, "bar", "yes")
    answer(session, bars[1], "bar", "skip")  # whoever is not sure has changed nothing
    assert found(session, label="bar") == sorted({*bars[1:], other})
    answer(session, bars[1], "square", "yes")
    assert found(session, label="bar", without="square") == sorted({*bars[2:], other})
    session.undo(who="Ann")
    assert bars[1] in found(session, label="bar", without="square")


def test_untagged_unsure_and_open_ones(session):
    assert found(session, only="untagged") == []  # a single positive each
    row = session.rows.tolist()[0]
    (label,) = [name for name in CLASSES if session.run.known[row, CLASSES.index(name)] == POSITIVE]
    answer(session, row, label, "no")
    assert found(session, only="untagged") == [row]
    assert found(session, only="answered", who="Ann") == [row]
    assert found(session, who="Ben") == []
    answer(session, row, "bar" if label != "bar" else "cross", "skip", who="Ben")
    assert found(session, only="unsure") == found(session, who="Ben") == [row]
    wrong = session.suggestion(40).row
    assert found(session, only="wrong") == [wrong]
    answer(session, wrong, session.suggestion(40).label, "yes")
    assert found(session, only="wrong") == []
    missing = {session.suggestion(n).row for n in range(1, 40) if session.suggestion(n).answer is None}
    assert set(found(session, only="missing")) == missing


def test_a_class_that_people_added_can_be_looked_for(session):
    session.add_class("star", who="Ann")
    row = session.rows.tolist()[3]
    answer(session, row, "star", "yes")
    assert found(session, label="star") == [row]


@pytest.fixture
def museum(tmp_path):
    """A table with columns of its own, and photos in two folders."""
    rows = [["Inventory no.", "file", "tags", "Photographer", "Notes"]]
    for row, labels in enumerate(full_labels()[:20]):
        file = f"{'west' if row % 2 else 'east'}/{row:02}.png"
        (tmp_path / file).parent.mkdir(exist_ok=True)
        picture(labels).save(tmp_path / file)
        names = [name for name, label in zip(CLASSES, labels, strict=True) if label == POSITIVE][:1]
        rows.append([f"A-{row}", file, "; ".join(names), "Müller" if row < 5 else "Ortega", "<b>torn</b>" * (row == 2)])
    with (tmp_path / "labels.csv").open("w", newline="") as text:
        csv.writer(text, delimiter=";").writerows(rows)
    run = write_run(tmp_path / "run", tmp_path / "labels.csv")
    opened = FinishedRun(run)
    unknown = next(
        name for name in opened.table.classes if opened.known[0, opened.table.classes.index(name)] == UNKNOWN
    )
    write_suggestions(run, [(opened.table.files[0], unknown, 0.9, "missing")], maps=False)
    return run


def test_columns_of_the_table_are_searched_and_shown(museum):
    app, session = open_app(museum)
    photos = PhotoList(session)
    assert photos.folders == ["east", "west"]
    assert photos.facts["east/02.png"] == [
        ("Inventory no.", "A-2"),
        ("Photographer", "Müller"),
        ("Notes", "<b>torn</b>"),
    ]
    files = session.table.files
    assert [files[row] for row in found(session, text=" müller ", folder="west")] == ["west/01.png", "west/03.png"]
    assert [files[row] for row in found(session, text="a-7")] == ["west/07.png"]
    site = Site(TestClient(app), session)
    page = site.get("/photos?text=torn")
    assert "1 photo " in page.text
    for words in ("Photographer", "Müller", "<b>torn</b>"):
        assert words in site.get("/photo/2").text
    assert "A-0" in site.get("/suggestion/1").text


def test_a_table_that_is_gone_or_has_changed_tells_nothing(museum):
    session = open_session(museum)
    (museum.parent / "labels.csv").write_text("file\n")
    assert PhotoList(session).facts == {}
    (museum.parent / "labels.csv").unlink()
    assert PhotoList(session).facts == {}


def test_labels_are_answered_on_the_page_of_an_image(tmp_path):
    app, session = open_app(small_run(tmp_path))
    site = Site(TestClient(app), session)
    row = session.rows.tolist()[1]
    page = site.get(f"/photo/{row}")
    forms = [dict(fields) for action, fields in page.forms if action == "/answer"]
    assert {fields["label"] for fields in forms} == set(CLASSES)
    fields = forms[0]
    page = site.post("/answer", **{**fields, "answer": "no"})
    assert site.url.path == f"/photo/{row}"
    cell = session.find(fields["file"], fields["label"])
    assert cell.answer == "no"
    assert page.ids()[f"no-{cell.label}"]["aria-pressed"] == "true"
    page = site.post("/answer", **{**fields, "answer": "yes"})  # as somebody who has not seen that
    assert (site.status, session.find(cell.file, cell.label).answer) == (409, "no")
    assert "Your answer was not stored; answer again to overrule." in page.text


def test_a_long_list_has_pages(tmp_path, monkeypatch):
    monkeypatch.setattr("onepair.review.pages.PHOTOS", 8)
    app, session = open_app(small_run(tmp_path))
    site = Site(TestClient(app), session)
    seen, address = [], "/photos?without=bar"
    while address:
        page = site.get(address)
        links = [facts.get("href", "") for tag, facts in page.elements if tag == "a"]
        seen += [link for link in links if link.startswith("/photo/")]
        address = page.ids().get("after", {}).get("href")
    assert seen == [f"/photo/{row}" for row in found(session, without="bar")]
    assert site.get("/photos?page=99").ids()["before"]["href"]  # the last one there is


def test_examples_are_other_images_those_that_people_confirmed_first(session):
    assert len(rows_with(session, "bar")) >= 5
    first = rows_with(session, "bar")[0]
    confirmed = next(row for row in session.rows.tolist() if row not in rows_with(session, "bar"))
    answer(session, confirmed, "bar", "yes")
    shown = session.examples("bar", beside=first)
    assert shown == [confirmed, *rows_with(session, "bar")[1:4]]
    answer(session, confirmed, "bar", "no")
    assert confirmed not in session.examples("bar", beside=first)
    assert session.examples("no such class", beside=first) == []


def test_wrong_labels_have_their_own_list(tmp_path):
    app, session = open_app(small_run(tmp_path))
    site = Site(TestClient(app), session)
    page = site.get("/?order=wrong")
    assert site.number == 40
    assert "Wrong labels 1" in page.text
    assert "1 of 1" in page.text
    assert "href" not in page.ids()["after"]
    site.answer(session.suggestion(40), "yes", order="wrong")
    assert site.url.path == "/done"


@pytest.mark.parametrize("reply", ["yes", "no"])
def test_what_the_next_answers_bring_is_told_by_those_given(session, reply):
    number, share = session.soon()
    assert number == 40
    assert not share.is_informative
    for place in range(1, 26):
        cell = session.suggestion(place)
        answer(session, cell.row, cell.label, reply)
    number, after = session.soon()
    assert number == 15
    assert after.high - after.low < share.high - share.low
    assert after.value > 0.8 if reply == "yes" else after.value < 0.2
    answer(session, session.suggestion(26).row, session.suggestion(26).label, "skip")
    assert session.soon()[1].value == pytest.approx(after.value, abs=0.02)  # who is not sure tells nothing


def test_the_page_says_live_what_the_next_answers_bring(tmp_path):
    app, session = open_app(small_run(tmp_path))
    site = Site(TestClient(app), session)
    assert "A few answers will tell how many suggestions are right." in site.get("/").text
    for number in range(1, 27):
        site.answer(session.suggestion(number), "yes")
    page = site.get("/")
    number, share = session.soon()
    low, high = (round(number * each) for each in share[1:])
    assert not share.is_informative
    assert f"Of the next {number} answers, {low} to {high} will change a label." in page.text
    site.answer(session.suggestion(27), "no")
    assert f"Of the next {number - 1} answers, " in site.get("/").text


def test_the_page_says_what_the_model_is_worth_and_by_how_many_images(tmp_path):
    run = small_run(tmp_path)
    cuts = (Cut(0.9, 0.7, Interval(0.26, 0.14, 0.44)), Cut(0.95, None, Interval(0.0, 0.0, 0.1)))
    worth = Worth(PrecisionRecall(30, Interval(0.76, 0.5, 0.95), Interval(0.4, 0.2, 0.6), cuts), "mAP")
    folder = RunFolder(run)
    folder.write_results(folder.results().model_copy(update={"worth": {"validation": worth}}))
    app, session = open_app(run)
    told = Site(TestClient(app), session).get("/training").text
    assert "Of 10 labels that the model gives, about 8 are right (5 to 10)." in told
    assert "It finds 20 % to 60 % of all, by 30 images." in told
    assert "90 %70 %26 % 14 % to 44 %" in told
    assert "95 %–0 % 0 % to 10 %" in told
