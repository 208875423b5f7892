"""Fixed features are solved for: on all training images, with out-of-fold scores of each."""

import json
import shutil

import numpy as np
import pytest

from onepair import label_matrix
from onepair.errors import ConfigError, RunError
from onepair.finding.find import find_labels
from onepair.finding.folds import read_out_of_sample
from onepair.review.completion import write_completed
from onepair.runs.config import DataConfig
from onepair.runs.finished import FinishedRun
from onepair.runs.task import prepare_task
from onepair.training.hardware import Hardware
from tests.training.tiny import CLASSES, SOLVED, TEST, TRAIN, Listener, labels_of, train_tiny, write_images, write_table

GIVEN = (SOLVED, "method.name=opml-plus", "data.observe=given")


@pytest.fixture(scope="module")
def trained(images, cache, tmp_path_factory):
    """A run that is solved for; nobody changes it."""
    return train_tiny(images, *GIVEN, out=tmp_path_factory.mktemp("solved") / "run", cache=cache)


@pytest.fixture
def solved(trained, tmp_path):
    """A copy of it."""
    return FinishedRun(shutil.copytree(trained.folder.path, tmp_path / "run"))


def head_of(run):
    return run.classifier.head.weight.detach().numpy(), run.classifier.head.bias.detach().numpy()


def test_all_training_images_train_and_are_judged_out_of_fold(solved):
    assert len(solved.task.train) == TRAIN
    np.testing.assert_array_equal(solved.task.validation, solved.task.train)
    assert solved.scores("train").shape == (TRAIN, len(CLASSES))
    np.testing.assert_array_equal(solved.scores("validation"), solved.scores("train"))
    assert (solved.results.best_epoch, solved.results.penalty > 0) == (None, True)
    assert "out of fold" in solved.results.selected_on
    assert [record["penalty"] for record in solved.history]


def test_each_image_is_scored_by_a_model_that_was_not_fitted_to_it(train, images):
    """With other labels of an image, its own out-of-fold model stays as it is, for a penalty that is given."""
    settings = (SOLVED, "method.name=bce", "data.observe=given", "linear.penalty=0.5")
    one = FinishedRun(train(*settings, out="one").folder.path)
    labels = labels_of(TRAIN + TEST)
    row = int(one.task.train[3])
    labels[row] = 1 - labels[row]
    other_table = write_table(images.with_name("other.csv"), ["train"] * TRAIN + ["test"] * TEST, labels)
    other = FinishedRun(train(*settings, out="other", source=other_table).folder.path)
    own = one.folds().fold[3]
    assert apart(one.folds().coef[own], other.folds().coef[own]) < 0.02
    assert apart(head_of(one)[0], head_of(other)[0]) > 0.1


def apart(one, other):
    """How far from each other two matrices are, by their length."""
    return np.linalg.norm(one - other) / np.linalg.norm(one)


def out_of_sample(run, hardware):
    fabric = hardware.fabric("32-true")
    return read_out_of_sample(run, (), fabric=fabric, hardware=hardware, callbacks=[Listener()])


def test_finding_trains_nothing(solved, cache):
    hardware = Hardware(accelerator="cpu", devices=1, workers=0, cache=cache)
    found = find_labels(solved, hardware=hardware, callbacks=[Listener()], maps=False)
    assert found.folds == 5
    assert not (solved.path / "finding" / "folds").exists()
    np.testing.assert_array_equal(out_of_sample(solved, hardware).scores, solved.scores("train"))


def test_scores_that_were_not_kept_are_those_of_the_folds(solved):
    kept = solved.scores("train")
    (solved.path / "scores_train.npy").unlink()
    np.testing.assert_allclose(
        solved.scores("train", workers=0), kept, atol=0.02
    )  # features are kept in half precision


def test_small_and_large_find_the_same_images(solved, cache, monkeypatch):
    hardware = Hardware(accelerator="cpu", devices=1, workers=0, cache=cache)
    small = find_labels(solved, hardware=hardware, callbacks=[Listener()], maps=False)
    monkeypatch.setattr(label_matrix, "MOST_CELLS", 10)
    again = FinishedRun(solved.path)
    large = find_labels(again, hardware=hardware, callbacks=[Listener()], maps=False)
    np.testing.assert_array_equal(small.rows, large.rows)
    assert large.folds == small.folds
    np.testing.assert_array_equal(small.suggestions.kind, large.suggestions.kind)
    np.testing.assert_allclose(small.suggestions.probability, large.suggestions.probability, atol=0.01)


def test_a_validation_split_that_the_table_names_is_kept_to_judge_by(train, tmp_path):
    labels = labels_of(TRAIN + TEST)
    split = ["train"] * (TRAIN - 10) + ["validation"] * 10 + ["test"] * TEST
    table = write_table(write_images(tmp_path), split, labels)
    run = FinishedRun(train(*GIVEN, source=table).folder.path)
    assert (len(run.task.train), len(run.task.validation)) == (TRAIN - 10, 10)
    assert run.scores("validation").shape == (10, len(CLASSES))
    assert run.results.selected_on == "full validation labels"
    hardware = Hardware(accelerator="cpu", devices=1, workers=0)
    assert len(out_of_sample(run, hardware).sample) == 10


def test_the_labels_that_a_run_has_hidden_are_not_judged_by(images):
    task = prepare_task(DataConfig(str(images), observe="single-positive"), out_of_fold=True)
    assert task.out_of_fold
    np.testing.assert_array_equal(task.validation_labels.dense(), task.observed.dense())


def test_completed_labels_stay_training_images(solved, tmp_path):
    write_completed(solved, [], tmp_path / "completed.csv")
    assert "validation" not in (tmp_path / "completed.csv").read_text()


def test_damaged_models_of_folds_are_a_sentence(solved):
    (solved.path / "folds.safetensors").write_bytes(b"nothing")
    with pytest.raises(RunError, match=r"folds\.safetensors: is damaged"):
        solved.folds()


def test_the_same_bits_come_out_twice(trained, train):
    assert train(*GIVEN, out="again").weights == trained.weights


def test_a_run_of_the_version_before_keeps_its_validation_images(train):
    done = train("linear.epochs=2")
    file = done.folder.path / "config.toml"
    text = (
        file.read_text()
        .replace("format = 2\n", "", 1)
        .replace('protocol = "epochs"\n', "scaled = true\n")
        .replace('penalty = "auto"', "penalty = 0.3")
    )
    file.write_text(text)
    run = FinishedRun(done.folder.path)
    assert (run.config.linear.protocol, run.config.linear.epochs) == ("epochs", 2)
    assert len(run.scores("validation")) == len(run.task.validation) < TRAIN
    assert json.loads((done.folder.path / "results.json").read_text())["best_epoch"] == run.results.best_epoch


def test_a_method_of_many_small_steps_is_refused(train):
    with pytest.raises(ConfigError, match="crisp needs many small steps"):
        train(SOLVED, "method.name=crisp")
    assert train("method.name=crisp").results.best_epoch >= 1
