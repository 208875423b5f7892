"""Classes that people add: their names, the page, and the labels that are written."""

import numpy as np
import pytest

from onepair.data.formats.read import read_dataset
from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN
from onepair.review.answers import LONGEST_NAME, Answer, Store, new_class
from onepair.review.completion import write_completed
from onepair.review.queue import answers_file, open_run
from tests.review.runs import CLASSES, open_session


@pytest.mark.parametrize("name", ["circle", "Circle", " CIRCLE ", "ｃｉｒｃｌｅ", "\tcircle"])
def test_a_class_in_another_spelling_is_no_new_class(name):
    assert new_class(name, CLASSES).taken == "circle"


def test_what_is_nearly_a_class_is_asked_about_and_what_is_not_is_not():
    assert new_class("circles", CLASSES).near == ("circle",)
    assert new_class("triangle", CLASSES)[1:] == (None, (), "")
    assert len(new_class("x" * 200, CLASSES).name) == LONGEST_NAME


@pytest.mark.parametrize("name", ["", " \n", "split", "Asked"])
def test_names_that_no_class_can_have(name):
    assert new_class(name, CLASSES).impossible


def test_a_class_is_added_to_the_list_and_to_images(site):
    page = site.post("/class", name="triangle")
    assert site.url.path == "/classes"
    assert "triangle 0 images" in page.text
    cell = site.session.suggestion(3)
    page = site.post("/class", name="kite", number=3)
    assert site.number == 3
    assert "kite added" in page.text
    assert site.session.find(cell.file, "kite").answer == "yes"
    page = site.get("/suggestion/5/labels")
    assert {"triangle", "kite"} <= {facts["data-name"] for _, facts in page.elements if "data-name" in facts}
    other = site.session.find(site.session.suggestion(5).file, "triangle")
    site.answer(other, "yes", number=5)
    assert "triangle 1 image" in site.get("/classes").text
    assert Store(answers_file(site.session.run)).classes() == ["triangle", "kite"]
    assert site.get("/grid?label=kite").status_code == 404  # nothing is suggested of it


def test_a_taken_name_is_not_added_but_offered_to_the_image(site):
    cell = next(cell for cell in map(site.session.suggestion, range(1, 41)) if cell.label != "square")
    page = site.post("/class", name=" Square", number=cell.number)
    assert "There is a class square already" in page.text
    assert site.session.added == ()
    (fields,) = [dict(fields) for action, fields in page.forms if action == "/class"]
    site.post("/class", **fields)
    assert site.number == cell.number
    assert site.session.find(cell.file, "square").answer == "yes"
    assert site.session.added == ()


def test_a_near_name_is_asked_about(site):
    page = site.post("/class", name="squares", number=1)
    assert "Is squares another class than square?" in page.text
    assert site.session.added == ()
    fields = next(dict(fields) for action, fields in page.forms if action == "/class")
    site.post("/class", **fields)
    assert site.session.added == ("squares",)
    site.get("/class")
    assert site.url.path == "/classes"


def test_what_another_process_added_is_there_at_once(site, run):
    open_session(run).add_class("triangle", who="Bob")
    assert "triangle" in site.get("/classes").text
    site.post("/class", name="Triangle")
    assert site.session.added == ("triangle",)


def test_a_complete_image_does_not_show_the_new_class(site):
    site.post("/class", name="triangle")
    cell = site.session.suggestion(1)
    version = site.session.version(cell.row)
    site.post("/complete", file=cell.file, label=cell.label, seen=version, number=1, order="probability")
    assert site.session.find(cell.file, "triangle").answer == "no"


@pytest.mark.parametrize("format", ["csv", "parquet", "coco", "label-studio"])
def test_labels_have_the_new_class_and_are_unknown_where_nobody_answered(run, tmp_path, format):
    session, opened = open_session(run), open_run(run)
    for name in ("triangle", "nothing"):
        session.add_class(name, who="Ann")
    yes, no = sorted({session.suggestion(number).file for number in range(1, 11)})[:2]
    decisions = [(yes, "triangle", "yes"), (no, "triangle", "no"), (no, "nothing", "no"), (yes, CLASSES[0], "yes")]
    session.record([Answer(*each, session.find(*each[:2]).version) for each in decisions], who="Ann")
    suffix = format if format in ("csv", "parquet") else "json"
    out = tmp_path / f"completed.{suffix}"
    write_completed(opened, session.store.entries(), out, added=session.store.classes(), format=format)
    completed = read_dataset(out)
    assert completed.classes == (*CLASSES, "triangle")
    row_of = {file.rpartition("/")[2]: row for row, file in enumerate(completed.files)}
    expected = np.full(len(completed), UNKNOWN)
    expected[row_of[yes]], expected[row_of[no]] = POSITIVE, NEGATIVE
    np.testing.assert_array_equal(completed.labels[:, -1], expected)
    if completed.asked is not None:
        assert completed.asked[row_of[yes], 0]
        assert not completed.asked[:, -1].any()


def test_fiftyone_has_the_new_class(run, tmp_path):
    session = open_session(run)
    session.add_class("triangle", who="Ann")
    session.record([Answer(session.suggestion(1).file, "triangle", "yes", 0)], who="Ann")
    out = tmp_path / "completed.json"
    write_completed(open_run(run), session.store.entries(), out, added=["triangle"], format="fiftyone")
    assert out.read_text().count("triangle") >= 1
