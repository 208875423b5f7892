"""A finished run, opened again: all that it has, and none of what has changed since."""

import json
import shutil

import numpy as np
import pytest

from onepair.errors import ModelError, RunError, UserError
from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN
from onepair.probability import fit_decisions
from onepair.review.queue import open_run, read_queue
from onepair.runs.finished import FinishedRun, evaluate_run
from tests.training.tiny import CLASSES, TEST, TRAIN, labels_of, train_tiny, write_images, write_table

SPLITS = ["train"] * TRAIN + ["test"] * TEST


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    (folder / "images").mkdir()
    write_images(folder / "images")
    train_tiny(folder / "images" / "labels.csv", out=folder / "run", cache=folder / "cache")
    return folder


@pytest.fixture
def run(folder):
    return FinishedRun(folder / "run")


def test_it_gives_all_that_the_run_has(run):
    assert run.config.method.name == "bce"
    assert run.title == "BCE"
    assert run.classes == CLASSES
    assert len(run.history) == run.history[-1]["epoch"]
    assert run.results.best_epoch == run.history[-1]["best_epoch"]
    assert run.decisions.thresholds.shape == (len(CLASSES),)
    for split in ("train", "validation", "test"):
        np.testing.assert_array_equal(run.labels(split), labels_of(TRAIN + TEST)[run.rows(split)])
        assert run.scores(split).shape == run.labels(split).shape


def test_scores_that_were_not_kept_are_computed(folder, run, tmp_path):
    shutil.copytree(folder / "run", tmp_path / "run")
    kept = FinishedRun(tmp_path / "run").scores("test")
    (tmp_path / "run" / "scores_test.npy").unlink()
    np.testing.assert_allclose(FinishedRun(tmp_path / "run").scores("test"), kept, atol=2e-2)  # of half floats before
    np.save(tmp_path / "run" / "scores_test.npy", kept[1:])
    with pytest.raises(RunError, match=r"scores_test\.npy is not of 9 images and 4 classes"):
        FinishedRun(tmp_path / "run").scores("test")


def other_order(table):
    header, *lines = table.read_text().splitlines()
    table.write_text("\n".join([header, *reversed(lines)]))


def other_labels(table):
    labels = labels_of(TRAIN + TEST)
    labels[-1] = 1 - labels[-1]
    write_table(table, SPLITS, labels)


def other_names(table):
    table.write_text(table.read_text().replace(CLASSES[0], "elephant"))


def other_split(table):
    write_table(table, ["train"] * (TRAIN - 1) + ["test"] * (TEST + 1), labels_of(TRAIN + TEST))


def other_files(folder):
    lines = folder.read_text().splitlines()
    lines[1], lines[2] = lines[2], lines[1]
    folder.write_text("\n".join(lines))


@pytest.mark.parametrize(
    ("source", "advice"), [("{folder}/gone.csv", "bring it back$"), ("gone.csv", "go to the folder")]
)
def test_a_dataset_that_is_not_there_is_named_with_the_run(folder, tmp_path, source, advice):
    shutil.copytree(folder / "run", tmp_path / "run")
    config = (tmp_path / "run" / "config.toml").read_text()
    source = source.format(folder=folder)
    (tmp_path / "run" / "config.toml").write_text(config.replace(str(folder / "images" / "labels.csv"), source))
    with pytest.raises(
        RunError, match=rf"gone\.csv: there is no such file or folder; .*/run was trained on it: .*{advice}"
    ):
        FinishedRun(tmp_path / "run").labels("test")


@pytest.mark.parametrize("change", [other_order, other_labels, other_names, other_split, other_files])
def test_a_dataset_that_has_changed_is_refused(folder, tmp_path, change):
    shutil.copytree(folder / "images", tmp_path / "images")
    shutil.copytree(folder / "run", tmp_path / "run")
    config = (tmp_path / "run" / "config.toml").read_text()
    (tmp_path / "run" / "config.toml").write_text(config.replace(str(folder / "images"), str(tmp_path / "images")))
    before = FinishedRun(tmp_path / "run")
    assert before.labels("test").shape == (TEST, len(CLASSES))  # a copy in another place is the same dataset
    change(tmp_path / "images" / "labels.csv")
    after = FinishedRun(tmp_path / "run")
    for ask in (lambda: after.table, lambda: after.labels("test"), lambda: after.scores("test")):
        with pytest.raises(RunError, match=r"labels.csv has changed since it was trained \(its files, classes, splits"):
            ask()


