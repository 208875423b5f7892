"""The session and the pages of an audit, and what they leave on the disk."""

import shutil

import numpy as np
import pytest
from starlette.testclient import TestClient

from onepair.data.formats.write import write_table
from onepair.data.tables import read_table as tables
from onepair.errors import RunError
from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN
from onepair.probability import fit_decisions
from onepair.runs import finished
from onepair.runs.audit import write_sheet
from onepair.runs.finished import FinishedRun, choose_thresholds
from tests.review.audits import audit_run, complete_all, open_audit, open_audit_app, shown_in
from tests.review.sites import Page


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return audit_run(tmp_path_factory.mktemp("audited") / "small")


@pytest.fixture
def run(original, tmp_path):
    return shutil.copytree(original, tmp_path / "run")


@pytest.fixture
def session(run):
    return open_audit(run)


def audited(run):
    """What the file says, by image."""
    audit = FinishedRun(run).audit
    if audit is None:
        return {}
    files = FinishedRun(run).table.files
    return {files[row]: labels.tolist() for row, labels in zip(audit.rows.tolist(), audit.labels, strict=True)}


def test_a_complete_image_has_the_ticked_labels_and_no_others(session, run):
    assert audited(run) == {}
    assert session.finish(1, {"bar", "cross"}, seen=0, who="Ann") == []
    assert audited(run) == {session.sample.files[0]: [1, 0, 1, 0]}
    assert session.complete.tolist() == [True] + [False] * 5
    assert session.next_open() == 2
    assert session.number_of(session.undo(who="Ann")[0].file) == 1
    assert audited(run) == {}
    assert session.next_open(after=5) == 6


def test_after_undo_the_ticks_are_still_there(session):
    session.finish(2, {"square"}, seen=0, who="Ann")
    session.undo(who="Ann")
    ticked = {each.label for toggles in session.toggles(2) for each in toggles if each.ticked}
    assert ticked == {"square"}


def test_likely_labels_come_first_and_only_known_ones_are_ticked(session):
    for number in range(1, len(session) + 1):
        likely, others = session.toggles(number)
        row = session.table.labels[session.rows[number - 1]]
        assert sorted(each.label for each in likely + others) == sorted(session.table.classes)
        shares = [each.probability for each in likely if not each.known]
        assert shares == sorted(shares, reverse=True)
        assert [each.label for each in others] == sorted(each.label for each in others)
        for each in likely + others:
            known = row[session.table.classes.index(each.label)] == POSITIVE
            assert each.known == known
            assert each.ticked == known  # what is only predicted is for a person to say
            assert each.predicted == (each.probability >= 0.5 and not known)
            assert not each.ticked or each in likely


def test_a_complete_image_can_be_changed_and_only_the_change_is_undone(session, run):
    session.finish(1, {"bar"}, seen=0, who="Ann")
    session.finish(1, {"bar", "circle"}, seen=session.version(1), who="Ann")
    assert audited(run)[session.sample.files[0]] == [1, 1, 0, 0]
    session.undo(who="Ann")
    assert audited(run)[session.sample.files[0]] == [1, 0, 0, 0]


def test_who_completes_an_image_that_another_completed_meanwhile_is_told(session):
    session.finish(1, {"bar"}, seen=0, who="Ben")
    refused = session.finish(1, {"bar", "circle"}, seen=0, who="Ann")
    assert [(entry.label, entry.who) for entry in refused] == [("circle", "Ben")]
    assert session.answers[0].tolist() == [1, 0, 0, 0]
    assert session.finish(1, {"bar", "circle"}, seen=session.version(1), who="Ann") == []
    assert session.answers[0].tolist() == [1, 1, 0, 0]


def test_two_people_get_different_images(session):
    session.hold([1], who="Ann")
    assert session.next_open(who="Ben") == 2
    assert session.next_open(who="Ann") == 1


def test_what_is_stored_but_not_written_is_written_at_the_start(session, run):
    complete_all(session)
    before = audited(run)
    assert len(before) == 6
    (run / "audit" / "audited.csv").unlink()  # as if killed before it was written
    open_audit(run)
    assert audited(run) == before


def test_a_file_that_came_without_its_answers_is_kept(session, run):
    complete_all(session)
    before = audited(run)
    for file in (run / "audit").glob("answers.sqlite*"):
        file.unlink()
    assert open_audit(run).complete.all()
    assert audited(run) == before


def test_more_images_keep_those_that_are_complete(session, run):
    complete_all(session)
    longer = open_audit(run, images=9)
    assert longer.complete.tolist() == [True] * 6 + [False] * 3
    assert len(audited(run)) == 6


