"""`onepair tune`, from the command to the file that `onepair train` takes."""

import sys

import pytest

from onepair.runs.config import build_config, read_config
from tests.training.tiny import SETTINGS

TINY = [part for setting in (*SETTINGS, "method.name=focal", "linear.epochs=1") for part in ("--set", setting)]


@pytest.fixture
def command(in_process, monkeypatch, tmp_path):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return in_process


def test_it_searches_says_what_to_do_and_goes_on(command, images, tmp_path):
    code, output, errors = command("tune", images, *TINY, "--trials", "2", "--workers", 0)
    assert code == 0, errors
    out = "runs/tune-labels-focal-linear-small-cnn"
    lines = output.splitlines()
    assert lines[0].startswith("best of 2 trials: validation mAP ")
    assert lines[0].endswith("with the settings as they were)")
    assert lines[-1] == f"train with it: onepair train --config {out}/best.toml"
    assert "[2/2] " in errors
    for name in ("best.toml", "history.svg", "history.png", "trials.csv"):
        assert (tmp_path / "here" / out / name).stat().st_size > 0
    code, output, errors = command("tune", images, *TINY, "--trials", "3", "--workers", 0)
    assert code == 0, errors
    assert output.startswith("best of 3 trials")
    assert errors.count("validation mAP") == 1
    code, output, errors = command("train", "--config", f"{out}/best.toml", "--out", "run", "--workers", 0)
    assert code == 0, errors
    best = build_config(read_config(tmp_path / "here" / out / "best.toml"))
    assert best == build_config(read_config(tmp_path / "here" / "run" / "config.toml"))


def test_it_reads_a_dataset_as_train_does(command, images, tmp_path):
    table = tmp_path / "elsewhere.csv"
    table.write_text(images.read_text().replace("red", "rouge"))
    reading = ("--folder", images.parent, "--format", "table", "--label-columns", "rouge,green")
    code, _, errors = command("tune", table, *TINY, "--trials", "1", "--workers", 0, *reading, "--out", "found")
    assert code == 0, errors
    data = build_config(read_config(tmp_path / "here" / "found" / "best.toml")).data
    assert (data.images, data.format, data.label_columns) == (str(images.parent), "table", ("rouge", "green"))


def test_mistakes_end_in_a_sentence_and_leave_nothing(command, images, monkeypatch, tmp_path):
    for arguments, sentence in (
        ([], "name a dataset, as in: onepair tune digits"),
        ([images, "--method", "opml-sb"], "there is no method 'opml-sb'"),
        ([images, "--preset", "zzz"], "there is no preset zzz; there are voc2012"),
        (["nowhere.csv"], "nowhere.csv: there is no such file or folder"),
    ):
        code, _, errors = command("tune", *arguments)
        assert code == 2
        assert sentence in errors.splitlines()[-1]
    assert not list((tmp_path / "here").iterdir())
    monkeypatch.setitem(sys.modules, "optuna", None)
    code, _, errors = command("tune", images)
    assert (code, errors) == (2, "onepair: this needs optuna; install with: pip install 'onepair[tune]'\n")
