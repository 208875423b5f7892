"""Classes with names much alike, which the page asks about: one class or two, kept by the project."""

import pytest
from starlette.testclient import TestClient

from onepair.labels import UNKNOWN
from onepair.review.answers import Answer
from onepair.review.app import Application
from onepair.review.image_answers import open_answers
from onepair.review.photos import Pictures
from onepair.review.queue import read_queue
from onepair.review.retraining import planned_commands
from onepair.review.session import ReviewSession
from onepair.runs.finished import FinishedRun
from onepair.runs.project import Project, ProjectRecord
from tests.review.runs import open_app, small_run, write_images, write_run, write_suggestions
from tests.review.sites import Site

ALIKE = ("motorbike", "motor-bike")


@pytest.fixture
def run(tmp_path):
    """A run of a project whose table has a class by two names."""
    source = write_images(tmp_path / "photos")
    source.write_text(source.read_text().replace("bar,circle", ",".join(ALIKE)))
    project = Project(tmp_path / "photos" / "labels.onepair")
    project.write(ProjectRecord(source="../labels.csv", run="1", reading={"same": "sofa=couch"}))
    opened = FinishedRun(write_run(project.runs / "1", source, observe="single-positive"))
    row = next(row for row in opened.task.train.tolist() if opened.known[row, 0] == UNKNOWN)
    write_suggestions(opened.path, [(opened.table.files[row], ALIKE[0], 0.9, "missing")], maps=False)
    return opened


@pytest.fixture
def site(run):
    return open_site(run)


def open_site(run):
    opened = FinishedRun(run.path)
    session = ReviewSession(opened, read_queue(opened), open_answers(opened))
    app = Application(session, Pictures(session.table, cache=run.path / "cache"), name="Ann")
    return Site(TestClient(app), session)


def asked(page):
    return [dict(fields) for action, fields in page.forms if action == "/alike"]


def same(run):
    record = Project(run.path.parent.parent).record()
    return record.reading.get("same")


def test_both_names_are_asked_about_where_one_is_in_question_and_in_the_list(site):
    for address in ("/suggestion/1", "/classes"):
        page = site.get(address)
        (fields,) = asked(page)
        assert {fields["one"], fields["other"]} == set(ALIKE)
        assert "Are " in page.text


def test_one_class_counts_from_the_next_training_on_and_is_not_asked_again(site, run):
    (fields,) = asked(site.get("/suggestion/1"))
    page = site.post("/alike", **{**fields, "name": "motorbike"})
    assert site.url.path == "/suggestion/1"
    assert asked(page) == []
    assert same(run) == "sofa=couch,motor-bike=motorbike"
    _, train, _ = planned_commands(run, run.path.with_name("1-2"))
    assert "data.same=sofa=couch,motor-bike=motorbike" in train.words
    assert asked(open_site(run).get("/classes")) == []
    assert Project(run.path.parent.parent).data(Project(run.path.parent.parent).record()).same == (
        "sofa=couch",
        "motor-bike=motorbike",
    )


def test_answers_under_the_other_name_go_along(site, run):
    cell = site.session.cells(site.session.rows.tolist()[0])[1]
    assert cell.label == "motor-bike"
    site.session.record([Answer(cell.file, cell.label, "yes", 0)], who="Ann")
    (fields,) = asked(site.get("/classes"))
    site.post("/alike", **{**fields, "name": "motorbike"})
    merged = open_answers(run)
    merged._classes = {"motorbike", "cross", "square"}  # as a run that has one class of the two
    assert (cell.file, "motorbike") in [(entry.file, entry.label) for entry in merged.entries()]


def test_two_classes_stay_two(site, run):
    (fields,) = asked(site.get("/suggestion/1"))
    site.post("/alike", **{**fields, "name": ""})
    assert asked(open_site(run).get("/suggestion/1")) == []
    assert same(run) == "sofa=couch"
    (pair,) = Project(run.path.parent.parent).record().different  # where a terminal keeps its answer, too
    assert sorted(pair) == sorted(ALIKE)


@pytest.mark.parametrize(
    "change",
    [{"name": "cross"}, {"name": "a=b;c"}, {"one": "cross"}, {"other": "square"}, {"number": 99}, {"number": "x"},
     {"one": "../../x"}, {"name": "motorbike\r\n"}],
)  # fmt: skip
def test_what_makes_no_sense_changes_nothing(site, run, change):
    (fields,) = asked(site.get("/suggestion/1"))
    answer = site.client.post("/alike", data={**fields, "name": "motorbike", **change})
    assert answer.status_code in (404, 422)
    assert same(run) == "sofa=couch"
    assert len(asked(site.get("/suggestion/1"))) == 1


def test_while_another_command_is_at_work_nothing_is_lost(site, run):
    from onepair.files import locked

    (fields,) = asked(site.get("/suggestion/1"))
    with locked(Project(run.path.parent.parent).path / ".lock"):
        answer = site.client.post("/alike", data={**fields, "name": "motorbike"})
    assert answer.status_code == 503
    assert same(run) == "sofa=couch"


def test_without_a_project_nobody_is_asked(tmp_path):
    app, session = open_app(small_run(tmp_path))
    assert session.alike() == []
    data = {"one": "bar", "other": "cross", "name": "bar"}
    assert TestClient(app).post("/alike", data=data).status_code == 404
