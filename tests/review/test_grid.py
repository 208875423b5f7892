"""Many images at once: what is marked, what is not sure, and what others said meanwhile."""

from starlette.testclient import TestClient

from onepair.review import session as session_module
from onepair.review.answers import Answer
from tests.review.runs import open_app, small_run, write_suggestions
from tests.review.sites import Site


def test_the_grid_takes_all_but_those_marked(site):
    page = site.get("/grid?label=cross")
    waiting = site.session.waiting("cross", 1, True, most=24)
    assert "Most of these show cross. Click those that do not." in page.text
    (fields,) = [fields for action, fields in page.forms if action == "/grid"]
    files = [value for name, value in fields if name == "file"]
    assert files == [cell.file for cell in waiting]
    seen = [value for name, value in fields if name == "seen"]
    page = site.post(
        "/grid", label="cross", suggested=1, likely=1, rest="yes", file=files, seen=seen, marked=files[1:3]
    )
    answers = [site.session.find(file, "cross").answer for file in files]
    assert answers == ["yes", "no", "no"] + ["yes"] * (len(files) - 3)
    assert f"You answered {len(files)} × cross" in page.text
    assert "No cross that is probably missing is left" in page.text
    page = site.post("/undo")
    assert site.url.path == "/grid"
    assert [value for name, value in page.forms[0][1] if name == "file"] == files


def test_the_grid_shows_24_at_a_time(tmp_path):
    run = small_run(tmp_path)
    session = open_app(run)[1]
    cells = [(session.table.files[row], "cross") for row in session.run.task.train.tolist()]
    unknown = [cell for cell in cells if session.find(*cell).observed < 0]
    write_suggestions(run, [(*cell, 0.5, "missing") for cell in unknown])
    app, session = open_app(run)
    page = Site(TestClient(app), session).get("/grid?label=cross")
    thumbnails = [facts for tag, facts in page.elements if tag == "img"]
    assert len(unknown) > len(thumbnails) == 24
    ahead = next(facts["data-ahead"] for _, facts in page.elements if "data-ahead" in facts).split()
    assert len(ahead) == len(unknown) - 24  # the next page's thumbnails are fetched already


def test_the_grid_of_wrong_labels_asks_the_other_way_round(site):
    cell = site.session.suggestion(40)
    write_suggestions(site.session.run.path, [(cell.file, cell.label, 0.7, "wrong")])
    app, session = open_app(site.session.run.path)
    page = Site(TestClient(app), session).get(f"/grid?label={cell.label}&suggested=0")
    assert f"Most of these do not show {cell.label}. Click those that do." in page.text
    assert ("rest", "no") in page.forms[0][1]


def test_unlikely_suggestions_are_asked_about_the_other_way_round_and_at_the_end(site, monkeypatch):
    monkeypatch.setattr(session_module, "ENOUGH", 1)
    run, cells = site.session.run.path, [site.session.suggestion(number) for number in (1, 2)]
    shares = (0.8, 0.3)
    lines = [(cell.file, cell.label, share, "missing") for cell, share in zip(cells, shares, strict=True)]
    write_suggestions(run, lines)
    app, session = open_app(run)
    site, unlikely = Site(TestClient(app), session), session.suggestion(2)
    page = site.get("/")
    assert "0 of 1 answered" in page.text
    page = site.answer(session.suggestion(1), "yes")
    assert site.url.path == "/done"
    assert "All suggestions are answered" in page.text
    assert "Go on with 1 less likely one" in page.text
    assert page.ids()["coming"]["href"] == "/suggestion/2"
    assert "Perhaps missing" in site.get("/suggestion/2").text
    page = site.get(f"/grid?label={unlikely.label}&likely=0")
    assert f"Most of these do not show {unlikely.label}. Click those that do." in page.text
    (fields,) = [dict(fields) for action, fields in page.forms if action == "/grid"]
    site.post("/grid", **fields)
    assert session.suggestion(2).answer == "no"
    assert "All suggestions are answered" in site.get("/done").text


def test_the_grid_goes_on_to_likely_suggestions_before_any_unlikely_one(site):
    """The last likely kind is answered, one before it is not, and unlikely ones of another class follow it."""
    first, last, other = (
        next(cell for cell in site.session.waiting(label, 1, True, most=1)) for label in ("bar", "square", "cross")
    )
    lines = [
        (first.file, "bar", 0.9, "missing"),
        (last.file, "square", 0.8, "missing"),
        (other.file, "cross", 0.3, "missing"),
    ]
    write_suggestions(site.session.run.path, lines)
    app, session = open_app(site.session.run.path)
    site = Site(TestClient(app), session)
    site.answer(session.find(last.file, "square"), "yes")
    page = site.get("/grid?label=square")
    assert page.ids()["coming"]["href"] == "/grid?label=bar&suggested=1&likely=1"
    site.answer(session.find(first.file, "bar"), "yes")
    assert site.get("/grid?label=square").ids()["coming"]["href"] == "/grid?label=cross&suggested=1&likely=0"


def test_in_a_grid_one_may_be_unsure_and_undo_keeps_the_marks(site):
    files = [cell.file for cell in site.session.waiting("bar", 1, True, most=24)]
    fields = {"label": "bar", "suggested": 1, "likely": 1, "rest": "yes", "file": files, "seen": [0] * len(files)}
    site.post("/grid", **fields, marked=[files[0]], unsure=[files[1]])
    answers = [site.session.find(file, "bar").answer for file in files]
    assert answers == ["no", "skip"] + ["yes"] * (len(files) - 2)
    page = site.post("/undo")
    assert site.url.path == "/grid"
    boxes = [facts for _, facts in page.elements if facts.get("type") == "checkbox" and "checked" in facts]
    assert [(box["name"], box["value"]) for box in boxes] == [("marked", files[0]), ("unsure", files[1])]


def test_of_a_grid_that_two_fill_in_only_what_is_new_counts(site):
    files = [cell.file for cell in site.session.waiting("bar", 1, True, most=24)]
    site.session.store.record([Answer(files[0], "bar", "no", 0)], who="Ben")
    page = site.post("/grid", label="bar", suggested=1, likely=1, rest="yes", file=files, seen=[0] * len(files))
    assert site.status == 409
    assert "Somebody else had answered 1 of the images on the last page differently" in page.text
    assert [site.session.find(file, "bar").answer for file in files] == ["no"] + ["yes"] * (len(files) - 1)