def test_other_decisions_are_kept(folder, tmp_path):
    shutil.copytree(folder / "run", tmp_path / "run")
    run = FinishedRun(tmp_path / "run")
    chosen = fit_decisions(run.scores("validation"), run.labels("validation"), rule="count")
    run.decide(chosen)
    assert FinishedRun(tmp_path / "run").decisions.to_dict() == chosen.to_dict() == run.decisions.to_dict()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda stored: stored.pop("format"), "was written by another version of onepair, 0."),
        (lambda stored: stored.update(format=1, version="0.0.1"), "was written by another version of onepair, 0.0.1"),
        (lambda stored: stored.pop("decisions"), "is damaged, decisions: field required"),
        (lambda stored: stored["preprocessing"].pop("mean"), "is damaged, preprocessing.mean: field required"),
        (lambda stored: stored["preprocessing"].update(size="big"), "is damaged, preprocessing.size: input should be"),
        (lambda stored: stored["decisions"]["thresholds"].pop(), "is damaged, it has 3 thresholds for 4 classes"),
        (lambda stored: stored["decisions"]["calibration"].update(kind="oracle"), "is damaged, decisions.calibration"),
        (
            lambda stored: stored["decisions"].update(
                calibration={"kind": "platt", "slope": [1.0], "intercept": [0.0]}
            ),
            "calibration is not of 4 classes",
        ),
        (lambda stored: stored.update(classes=7), "is damaged, classes: input should be"),
    ],
)
def test_a_model_json_that_is_not_ours_is_a_sentence(folder, tmp_path, change, sentence):
    shutil.copytree(folder / "run", tmp_path / "run")
    stored = json.loads((tmp_path / "run" / "model.json").read_text())
    change(stored)
    (tmp_path / "run" / "model.json").write_text(json.dumps(stored))
    with pytest.raises(ModelError, match=r"model\.json: ") as caught:
        _ = FinishedRun(tmp_path / "run").decisions
    assert sentence in str(caught.value)


def test_a_folder_without_a_finished_run_is_a_sentence(folder, tmp_path):
    for path in (tmp_path, tmp_path / "nowhere", folder / "images" / "labels.csv"):
        with pytest.raises(RunError, match="holds no finished run"):
            FinishedRun(path)


def test_a_run_of_an_earlier_version_is_a_sentence(folder, tmp_path):
    shutil.copytree(folder / "run", tmp_path / "run")
    (tmp_path / "run" / "environment.json").write_text('{"labels": "0123"}')
    with pytest.raises(RunError, match="was made by another version of onepair"):
        _ = FinishedRun(tmp_path / "run").task


def test_an_oracle_saw_the_negatives_and_can_be_reviewed(folder, tmp_path):
    table = folder / "images" / "labels.csv"
    done = train_tiny(table, "method.name=bce-1p-alln", out=tmp_path / "run", cache=folder / "cache")
    run = open_run(done.folder.path)
    assert (run.task.observed == NEGATIVE).any()
    assert ((run.task.observed == POSITIVE).sum(1) == 1).all()
    (tmp_path / "run" / "finding").mkdir()
    row, column = np.argwhere(run.task.observed == UNKNOWN)[0]
    line = f"{run.table.files[run.task.train[row]]},{CLASSES[column]},0.9,1,missing"
    (tmp_path / "run" / "finding" / "suggestions.csv").write_text(f"file,label,probability,rank,kind\n{line}\n")
    assert len(read_queue(run)) == 1


def test_a_split_without_images_is_a_sentence(folder, tmp_path):
    table = write_table(tmp_path / "labels.csv", ["train"] * TRAIN, labels_of(TRAIN))
    done = train_tiny(table, f"data.images='{folder / 'images'}'", out=tmp_path / "run", cache=folder / "cache")
    with pytest.raises(UserError, match="its dataset has no test images"):
        FinishedRun(done.folder.path).scores("test")
    run = FinishedRun(done.folder.path)
    assert evaluate_run(run).to_dict() == evaluate_run(run, "validation").to_dict()
    with pytest.raises(UserError, match="its dataset has no test images"):
        evaluate_run(run, "test")


@pytest.mark.parametrize(
    ("results", "sentence"),
    [
        ({}, "has no labelled test images; name some in a column split"),
        ({"test_note": "no test image has a positive label"}, "no test image has a positive label"),
        ({"test_estimate": (0.5, 0.1, 0.9), "test_note": "if …"}, "known labels of its test images do not tell it"),
    ],
)
def test_why_there_is_no_test_map_is_told(run, results, sentence):
    nothing = {"test_map": None, "test_estimate": None, "test_note": None}
    run.results = run.results.model_copy(update=nothing | results)
    with pytest.raises(RunError, match=sentence):
        _ = run.test_map
