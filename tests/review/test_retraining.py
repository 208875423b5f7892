"""Training again from the page: one at a time, beside the review, whatever happens to it or to the server."""

import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient

from onepair.cli.options import RunOptions, chosen_config
from onepair.data.formats.read import read_dataset
from onepair.errors import ReviewError
from onepair.probability import fit_decisions
from onepair.review import retraining
from onepair.review.answers import Answer
from onepair.review.app import Application
from onepair.review.photos import Pictures
from onepair.review.queue import open_run
from onepair.review.retraining import Command, Retraining, compare, planned_commands
from onepair.runs.config import DataConfig
from onepair.runs.finished import FinishedRun
from tests.review.runs import CLASSES, TEST, open_app, open_session, write_images, write_run
from tests.review.sites import Site

LISTING, FAILING = ["datasets"], ["labels", "no-such-run", "--out", "none.csv"]


@pytest.fixture
def answered(run):
    """A session with an answer, and what trains on it; stopped in the end."""
    session = open_session(run)
    session.record([Answer(session.suggestion(1).file, session.suggestion(1).label, "yes", 0)], who="Ann")
    yield session, session.retraining
    session.retraining.stop()


@pytest.fixture
def plan(monkeypatch, run):
    """Run other commands than the real ones: by their words, or one that goes on until it is stopped (None).

    Those of which `made` is true have their result already.
    """
    endless = ["review", str(run), "--port", "0"]

    def use(*commands, made=()):
        for step in made:
            run.with_name(f"result-{step}").touch()
        chosen = [Command(words or endless, run.with_name(f"result-{step}")) for step, words in enumerate(commands)]
        monkeypatch.setattr(retraining, "planned_commands", lambda opened, new: chosen)

    return use


def wait_for(again, state, seconds=600):
    """Until a training is in a state; what is there by then."""
    end = time.monotonic() + seconds
    while (now := again.progress()).state != state:
        assert time.monotonic() < end, now
        time.sleep(0.05)
    return now


def test_the_commands_are_plain_and_the_new_run_is_a_sibling(run):
    opened = open_run(run)
    labels, train, find = (each.words for each in planned_commands(opened, run.with_name("run-2")))
    table = str(run.with_name("run-2-labels.csv"))
    assert labels == ["labels", str(run), "--out", table, "--as", "csv"]
    assert train[:4] == ["train", table, "--config", str(run / "config.toml")]
    assert train[4:] == ["--set", "data.observe=given", "--out", str(run.with_name("run-2"))]
    assert find == ["find", str(run.with_name("run-2")), "--folds", "5"]
    assert Retraining(opened, open_session(run).store).plan()[1].text.startswith("onepair train ")


def test_what_the_first_table_needed_is_not_asked_of_the_second(tmp_path):
    """A list of labels with options to read it becomes a table that needs none; all else stays as it was."""
    first = {
        "unlisted": "negative",
        "zeros": "unknown",
        "images": str(tmp_path / "images"),
        "label_columns": CLASSES,
        "complete_splits": ["test"],
        "format": "table",
        "seed": 3,
    }
    run = write_run(tmp_path / "run", write_images(tmp_path / "images"), **first)
    words = planned_commands(FinishedRun(run), tmp_path / "run-2")[1].words
    settings = [word for option, word in pairwise(words) if option == "--set"]
    config = chosen_config(words[1], RunOptions(config=run / "config.toml", settings=settings))
    assert config.data == DataConfig(source=str(tmp_path / "run-2-labels.csv"), seed=3)
    assert config.method == FinishedRun(run).config.method


def test_no_folder_or_table_is_ever_overwritten(run, answered):
    _, again = answered
    run.with_name("run-2").mkdir()
    run.with_name("run-3-labels.csv").touch()
    assert again.plan()[2].words[1] == str(run.with_name("run-4"))


def test_without_answers_it_says_so(run):
    session = open_session(run)
    with pytest.raises(ReviewError, match="nobody has answered yes or no yet"):
        Retraining(session.run, session.store).start()


def test_commands_without_a_result_run_one_after_the_other(answered, plan, monkeypatch):
    session, again = answered
    assert again.progress() is None
    plan(["first"], ["second"], ["third"], made=[0])
    ran = []

    def execute(words, log):
        ran.append(words)
        session.run.path.with_name(f"result-{len(ran)}").touch()
        return 0

    monkeypatch.setattr(again, "_execute", execute)
    again.start()
    now = wait_for(again, "done")
    assert ran == [["second"], ["third"]]
    assert (now.step, now.newest) == (2, 1)
    assert Retraining(session.run, session.store).progress().state == "done"  # after a restart, too


def test_a_failing_command_ends_it_with_its_sentence(answered, plan):
    _, again = answered
    plan(FAILING, LISTING)
    again.start()
    now = wait_for(again, "stopped")
    assert now.step == 0
    assert now.sentence.startswith("no-such-run: holds no run with suggestions")


def test_it_is_stopped_and_goes_on_with_the_same_command_also_in_another_server(answered, plan):
    session, again = answered
    plan(LISTING, None, LISTING, made=[0])
    again.start()
    wait_for(again, "running")
    again.stop()
    assert (again.progress().state, again.progress().step) == ("stopped", 1)
    after = Retraining(session.run, session.store)
    assert after.progress().state == "stopped"
    after.resume()
    try:
        assert (after.progress().state, after.progress().step) == ("running", 1)
    finally:
        after.stop()


