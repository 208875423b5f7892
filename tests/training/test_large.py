"""Runs on more labels than can be held: a tiny dataset, and a limit that it exceeds."""

import numpy as np
import pytest

from onepair import label_matrix
from onepair.errors import UserError
from onepair.finding.folds import train_folds
from onepair.runs import task as tasks
from onepair.runs.finished import FinishedRun
from onepair.runs.folder import RunError
from onepair.training.machine import Machine
from tests.training.tiny import TEST, Listener, tiny_config, train_tiny, write_images


@pytest.fixture
def source(tmp_path):
    return write_images(tmp_path)


@pytest.mark.parametrize("method", ["opml-sp", "opml-plus", "gr"])
def test_the_same_is_learned_from_blocks(source, tmp_path, monkeypatch, method):
    settings = (f"method.name={method}", "linear.epochs=3")
    held = train_tiny(source, *settings, out=tmp_path / "held", cache=tmp_path / "cache")
    monkeypatch.setattr(label_matrix, "MOST_CELLS", 10)
    blocks = train_tiny(source, *settings, out=tmp_path / "blocks", cache=tmp_path / "cache")
    assert blocks.weights == held.weights
    assert blocks.results == held.results
    assert (held.folder.path / "scores_test.npy").exists()
    assert not (blocks.folder.path / "scores_test.npy").exists()
    run = FinishedRun(blocks.folder.path)
    with pytest.raises(RunError, match=f"all {TEST} test images for 4 classes at once, and there can be 10 of them"):
        run.scores("test")
    with pytest.raises(RunError, match="to find labels, each of"):
        train_folds(run, 2, machine=Machine(accelerator="cpu", devices=1, workers=0), watch=Listener())


def test_what_needs_every_label_is_refused_before_it_begins(source, tmp_path, monkeypatch):
    monkeypatch.setattr(label_matrix, "MOST_CELLS", 10)
    with pytest.raises(UserError, match="a number for each of 4 labels of each of"):
        train_tiny(source, "method.name=role", out=tmp_path / "role", cache=tmp_path / "cache")
    assert not (tmp_path / "role").exists()


def test_probabilities_rest_on_a_sample_of_many_rows(source, tmp_path, monkeypatch):
    monkeypatch.setattr(tasks, "MOST_JUDGED", 20)
    task = tasks.prepare_task(tiny_config(source).data)
    places = task.judged("test")
    assert len(places) == 20 // 4
    assert (np.diff(places) > 0).all()
    assert places.max() < len(task.test)
    done = train_tiny(source, "method.name=opml-plus", out=tmp_path / "run", cache=tmp_path / "cache")
    assert done.results.test_note.startswith(f"by a random sample of 5 of {TEST} test images")
    assert FinishedRun(done.folder.path).scores("test").shape == (TEST, 4)
