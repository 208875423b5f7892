"""The commands that use a finished run, and those that list what there is."""

import csv
import json
import shutil

import numpy as np
import pytest

from onepair import label_matrix
from onepair.inference.model_files import read_description
from onepair.labels import UNKNOWN
from onepair.runs import task as tasks
from tests.training.tiny import CLASSES, TEST, TRAIN, labels_of, train_tiny, write_images, write_table


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    (folder / "images").mkdir()
    source = write_images(folder / "images")
    train_tiny(source, "linear.epochs=8", "data.observe=given", out=folder / "run", cache=folder / "cache")
    return folder


@pytest.fixture
def onepair(finished, in_process, monkeypatch):
    """The command in the folder of the finished run."""
    monkeypatch.chdir(finished)
    return in_process


def test_evaluate_agrees_with_the_run(finished, onepair):
    results = json.loads((finished / "run" / "results.json").read_text())
    kept = onepair("evaluate", "run", "--json")
    assert kept.returncode == 0, kept.stderr
    found = json.loads(kept.stdout)
    assert found["map"] == pytest.approx(results["test_map"])
    assert found["images"] == TEST
    assert {name: values["ap"] for name, values in found["classes"].items()} == pytest.approx(results["test_class_ap"])

    anew = onepair("evaluate", "run", "--data", "images/labels.csv", "--json")
    assert anew.returncode == 0, anew.stderr
    assert json.loads(anew.stdout)["map"] == pytest.approx(found["map"])  # scored again from the saved model


def test_figures_of_a_sample_are_told_as_such(finished, onepair, monkeypatch):
    monkeypatch.setattr(label_matrix, "MOST_CELLS", 10)
    monkeypatch.setattr(tasks, "MAX_EVAL_CELLS", 20)
    (shutil.copytree(finished / "run", finished / "sampled") / "scores_test.npy").unlink()
    found = json.loads(onepair("evaluate", "sampled", "--json").stdout)
    assert (found["images"], found["sample"]) == (5, f"by a random sample of 5 of {TEST} test images")
    assert f"these figures are {found['sample']}" in onepair("evaluate", "sampled").stdout


def test_evaluate_reads_the_training_split_as_the_run_did(finished, in_process, monkeypatch, tmp_path):
    """From a list of labels in another folder than the images: neither the folder nor what is unlisted is forgotten."""
    labels = labels_of(TRAIN + TEST)
    lines = [
        f"{row:02}.png,{'train' if row < TRAIN else 'test'},"
        + ";".join(name for name, value in zip(CLASSES, values, strict=True) if value)
        for row, values in enumerate(labels)
    ]
    (tmp_path / "lists.csv").write_text("\n".join(["file,split,labels", *lines]))
    settings = (f"data.images='{finished / 'images'}'", "data.unlisted=negative", "data.format=table")
    train_tiny(tmp_path / "lists.csv", *settings, "data.observe=given", out=tmp_path / "run", cache=finished / "cache")
    monkeypatch.chdir(tmp_path)
    for split, images in (("train", 30), ("validation", 7), ("test", TEST)):
        result = in_process("evaluate", "run", "--split", split, "--json")
        assert result.returncode == 0, result.stderr
        assert json.loads(result.stdout)["images"] == images


def test_evaluate_without_labels_to_judge_by_is_a_sentence(finished, in_process, monkeypatch, tmp_path):
    labels = labels_of(TRAIN + TEST)
    labels[TRAIN:] = UNKNOWN
    write_table(tmp_path / "labels.csv", ["train"] * TRAIN + ["test"] * TEST, labels)
    folder = f"data.images='{finished / 'images'}'"
    train_tiny(tmp_path / "labels.csv", folder, "data.observe=given", out=tmp_path / "run", cache=finished / "cache")
    monkeypatch.chdir(tmp_path)
    result = in_process("evaluate", "run")
    assert result.returncode == 2
    assert "none of 9 images has a positive label" in result.stderr


def test_evaluate_prints_json_that_others_can_read(finished, in_process, monkeypatch, tmp_path):
    labels = labels_of(TRAIN + TEST)
    labels[TRAIN:, 1] = 0  # a class without positives among the test images
    write_table(tmp_path / "labels.csv", ["train"] * TRAIN + ["test"] * TEST, labels)
    folder = f"data.images='{finished / 'images'}'"
    train_tiny(tmp_path / "labels.csv", folder, "data.observe=given", out=tmp_path / "run", cache=finished / "cache")
    monkeypatch.chdir(tmp_path)
    result = in_process("evaluate", "run", "--json")

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    found = json.loads(result.stdout, parse_constant=refuse)
    assert found["classes"][CLASSES[1]]["ap"] is None
    assert found["averaged_classes"] == 3


