"""Many images at once: what is marked, what is not sure, and what others said meanwhile."""

import pytest
from starlette.testclient import TestClient

from onepair.review.answers import Decision
from tests.review.runs import open_app, small_run, write_suggestions
from tests.review.sites import Site


@pytest.fixture
def run(tmp_path):
    return small_run(tmp_path)


@pytest.fixture
def site(run):
    app, desk = open_app(run)
    return Site(TestClient(app), desk)


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


def test_of_a_grid_that_two_fill_in_only_what_is_new_counts(site):
    files = [cell.file for cell in site.desk.waiting("bar", 1, True, most=24)]
    site.desk.store.record([Decision(files[0], "bar", "no", 0)], who="Ben")
    page = site.post("/grid", label="bar", suggested=1, likely=1, rest="yes", file=files, seen=[0] * len(files))
    assert site.status == 409
    assert "Somebody else had answered 1 of the images on the last page differently" in page.text
    assert [site.desk.find(file, "bar").answer for file in files] == ["no"] + ["yes"] * (len(files) - 1)
