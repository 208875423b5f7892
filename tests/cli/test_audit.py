"""`onepair audit` as a user runs it: pages, sheets, and what it tells in the end."""

import shutil
import signal

import httpx2
import numpy as np
import pytest

from onepair.data.formats.write import write_table
from onepair.data.tables import read_table as tables
from onepair.labels import POSITIVE, UNKNOWN
from onepair.runs.finished import FinishedRun
from tests.review.audits import audit_run, complete_all, open_audit, truth_of
from tests.review.processes import serving


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return audit_run(tmp_path_factory.mktemp("audit") / "small")


@pytest.fixture
def run(original, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return shutil.copytree(original, tmp_path / "run")


def fill_in(run, sheet, *, blank=0):
    """Write the truth into a sheet, but for the last so many rows."""
    table, whole = tables.read(sheet), FinishedRun(run).table
    labels = truth_of(len(whole))[[whole.files.index(file) for file in table.files]].copy()
    labels[len(labels) - blank :, 0] = UNKNOWN
    write_table(tables.LabelTable(table.files, table.classes, labels, table.split, table.root), sheet)
    return table.files


def test_it_serves_until_ctrl_c_and_then_tells_what_it_knows(run):
    with serving(run, "--images", "4", command="audit") as server:
        assert "4 images, 0 complete" in server.said
        page = httpx2.get(server.url, follow_redirects=True)
        assert "What does it show?" in page.text
        fields = {"number": 1, "seen": 0, "ticked": ["bar"]}
        stored = httpx2.post(f"{server.url}/complete", data=fields, headers={"origin": server.url})
        assert stored.status_code == 303
        server.process.send_signal(signal.SIGINT)
        rest = server.process.stdout.read()
        assert server.process.wait(timeout=600) == 0
    assert "audited: 1 of 20 validation images" in rest
    assert "Traceback" not in rest
    assert len(FinishedRun(run).audit) == 1


def test_a_second_process_is_told_that_the_first_is_there(run, in_process):
    with serving(run, command="audit"):
        code, _, errors = in_process("audit", run)
    assert code == 2
    assert "is in use by process" in errors


def test_a_sheet_goes_out_and_comes_back(run, in_process):
    code, output, errors = in_process("audit", run, "--images", 8, "--sheet", "sheet.csv")
    assert (code, errors) == (0, "")
    assert output.startswith("sheet.csv has 8 images: write 1 or 0 where it is blank")
    assert FinishedRun(run).audit is None
    files = fill_in(run, run.parent / "sheet.csv", blank=2)
    code, output, errors = in_process("audit", run, "--images", 8, "--answers", "sheet.csv")
    assert (code, errors) == (0, "")
    assert f"left out, as they have blanks: {files[6]}, {files[7]}" in output
    assert "complete: 6 of 8 images" in output
    assert "audited: 6 of 20 validation images" in output
    assert "further images would halve them" in output
    assert len(FinishedRun(run).audit) == 6


def test_the_summary_of_all_images_is_a_count(run, in_process):
    complete_all(open_audit(run, images=20))
    code, output, errors = in_process("audit", run, "--summary")
    assert (code, errors) == (0, "")
    rows = FinishedRun(run).rows("validation")
    missing = (truth_of(40)[rows] == POSITIVE).sum() - len(rows)
    assert f"{missing} missing labels found, 0 denied; beside 20 positives about {missing} are missing" in output
    assert "all images are audited, so what is missing is counted" in output
    for name in ("mAP", "precision", "recall", "F1"):
        assert name in output


def test_decide_and_evaluate_use_what_was_audited(run, in_process):
    before = FinishedRun(run).decisions.to_dict()
    complete_all(open_audit(run, images=12))
    code, output, errors = in_process("decide", run)
    assert (code, errors) == (0, "")
    assert "on the labels of 12 validation images" in output
    assert "of 20 images these are audited in full" in output
    assert FinishedRun(run).decisions.to_dict() != before
    code, output, _ = in_process("evaluate", run, "--split", "validation")
    assert code == 0
    assert "12 images" in output


def test_the_completed_table_has_the_audited_labels(run, in_process):
    session = open_audit(run, images=5)
    complete_all(session)
    code, _, errors = in_process("labels", run, "--out", "completed.csv")
    assert (code, errors) == (0, "")
    completed = tables.read(run.parent / "completed.csv")
    np.testing.assert_array_equal(completed.labels[np.sort(session.rows)], FinishedRun(run).audit.labels)


def test_mistakes_end_in_a_sentence(run, in_process):
    for arguments, sentence in (
        (("--summary",), "not one image is audited yet"),
        (("--split", "test"), "its dataset has no test images"),
        (("--sheet", "sheet.txt"), "a table is written as .csv or .parquet"),
        (("--answers", "nowhere.csv"), "nowhere.csv"),
    ):
        code, output, errors = in_process("audit", run, *arguments)
        assert (code, output) == (2, "")
        assert errors.startswith("onepair: ")
        assert sentence in errors
        assert errors.count("\n") == 1