@pytest.mark.parametrize("command", [("evaluate", "run"), ("decide", "run"), ("find", "run"), ("explain", "run", "3")])
def test_a_dataset_that_was_sorted_anew_is_refused(finished, in_process, monkeypatch, tmp_path, command):
    shutil.copytree(finished, tmp_path / "all")
    config = tmp_path / "all" / "run" / "config.toml"
    config.write_text(config.read_text().replace(str(finished), str(tmp_path / "all")))
    table = tmp_path / "all" / "images" / "labels.csv"
    header, *lines = table.read_text().splitlines()
    table.write_text("\n".join([header, *sorted(lines, reverse=True)]))
    before = (tmp_path / "all" / "run" / "model.json").read_bytes()
    monkeypatch.chdir(tmp_path / "all")
    result = in_process(*command)
    assert result.returncode == 2
    assert "labels.csv has changed since it was trained" in result.stderr
    assert (tmp_path / "all" / "run" / "model.json").read_bytes() == before


def test_evaluate_leaves_out_what_cannot_be_read(finished, in_process, monkeypatch, tmp_path):
    shutil.copytree(finished / "images", tmp_path / "images")
    (tmp_path / "images" / f"{TRAIN + 2:02}.png").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    result = in_process("evaluate", finished / "run", "--data", "images/labels.csv", "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["images"] == TEST - 1
    assert f"left out: images/{TRAIN + 2:02}.png: " in result.stderr


def test_evaluate_prints_a_table(onepair):
    result = onepair("evaluate", "run", "--split", "validation")
    assert result.returncode == 0, result.stderr
    for word in (*CLASSES, "mAP", "ranking loss", "coverage"):
        assert word in result.stdout


def test_predict_writes_probabilities_and_labels(finished, onepair):
    scores = np.load(finished / "run" / "scores_test.npy")
    decisions = read_description(finished / "run").decisions
    for suffix in ("csv", "jsonl"):
        result = onepair("predict", "run", "images", "--out", f"out.{suffix}")
        assert result.returncode == 0, result.stderr
    rows = list(csv.DictReader((finished / "out.csv").read_text().splitlines()))
    objects = [json.loads(line) for line in (finished / "out.jsonl").read_text().splitlines()]
    assert len(rows) == len(objects) == 46
    assert [row["file"] for row in rows] == [each["file"] for each in objects]
    for row, each, logits in zip(rows[-TEST:], objects[-TEST:], scores, strict=True):  # test images are the last
        probabilities = [float(row[name]) for name in CLASSES]
        assert probabilities == pytest.approx(
            decisions.probabilities(logits[None])[0], abs=2e-3
        )  # from pixels now, from half floats then
        assert list(each["probabilities"].values()) == probabilities
        chosen = [name for name, yes in zip(CLASSES, decisions.labels(logits), strict=True) if yes]
        assert each["labels"] == chosen
        assert row["labels"] == ";".join(chosen)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("evaluate", "images"), "images: holds no finished run"),
        (("decide", "images"), "images: holds no finished run"),
        (
            ("decide", "run", "--rule", "precision", "--precision", 2),
            "precision is a number from 0 to 1, not 2",
        ),
        (("evaluate", "run", "--data", "digits"), "digits: has none of the run's classes; it has zero, one,"),
        (("predict", "run", "images/gone.png"), "gone.png"),
        (("predict", "run", "run"), "no images to predict"),
        (
            ("predict", "run", "images", "--out", "a.txt"),
            "a.txt: predictions are written as .csv, .jsonl, .parquet",
        ),
        (("methods", "opml-sb"), "did you mean 'opml-sp'?"),
        (("train", "images/labels.csv", "--method", "opm"), "there is no method 'opm'; did you mean 'opml'?"),
    ],
)
def test_mistakes_end_in_a_sentence(onepair, arguments, sentence):
    result = onepair(*arguments)
    assert result.returncode == 2
    assert sentence in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stderr.startswith("onepair: ")


def test_methods_are_listed_and_shown(onepair):
    listed = onepair("methods").stdout
    for name in ("bce", "role", "ll-cp", "entmax-apl", "opml-sp"):
        assert name in listed
    shown = onepair("methods", "opml-sp").stdout
    assert "Li, Wang, Chen 2023" in shown
    assert "method.options.label_num" in shown


