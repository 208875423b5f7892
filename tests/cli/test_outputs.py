"""No output takes the place of what it is made from: every output option against every kind of input."""

import os

import numpy as np
import pytest
import typer

from onepair.cli.main import app
from onepair.models import create_backbone, save_weights
from tests.training.tiny import train_tiny, write_images

OUTPUTS = {  # by command: the words before the option, the option, and the suffix that it asks for
    "audit": (("run",), "--sheet", ".csv"),
    "check": (("photos/labels.csv",), "--fix", ".csv"),
    "compare": (("run", "other"), "--out", ".html"),
    "explain": (("run", "0"), "--out", ".png"),
    "export": (("run",), "--out", ".onnx"),
    "features": (("photos/labels.csv", "--backbone", "small-cnn", "--weights", "net.safetensors"), "--out", ".npy"),
    "find": (("run",), "--out", ".csv"),
    "labels": (("run",), "--out", ".csv"),
    "predict": (("run", "photos"), "--out", ".csv"),
    "report": (("run",), "--out", ".html"),
}
FOLDERS = {"demo", "reproduce", "start", "train", "tune"}  # whose --out is a folder
INPUTS = {"table": "photos/labels.csv", "image": "photos/03.png", "weights": "net.safetensors"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("outputs")
    (folder / "photos").mkdir()
    weights = folder / INPUTS["weights"]
    save_weights(weights, create_backbone("small-cnn", weights=None).network.state_dict())
    source = write_images(folder / "photos")
    for name in ("run", "other"):
        settings = (f"model.weights='{weights}'", "data.observe=given", f"seed={len(name)}", "linear.epochs=1")
        train_tiny(source, *settings, out=folder / name, cache=folder / "cache")
    return folder


@pytest.fixture
def onepair(folder, in_process, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    return in_process


def test_every_output_is_tried():
    commands = typer.main.get_command(app).commands
    written = {
        (name, option.opts[0])
        for name, command in commands.items()
        for option in command.params
        if option.name in ("out", "fix", "sheet") or "rite the " in (option.help or "")
        if not option.is_flag
    }
    assert written == {(name, option) for name, (_, option, _) in OUTPUTS.items()} | {
        (name, "--out") for name in FOLDERS
    }


@pytest.mark.parametrize("link", [os.link, os.symlink], ids=["hard link", "symbolic link"])
@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("name", OUTPUTS)
def test_no_output_takes_the_place_of_an_input(name, kind, link, folder, onepair):
    arguments, option, suffix = OUTPUTS[name]
    original = folder / INPUTS[kind]
    if name == "check" and kind == "weights":
        pytest.skip("check reads no weights")
    before, out = original.read_bytes(), folder / f"out{suffix}"
    link(original, out)
    try:
        result = onepair(name, *arguments, option, out.name)
        assert (result.returncode, result.stderr.count("\n")) == (2, 1), result.stderr
        assert "is what this is made from" in result.stderr
        assert original.read_bytes() == before
        assert out.samefile(original)
    finally:
        out.unlink()


@pytest.mark.parametrize(("name", "option"), [("find", "--out"), ("predict", "--out"), ("audit", "--sheet")])
def test_the_table_by_its_own_name(name, option, folder, onepair):
    result = onepair(name, *OUTPUTS[name][0], option, INPUTS["table"])
    assert result.returncode == 2
    assert result.stderr.startswith("onepair: photos/labels.csv: is what this is made from (")


def test_vectors_of_a_run_and_of_a_prediction(folder, onepair, tmp_path):
    vectors = tmp_path / "vectors.npy"
    np.save(vectors, np.random.default_rng(0).standard_normal((46, 8)).astype(np.float32))
    table = (folder / INPUTS["table"]).read_text()
    (tmp_path / "labels.csv").write_text(table)
    run = tmp_path / "run"
    trained = onepair("train", tmp_path / "labels.csv", "--features", vectors, "--out", run)
    assert trained.returncode == 0, trained.stderr
    os.link(vectors, tmp_path / "out.csv")
    for arguments in (("find", run), ("predict", run, vectors), ("audit", run)):
        option = "--sheet" if arguments[0] == "audit" else "--out"
        result = onepair(*arguments, option, tmp_path / "out.csv")
        assert result.returncode == 2
        assert "is what this is made from" in result.stderr
    fixed = onepair("check", tmp_path / "labels.csv", "--features", vectors, "--fix", tmp_path / "out.csv")
    assert "is what this is made from" in fixed.stderr


def test_answers_of_an_audit_are_an_input(folder, onepair):
    (folder / "run" / "audit").mkdir(exist_ok=True)
    answers = folder / "run" / "audit" / "answers.csv"
    answers.write_text("file,red\n03.png,1\n")
    result = onepair("find", "run", "--out", answers)
    assert result.returncode == 2
    assert answers.read_text().startswith("file,red")


def test_a_folder_of_data_is_no_folder_for_a_run(folder, onepair):
    before = sorted(path.name for path in (folder / "photos").iterdir())
    for out in ("photos", INPUTS["table"]):
        for command in ("train", "tune"):
            result = onepair(command, INPUTS["table"], "--backbone", "small-cnn", "--weights", "none", "--out", out)
            assert result.returncode == 2, result.stderr
    assert sorted(path.name for path in (folder / "photos").iterdir()) == before


def test_an_earlier_output_is_written_again(folder, onepair):
    for _ in range(2):
        result = onepair("audit", "run", "--sheet", "sheet.csv", "--images", "2")
        assert result.returncode == 0, result.stderr
