"""Runs on more labels than can be held: a tiny dataset, and a limit that it exceeds."""

import numpy as np
import pytest

from onepair import label_matrix
from onepair.errors import UserError
from onepair.runs import task as tasks
from onepair.runs.finished import FinishedRun
from tests.training.tiny import TEST, tiny_config, train_tiny, write_images


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
    monkeypatch.setattr(tasks, "MOST_JUDGED", 20)
    places = run.task.judged("test")
    assert run.sampled("test") == f"by a random sample of 5 of {TEST} test images"
    kept = held.folder.scores("test")
    np.testing.assert_allclose(run.scores("test"), kept[places], atol=1e-5)  # features were rounded
    np.testing.assert_array_equal(run.labels("test"), run.table.labels[run.task.test[places]])


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
    run = FinishedRun(done.folder.path)
    assert run.scores("test").shape == (TEST, 4)
    np.testing.assert_array_equal(np.flatnonzero(run.judged("test")), places)
    assert run.sampled("test") == f"by a random sample of 5 of {TEST} test images"
