"""Labels to download: the user's own table, a table of all labels, COCO, and the answers alone."""

import csv
import io
import json
import zipfile
from urllib.parse import unquote

import pytest
from starlette.testclient import TestClient

from onepair.labels import POSITIVE
from onepair.review.answers import Answer
from onepair.runs.finished import FinishedRun
from tests.review.audits import audit_run, complete_all, open_audit_app, shown_in
from tests.review.runs import full_labels, open_app, picture, small_run, write_run, write_suggestions


@pytest.fixture
def review(tmp_path):
    app, session = open_app(small_run(tmp_path))
    return TestClient(app), session


def rows_of(answer):
    return list(csv.DictReader(io.StringIO(answer.text)))


def test_every_page_leads_to_the_files(review):
    client, _ = review
    for address in ("/", "/photos", "/photo/0", "/grid?label=bar", "/done", "/training", "/?order=wrong"):
        assert 'href="/download"' in client.get(address).text
    page = client.get("/download").text
    for form in ("same", "csv", "json", "answers"):
        assert f'href="/download/{form}" download' in page


def test_a_table_of_all_labels_has_what_was_answered_up_to_now(review):
    client, session = review
    cell = session.suggestion(1)
    assert {row["file"]: row for row in rows_of(client.get("/download/csv"))}[cell.file][cell.label] == ""
    session.record([Answer(cell.file, cell.label, "yes", 0)], who="Ann")
    answer = client.get("/download/csv")
    assert {row["file"]: row for row in rows_of(answer)}[cell.file][cell.label] == "1"
    assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''labels.csv"
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    (row,) = rows_of(client.get("/download/answers"))
    assert (row["file"], row["label"], row["answer"], row["who"]) == (cell.file, cell.label, "yes", "Ann")
    coco = json.loads(client.get("/download/json").content)
    assert {image["file_name"] for image in coco["images"]} == set(session.table.files)


@pytest.fixture
def own(tmp_path):
    """A run on a table with a strange name, columns of its own, and Latin-1."""
    rows = [["Número", "file", "tags"]]
    for row, labels in enumerate(full_labels()[:12]):
        picture(labels).save(tmp_path / f"{row}.png")
        names = [name for name, label in zip(("bar", "circle", "cross", "square"), labels, strict=True) if label][:1]
        rows.append([f"N° {row}", f"{row}.png", "; ".join(names)])
    source = tmp_path / 'my "best"\r\nSet-Cookie: a=b; ü.csv'
    source.write_bytes("".join(";".join(row) + "\r\n" for row in rows).replace("; ", ", ").encode("latin-1"))
    run = write_run(tmp_path / "run", source)
    table = FinishedRun(run).table
    label = next(name for name in table.classes if table.labels[0, table.classes.index(name)] != POSITIVE)
    write_suggestions(run, [("0.png", label, 0.9, "missing")], maps=False)
    return run, source, label


def test_the_users_own_table_comes_back_in_its_form(own):
    run, source, label = own
    app, session = open_app(run)
    client = TestClient(app)
    assert client.get("/download/same").content == source.read_bytes()  # nobody has answered
    session.record([Answer("0.png", label, "yes", 0)], who="Ann")
    answer = client.get("/download/same")
    was, now = (content.decode("latin-1").split("\r\n") for content in (source.read_bytes(), answer.content))
    assert now[0] == was[0]
    assert now[2:] == was[2:]
    assert (now[1][:9], label in was[1], label in now[1]) == (was[1][:9], False, True)


def test_names_of_files_are_no_headers(own):
    run, source, _ = own
    answer = TestClient(open_app(run)[0]).get("/download/same")
    assert "set-cookie" not in answer.headers
    header = answer.headers["content-disposition"]
    assert header.isascii()
    assert not set(header) & set('\r\n"')
    assert unquote(header.partition("''")[2]) == source.name


def test_downloads_leave_nothing_behind_and_change_nothing(own, tmp_path, monkeypatch):
    run, source, label = own
    app, session = open_app(run)
    session.record([Answer("0.png", label, "no", 0)], who="Ann")
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    before = {path: path.read_bytes() for path in source.parent.iterdir() if path.is_file()}
    client = TestClient(app)
    for form in ("same", "csv", "json", "answers"):
        assert client.get(f"/download/{form}").status_code == 200
    assert {path: path.read_bytes() for path in source.parent.iterdir() if path.is_file()} == before
    assert list((tmp_path / "temporary").iterdir()) == []


def test_what_cannot_be_written_in_its_form_is_not_offered(tmp_path):
    run = write_run(tmp_path / "run", "digits")
    table = FinishedRun(run).table
    label = next(name for name in table.classes if table.labels[0, table.classes.index(name)] != POSITIVE)
    if FinishedRun(run).known[0, table.classes.index(label)] == -1:
        write_suggestions(run, [(table.files[0], label, 0.9, "missing")], maps=False)
    else:
        write_suggestions(run, [(table.files[0], label, 0.9, "wrong")], maps=False)
    client = TestClient(open_app(run)[0])
    assert "/download/same" not in client.get("/download").text
    answer = client.get("/download/same")
    assert (answer.status_code, answer.text.count("\n")) == (503, 1)
    assert "is no table" in answer.text
    assert len(rows_of(client.get("/download/csv"))) == len(table)


def test_after_an_audit_all_labels_of_its_images_are_there(tmp_path):
    app, session = open_audit_app(audit_run(tmp_path / "audited"))
    complete_all(session)
    rows = {row["file"]: row for row in rows_of(TestClient(app).get("/download/csv"))}
    for number, file in enumerate(session.sample.files, start=1):
        assert {name for name in session.table.classes if rows[file][name] == "1"} == shown_in(session, number)


def test_keywords_come_as_files_to_put_beside_the_photos(review):
    client, session = review
    cell = session.suggestion(1)
    session.record([Answer(cell.file, cell.label, "yes", 0)], who="Ann")
    before = sorted(session.table.root.iterdir())
    answer = client.get("/download/xmp")
    assert answer.headers["content-type"] == "application/zip"
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert all(name.endswith(".xmp") for name in archive.namelist())
        assert f"<rdf:li>{cell.label}</rdf:li>" in archive.read(f"{cell.file}.xmp").decode()
    assert sorted(session.table.root.iterdir()) == before


def test_who_has_no_name_yet_is_asked_first(tmp_path):
    app, _ = open_app(small_run(tmp_path), name=None)
    answer = TestClient(app, follow_redirects=False).get("/download/csv")
    assert (answer.status_code, answer.headers["location"]) == (303, "/name")
