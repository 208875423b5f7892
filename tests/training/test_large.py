"""Runs on more labels than can be held: a tiny dataset, and a limit that it exceeds."""

import numpy as np
import pytest

from onepair import label_matrix
from onepair.cli.training import _print_results as print_results
from onepair.errors import UserError
from onepair.metrics import mean_average_precision
from onepair.report.compared_runs import read_runs
from onepair.runs import task as tasks
from onepair.runs.finished import FinishedRun
from tests.training.tiny import TEST, TRAIN, labels_of, tiny_config, train_tiny, write_images, write_table


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
    monkeypatch.setattr(tasks, "MAX_EVAL_CELLS", 20)
    places = run.task.eval_rows("test")
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
    monkeypatch.setattr(tasks, "MAX_EVAL_CELLS", 20)
    task = tasks.prepare_task(tiny_config(source).data)
    places = task.eval_rows("test")
    assert len(places) == 20 // 4
    assert (np.diff(places) > 0).all()
    assert places.max() < len(task.test)
    done = train_tiny(source, "method.name=opml-plus", out=tmp_path / "run", cache=tmp_path / "cache")
    assert done.results.test_note.startswith(f"by a random sample of 5 of {TEST} test images")
    run = FinishedRun(done.folder.path)
    assert run.scores("test").shape == (TEST, 4)
    np.testing.assert_array_equal(np.flatnonzero(run.eval_mask("test")), places)
    assert run.sampled("test") == f"by a random sample of 5 of {TEST} test images"


def test_what_a_sample_does_not_hold_is_not_said_of_all(tmp_path, monkeypatch):
    monkeypatch.setattr(tasks, "MAX_EVAL_CELLS", 4)  # one row
    write_images(tmp_path)
    labels = labels_of(TRAIN + TEST)
    seen, tested = 30 + tasks.sample_places(7, 4), TRAIN + tasks.sample_places(TEST, 4)
    labels[30:TRAIN] = 0
    labels[31 if seen == 30 else 30, 0] = 1
    labels[tested] = 0
    source = write_table(tmp_path / "few.csv", ["train"] * 30 + ["validation"] * 7 + ["test"] * TEST, labels)
    done = train_tiny(source, "method.name=opml-plus", out=tmp_path / "run", cache=tmp_path / "cache")
    assert done.results.test_note == f"no image of a random sample of 1 of {TEST} test images has a positive label"
    said = "\n".join(done.listener.said)
    assert "figures, by a random sample of 1 of 30 train images: " in said


def test_figures_of_a_sample_are_told_as_such(source, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tasks, "MAX_EVAL_CELLS", 20)
    paths = [tmp_path / name for name in ("one", "two")]
    for path, method in zip(paths, ("bce", "opml-plus"), strict=True):
        done = train_tiny(source, f"method.name={method}", out=path, cache=tmp_path / "cache")
        print_results(done.results, path)
        *_, figure, end = capsys.readouterr().out.splitlines()
        assert figure.startswith("test: mAP ")
        assert figure.endswith(f"5 images, by a random sample of 5 of {TEST} test images")
        assert end == f"everything is in {path}"
    for run in read_runs(paths):
        assert len(run.labels) == 5
        assert run.test_map == pytest.approx(mean_average_precision(run.scores, run.labels)[0])