def test_decide_changes_what_is_predicted(finished, onepair):
    def evaluated():
        return json.loads(onepair("evaluate", "decided", "--json").stdout)

    shutil.copytree(finished / "run", finished / "decided")
    before = evaluated()
    result = onepair("decide", "decided", "--rule", "precision", "--precision", 1, "--calibration", "isotonic")
    assert result.returncode == 0, result.stderr
    assert all(name in result.stdout for name in CLASSES)
    assert "precision 1" in result.stdout
    stored = json.loads((finished / "decided" / "model.json").read_text())["decisions"]
    assert (stored["rule"], stored["calibration"]["kind"]) == ("precision 1", "isotonic")
    after = evaluated()
    assert after["map"] == before["map"]
    assert after["recall"] < before["recall"]
    onepair("decide", "decided")
    assert evaluated() == before


def other_table(folder, classes, *, lines=()):
    """The test images with some of the run's classes, in an order of their own, and others."""
    labels, rows = labels_of(TRAIN + TEST), range(TRAIN, TRAIN + TEST)
    columns = [CLASSES.index(name) if name in CLASSES else None for name in classes]
    cells = [["" if column is None else str(labels[row, column]) for column in columns] for row in rows]
    text = [f"{row:02}.png,test,{','.join(values)}" for row, values in zip(rows, cells, strict=True)]
    (folder / "other.csv").write_text("\n".join([f"file,split,{','.join(classes)}", *text, *lines]))
    return folder / "other.csv"


def test_evaluate_judges_the_classes_that_both_have(finished, onepair, tmp_path):
    own = json.loads(onepair("evaluate", "run", "--json").stdout)["classes"]
    shared = [CLASSES[2], CLASSES[0]]
    other = other_table(tmp_path, [shared[0], "hat", shared[1]])
    result = onepair("evaluate", "run", "--data", other, "--folder", "images", "--json")
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)["classes"]
    assert sorted(found) == sorted(shared)
    assert found == {name: pytest.approx(own[name]) for name in found}
    (told,) = [line for line in result.stderr.splitlines() if line.startswith("judged by 2 classes that both have, ")]
    assert told.endswith(f"the run alone has {CLASSES[1]}, {CLASSES[3]}, and {other} alone has hat")


def test_evaluate_leaves_out_what_is_wrong_or_stops_at_it(onepair, tmp_path):
    other = other_table(tmp_path, CLASSES, lines=("gone.png,test,1,1,1,1", "30.png,eval,1,1,1,1"))
    given = ("evaluate", "run", "--data", other, "--folder", "images")
    result = onepair(*given, "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["images"] == TEST
    assert "gone.png: cannot be read" in result.stderr
    assert "column split: holds 'eval'" in result.stderr
    strict = onepair(*given, "--strict")
    assert strict.returncode == 2
    assert "column split: holds 'eval'" in strict.stderr


def test_evaluate_completes_lists_where_it_is_told_to(onepair, tmp_path):
    labels = labels_of(TRAIN + TEST)[TRAIN:]
    names = [";".join(name for name, value in zip(CLASSES, row, strict=True) if value) for row in labels]
    rows = [f"{TRAIN + i:02}.png,test,{listed},note" for i, listed in enumerate(names)]
    (tmp_path / "lists.csv").write_text("\n".join(["file,split,what,remark", *rows]))
    reading = ("--data", tmp_path / "lists.csv", "--folder", "images", "--label-columns", "what")
    found = json.loads(onepair("evaluate", "run", *reading, "--complete-split", "test", "--json").stdout)
    assert found["map"] == pytest.approx(json.loads(onepair("evaluate", "run", "--json").stdout)["map"])


@pytest.mark.parametrize("option", [("--unlisted", "negative"), ("--strict",), ("--complete-split", "test")], ids=str)
def test_options_on_another_dataset_need_one(onepair, option):
    result = onepair("evaluate", "run", *option)
    assert result.returncode == 2
    assert f"{option[0]} says how another dataset is read; name it with --data" in result.stderr


def test_predict_stops_at_an_unreadable_image_if_asked_to(onepair, tmp_path):
    (tmp_path / "torn.png").write_bytes(b"torn")
    for out in ((), ("--out", tmp_path / "out.csv")):
        result = onepair("predict", "run", tmp_path, "--strict", *out)
        assert result.returncode == 2
        assert "torn.png: is not an image" in result.stderr
        assert onepair("predict", "run", tmp_path, *out).returncode == 0