def test_a_sheet_goes_out_and_comes_back(session, run, tmp_path):
    write_sheet(session.run, session.sample, tmp_path / "sheet.csv")
    sheet = tables.read(tmp_path / "sheet.csv")
    filled = sheet.labels.dense()
    filled[:4][filled[:4] == UNKNOWN] = NEGATIVE
    changed = tables.LabelTable(sheet.files, sheet.classes, filled, sheet.split, sheet.root)
    write_table(changed, tmp_path / "sheet.csv")
    assert session.take_sheet(tmp_path / "sheet.csv", who="Ann") == list(sheet.files[4:])
    assert audited(run) == dict(zip(sheet.files[:4], filled[:4].tolist(), strict=True))
    assert open_audit(run).complete.sum() == 4


def test_a_sheet_with_an_image_that_was_not_drawn_is_refused(session, tmp_path):
    other = next(
        session.table.files[row]
        for row in session.run.rows("validation").tolist()
        if session.table.files[row] not in session.sample.files
    )
    (tmp_path / "sheet.csv").write_text(f"file,{','.join(session.table.classes)}\n{other},1,0,0,0\n")
    with pytest.raises(RunError, match="was not drawn, so its labels say nothing of the others"):
        session.take_sheet(tmp_path / "sheet.csv", who="Ann")


def test_a_whole_audit_without_scripts(run):
    app, session = open_audit_app(run)
    client = TestClient(app)
    answer = client.get("/")
    for number in range(1, 7):
        page = Page(answer.text)
        assert answer.url.path == f"/image-{number}"
        assert f"{number - 1} of 6 complete" in page.text
        boxes = [facts for _, facts in page.elements if facts.get("name") == "ticked"]
        assert sorted(box["value"] for box in boxes) == sorted(session.table.classes)
        (fields,) = [dict(fields) for action, fields in page.forms if action == "/complete"]
        answer = client.post("/complete", data={**fields, "ticked": sorted(shown_in(session, number))})
    assert "All 6 images are complete" in Page(answer.text).text
    expected = {session.sample.files[n - 1]: shown_in(session, n) for n in range(1, 7)}
    said = {
        file: set(np.array(session.table.classes)[np.array(row) == 1].tolist()) for file, row in audited(run).items()
    }
    assert said == expected
    answer = client.post("/undo")
    assert answer.url.path == "/image-6"
    assert "You completed" in Page(answer.text).text  # the one before


@pytest.mark.parametrize("address", ["/image-0", "/image-7", "/image/999", "/nowhere"])
def test_what_is_not_there_is_not_found(run, address):
    app, _ = open_audit_app(run)
    assert TestClient(app).get(address).status_code == 404


@pytest.mark.parametrize("change", [{"ticked": "unicorn"}, {"number": 7}, {"seen": -1}, {"seen": "x"}])
def test_answers_that_make_no_sense_are_not_stored(run, change):
    app, session = open_audit_app(run)
    answer = TestClient(app).post("/complete", data={"number": 1, "seen": 0, "ticked": "bar", **change})
    assert answer.status_code in (404, 422)
    assert not session.complete.any()


def test_names_are_asked_for(run):
    app, _ = open_audit_app(run, name=None)
    client = TestClient(app)
    assert client.get("/").url.path == "/name"
    client.post("/name", data={"name": "Zoë"})
    assert "Zoë" in client.get("/").text


def test_a_disk_that_refuses_is_a_sentence(run, monkeypatch):
    app, session = open_audit_app(run)
    session.store._db.execute("PRAGMA query_only = ON")  # as a folder that has become read-only
    answer = TestClient(app).post("/complete", data={"number": 1, "seen": 0, "ticked": "bar"})
    assert answer.status_code == 503
    assert "cannot keep answers" in answer.text


def test_time_left_needs_a_pace(session):
    assert session.seconds_left(who="Ann") is None
    for number in (1, 2, 3):
        session.finish(number, set(), seen=0, who="Ann")
    assert session.seconds_left(who="Ann") >= 0
    assert session.seconds_left(who="Ben") is None


def test_thresholds_rest_on_all_images_and_figures_on_the_audited_ones(run, monkeypatch):
    rows = []

    def fit(scores, labels, **options):
        rows.append((len(scores), int((labels != UNKNOWN).all(1).sum())))
        return fit_decisions(scores, labels, **options)

    monkeypatch.setattr(finished, "fit_decisions", fit)
    complete_all(open_audit(run, images=2))
    opened = FinishedRun(run)
    chosen = choose_thresholds(opened)
    assert rows == [(20, 2)]  # all, with the labels of those that were audited
    assert chosen.images == 20
    assert chosen.evaluation.images == 2
    assert chosen.evaluation.sentence.startswith("by 2 images: ")
    assert "; 2 images" in chosen.evaluation.line
    assert FinishedRun(run).results.worth["validation"].precision_recall.images == 2