def test_only_one_at_a_time_in_one_server_and_in_several(answered, plan):
    session, again = answered
    plan(None)
    again.start()
    first = (session.run.path / "finding" / "retraining.json").read_text()
    again.start()
    other = Retraining(session.run, session.store)
    wait_for(other, "elsewhere")
    other.start()
    other.resume()
    other.stop()  # which is not its own to stop
    assert again.progress().state == "running"
    assert (session.run.path / "finding" / "retraining.json").read_text() == first


def test_a_run_that_was_put_aside_is_told_on_the_page(answered, plan):
    """No thread may die in silence: where the run's folder is gone, the page says so."""
    session, _ = answered
    plan(FAILING)
    app = Application(session, Pictures(session.table, cache=session.run.path.parent / "cache"), name="Ann")
    client = TestClient(app)
    assert "Train again with these answers" in client.get("/training").text
    session.run.path.rename(session.run.path.with_name("run.old"))
    for wish in ("start", "resume"):
        answer = client.post("/training", data={"wish": wish})
        assert answer.status_code == 503
        assert "review.sqlite: was moved, deleted or replaced" in answer.text


def test_a_log_that_cannot_be_written_is_told(answered, plan):
    session, again = answered
    plan(FAILING)
    (session.run.path / "finding" / "retraining.log").mkdir()
    again.start()
    assert "retraining.log: cannot be written" in wait_for(again, "stopped").sentence


@pytest.mark.parametrize("content", ["", "{", '{"run": 3}'])
def test_a_record_that_cannot_be_read_is_none(answered, content):
    session, again = answered
    (session.run.path / "finding" / "retraining.json").write_text(content)
    assert again.progress() is None


def test_the_page_says_what_it_would_do_and_how_far_it_is(run, plan):
    app, session = open_app(run)
    site = Site(TestClient(app), session)
    page = site.get("/training")
    assert "Nobody has answered yes or no yet" in page.text
    assert "start" not in page.ids()
    site.answer(session.suggestion(1), "yes")
    page = site.get("/training")
    assert f"onepair labels {run} --out" in page.text
    assert "1 answer so far" in page.text
    plan(None, LISTING)
    page = site.post("/training", wish="start")
    assert "Writing the labels …" in page.text
    assert "Training: 0 %" in site.get("/suggestion/2").text  # on every page
    site.answer(session.suggestion(2), "no")  # the review goes on
    assert session.suggestion(2).answer == "no"
    page = site.post("/training", wish="stop")
    assert "The training has stopped" in page.text
    plan(FAILING)
    site.post("/training", wish="start")
    while session.retraining.progress().state != "stopped":
        time.sleep(0.05)
    page = site.get("/training")
    assert "no-such-run: holds no run with suggestions" in page.text


def test_photos_that_changed_and_figures_of_both(tmp_path):
    """Runs whose scores are made up: the second one is right everywhere, and knows a class more."""
    source = write_images(tmp_path / "images")
    table = read_dataset(source)
    truth = table.labels[table.rows("test")]
    wider = tmp_path / "images" / "wider.csv"
    lines = source.read_text().splitlines()
    wider.write_text("\n".join([f"{lines[0]},kite", *(f"{line}," for line in lines[1:])]))
    random = np.random.default_rng(0)
    noisy = truth + random.normal(0, 1, truth.shape)
    right = np.hstack([4.0 * truth - 2, np.full((TEST, 1), -3.0)])
    right[2, -1] = 3.0  # a kite
    decisions = {
        "before": fit_decisions([[1.0] * 4, [0.0] * 4], [[1] * 4, [0] * 4]),
        "after": fit_decisions([[1.0] * 5, [-1.0] * 5], [[1] * 5, [0] * 5]),
    }
    runs = {}
    for name, path, scores, classes in (
        ("before", source, noisy, CLASSES),
        ("after", wider, right, (*CLASSES, "kite")),
    ):
        opened = FinishedRun(write_run(tmp_path / name, path))
        opened.folder.write_scores("test", scores.astype(np.float32))
        runs[name] = opened
        opened.__dict__["description"] = type("Told", (), {"classes": classes, "decisions": decisions[name]})
    found = compare(runs["before"], runs["after"])
    assert (found.split, found.images, found.after.assumption) == ("test", TEST, "")
    assert (found.before.name, found.after.name) == ("before", "after")
    assert found.after.map.value == found.after.f1.value == 1.0
    assert found.before.map.low <= found.before.map.value <= found.before.map.high
    assert found.before.map.value < 1
    wrong = decisions["before"].labels(noisy.astype(np.float32)) != (truth == 1)
    kites = np.arange(TEST) == 2
    assert found.verdict == "better"
    assert found._replace(before=found.after, after=found.before).verdict == "worse"
    assert found._replace(after=found.before).verdict == "alike"
    assert found.changed == (wrong.any(1) | kites).sum()
    for label, gained, lost in found.most:
        changes = [each.gained for photo in found.photos for each in photo.changes if each.label == label]
        assert (gained, lost) == (sum(changes), len(changes) - sum(changes))
    (kite,) = [change for photo in found.photos for change in photo.changes if change.label == "kite"]
    assert (kite.before, kite.gained) == (None, True)
    for photo in found.photos:
        place = photo.row - table.rows("test")[0]
        changed = {change.label for change in photo.changes} - {"kite"}
        assert changed == {CLASSES[column] for column in np.flatnonzero(wrong[place])}
        assert Path(photo.file).name == Path(table.files[photo.row]).name
