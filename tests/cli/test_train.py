"""`onepair train`: what it prints and leaves behind, and a sentence for every mistake."""

import json
import sys

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from onepair import models
from onepair.runs.folder import RunFolder
from tests.cli.command import onepair
from tests.training.tiny import SETTINGS, TEST, TRAIN, labels_of, write_images, write_table

# Settings win over options, so what tests choose by an option is given by an option here too.
OPTIONS = {"model.backbone": "--backbone", "model.mode": "--mode", "method.name": "--method"}
TINY = [
    part
    for key, value in (setting.split("=") for setting in SETTINGS)
    for part in ((OPTIONS[key], value) if key in OPTIONS else ("--set", f"{key}={value}"))
]


@pytest.fixture
def images(tmp_path):
    (tmp_path / "data").mkdir()
    return write_images(tmp_path / "data")


@pytest.fixture
def command(in_process, monkeypatch, tmp_path):
    """The command in this process, with an empty folder to work in: exit code, output, errors."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return in_process


@pytest.mark.parametrize(
    ("setting", "process"),
    [("known=0.1", "fraction"), ("positives=2", "few-positives"), ("boxes=b.csv", "largest-object")],
)
def test_what_another_observation_would_need_is_refused(command, images, setting, process):
    name = setting.partition("=")[0]
    code, _, errors = command("train", images, *TINY, "--set", f"data.{setting}", "--out", "run")
    assert code == 2
    assert f"data.{name} says what is seen with --observe {process}, and here it is single-positive" in errors


def test_a_run_and_again(command, images, tmp_path):
    arguments = ("train", images, *TINY, "--method", "opml-sp", "--mode", "finetune", "--out", "run")
    first = onepair(*arguments, cwd=tmp_path / "here")
    assert first.returncode == 0, first.stderr
    results = json.loads((tmp_path / "here" / "run" / "results.json").read_text())
    chosen, worth, *table, figures, last = first.stdout.splitlines()
    score = f"selection score {100 * results['validation_map']:.2f} (full validation labels)"
    assert chosen == f"best epoch {results['best_epoch']}, {score}"
    assert worth.startswith("by 9 images: of 10 labels it gives, ")
    assert sum("%" in line for line in table) == 5
    assert figures.startswith(f"test: mAP {100 * results['test_map']:.2f} over 4 classes, precision ")
    assert last == "everything is in run"
    told = command("evaluate", "run").stdout
    assert {worth, figures.removeprefix("test: ")} <= set(told.splitlines())
    assert "30 images to train on, 7 to select the best epoch by (full validation labels), 9 to test on" in first.stderr
    assert "finetune epoch 2: loss" in first.stderr
    code, output, errors = command(*arguments)
    assert (code, output) == (0, first.stdout)
    assert errors == "run holds this run already; delete the folder to do it again\n"


def test_settings_win_over_options_and_options_over_the_file(command, images, tmp_path):
    (tmp_path / "a.toml").write_text(
        'finetune.epochs = 7\n[linear]\nprotocol = "epochs"\nepochs = 1\nbatch_size = 5\n[method]\nname = "role"\n'
    )
    network = ("--backbone", "small-cnn", "--mode", "linear", "--set", "model.image_size=16")
    options = ("--config", tmp_path / "a.toml", "--method", "opml", "--set", "linear.batch_size=6", "--out", "run")
    code, _, errors = command("train", images, *network, *options)
    assert code == 0, errors
    config = RunFolder(tmp_path / "here" / "run").config()
    assert (config.method.name, config.linear.batch_size, config.linear.epochs) == ("opml", 6, 1)
    assert config.finetune.epochs == 7


def test_without_any_option_it_is_what_start_does(command, images, tmp_path, monkeypatch):
    monkeypatch.setattr(models, "backbones_at_hand", lambda: ["small-cnn"])
    code, output, errors = command("train", images)
    assert code == 0, errors
    assert "everything is in runs/labels-opml-plus-linear-small-cnn" in output
    config = RunFolder(tmp_path / "here" / "runs" / "labels-opml-plus-linear-small-cnn").config()
    assert config.model.backbone == "small-cnn"
    assert command("start", images, "--no-page")[0] == 0
    started = RunFolder(images.with_name("labels.onepair") / "runs" / "1").config()
    assert (started.model, started.method, started.linear) == (config.model, config.method, config.linear)


def test_a_table_that_was_changed_is_not_taken_for_done(command, images):
    arguments = ("train", images, *TINY, "--set", "linear.epochs=1", "--out", "run")
    assert command(*arguments)[0] == 0
    images.write_text(images.read_text().replace(",0\n", ",1\n", 1))
    code, output, errors = command(*arguments)
    assert (code, output) == (2, "")
    assert "has changed since it was trained (its files, classes, splits or labels); bring the old one back" in errors


def test_a_run_is_named_by_what_it_is(command, images, tmp_path):
    code, output, errors = command("train", images, *TINY, "--mode", "linear", "--method", "bce")
    assert code == 0, errors
    assert "everything is in runs/labels-bce-linear-small-cnn" in output
    assert (tmp_path / "here" / "runs" / "labels-bce-linear-small-cnn" / "results.json").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere.csv"], "nowhere.csv: there is no such file or folder"),
        (["{data}", "--method", "opml-sb"], "there is no method 'opml-sb'; did you mean 'opml-sp'?"),
        (["{data}", "--backbone", "small-cnm"], "there is no backbone 'small-cnm'"),
        (["{data}", "--backbone", "test_resnet", "--weights", "gone.pth"], "gone.pth: no such file"),
        (["{data}", "--set", "linear.optimiser.momentun=1"], "did you mean linear.optimiser.momentum?"),
        (["{data}", "--set", "epochs"], "--set epochs: expected key=value"),
        (["{data}", "--set", "linear.epochs=0"], "linear.epochs must be above 0, got 0"),
        (["{data}", "--set", "epochs=3"], "there is no setting epochs; did you mean linear.epochs or finetune.epochs?"),
        (["{data}", "--preset", "voc2021"], "there is no preset voc2021; did you mean voc2012?"),
        (["{data}", "--config", "gone.toml"], "gone.toml: cannot be read (No such file or directory)"),
        (["{data}", "--accelerator", "abacus"], "abacus"),
        (["{data}", "--devices", "0"], "--devices must be a number above 0, or auto, got '0'"),
        (["{data}", "--devices", "two"], "--devices must be a number above 0, or auto, got 'two'"),
        (["{data}", "--out", "{data}"], "labels.csv: cannot be written (Not a directory)"),
        (["{data}", "--out", "{data}/run"], "cannot be written (Not a directory)"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_end_in_a_sentence_and_leave_nothing(command, images, tmp_path, arguments, sentence):
    before = sorted(tmp_path.rglob("*"))
    code, _, errors = command("train", *TINY, *(part.format(data=images) for part in arguments))
    assert code == 2
    assert errors.startswith("onepair: ")
    assert sentence in errors
    assert errors.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_mistakes_that_typer_finds(command):
    for arguments in (["digits", "--mode", "linaer"], ["digits", "--epoch", "3"]):
        code, _, errors = command("train", *arguments)
        assert code == 2
        assert "Usage: " in errors
        assert "Traceback" not in errors


def test_a_dataset_must_be_named(command):
    code, _, errors = command("train")
    assert (code, errors) == (2, "onepair: name a dataset, as in: onepair train digits\n")


def test_labels_that_cannot_be_hidden(command, images, tmp_path):
    labels = labels_of(TRAIN + TEST)
    labels[0, 0] = -1
    write_table(images, ["train"] * TRAIN + ["test"] * TEST, labels)
    code, _, errors = command("train", images, *TINY)
    assert code == 2
    assert "every training label must be known" in errors
    assert not list((tmp_path / "here").iterdir())


def test_a_run_with_other_settings_needs_another_folder(command, images):
    assert command("train", images, *TINY, "--out", "run")[0] == 0
    code, _, errors = command("train", images, *TINY, "--set", "finetune.epochs=9", "--out", "run")
    assert code == 2
    assert (
        "another configuration (finetune.epochs is 9, was 2); go on with the old settings, name another folder"
        in errors
    )


def test_curves_for_tensorboard(command, images, tmp_path):
    code, _, errors = command("train", images, *TINY, "--out", "run", "--tensorboard")
    assert code == 0, errors
    folder = tmp_path / "here" / "run"
    curves = EventAccumulator(str(folder / "tensorboard" / "linear")).Reload()
    written = [event.value for event in curves.Scalars("validation_map")]
    expected = [json.loads(line)["validation_map"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert written == pytest.approx(expected)
    assert [event.step for event in curves.Scalars("loss")] == [1, 2, 3]


def test_tensorboard_that_is_not_installed(command, images, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    code, _, errors = command("train", images, *TINY, "--out", "run", "--tensorboard")
    assert code == 2
    assert errors == "onepair: this needs tensorboard; install with: pip install 'onepair[tensorboard]'\n"
    assert not (tmp_path / "here" / "run").exists()
