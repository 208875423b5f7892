"""Every command is one call of an object: both, on the same run, write the same files and say the same."""

import csv
import json
import re
import shutil
import urllib.request
from dataclasses import replace

import numpy as np
import pytest
import safetensors.torch
import timm
from PIL import Image

import onepair as op
from onepair.cli.main import app
from onepair.data import READERS
from onepair.methods import METHODS
from onepair.runs.config import to_toml

CLASSES = ["cat", "dog", "sofa"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A table of vectors with most labels missing, and the same run twice: by the command's object, and in Python."""
    folder = tmp_path_factory.mktemp("objects")
    random = np.random.default_rng(0)
    vectors = random.normal(size=(240, 6)).astype(np.float32)
    truth = vectors[:, :3] + 0.3 * random.normal(size=(240, 3)) > 0.4
    np.save(folder / "vectors.npy", vectors)
    lines = ["file,split," + ",".join(CLASSES)]
    for row, shown in enumerate(truth):
        test = row >= 200
        cells = ["1" if here and (test or random.random() < 0.5) else "0" if test else "" for here in shown]
        lines.append(f"{row}.jpg,{'test' if test else 'train'},{','.join(cells)}")
    (folder / "labels.csv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def command(place, in_process, monkeypatch):
    monkeypatch.chdir(place)
    monkeypatch.setenv("XDG_CACHE_HOME", str(place / "xdg"))

    def run(*words):
        found = in_process(*words)
        assert found.returncode == 0, found.stderr
        return found.stdout

    return run


@pytest.fixture
def run(place, command):
    """What the command trained; made once."""
    if not (place / "run" / "results.json").exists():
        command("train", "labels.csv", "--features", "vectors.npy", "--out", "run")
    return op.Run("run")


def same_files(one, other, *names):
    for name in names:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


def rows_of(file):
    return list(csv.DictReader(file.read_text().splitlines()))


def test_check_is_dataset_check_and_fix(place, command):
    data = op.Dataset.read("labels.csv", features="vectors.npy")
    shown = json.loads(command("check", "labels.csv", "--features", "vectors.npy", "--json"))
    assert shown["images"] == {"train": 200, "test": 40}
    assert len(shown["problems"]) + len(shown["remarks"]) == len(data.check())
    command("check", "labels.csv", "--features", "vectors.npy", "--fix", "by-command.csv")
    data.fix().write("by-object.csv")
    assert (place / "by-command.csv").read_bytes() == (place / "by-object.csv").read_bytes()


def test_train_is_train(place, run):
    again = op.train(op.Dataset.read("labels.csv", features="vectors.npy"), out="again")
    assert again.results == run.results
    same_files(place / "run", place / "again", "model.safetensors", "model.json", "scores_train.npy")


def test_find_is_run_find(place, run, command):
    command("find", "run", "--no-maps", "--out", "by-command.csv")
    found = run.find()
    found.write("by-object.csv")
    assert rows_of(place / "by-command.csv") == rows_of(place / "by-object.csv")
    assert len(found) == len(rows_of(place / "by-command.csv")) > 0


def test_evaluate_is_run_evaluate(run, command):
    assert json.loads(command("evaluate", "run", "--json")) == json.loads(json.dumps(run.evaluate().to_dict()))


def test_decide_is_run_thresholds(place, run, command):
    command("decide", "run", "--rule", "precision", "--precision", "0.8")
    by_command = (place / "run" / "model.json").read_bytes()
    command("decide", "run")
    assert (place / "run" / "model.json").read_bytes() != by_command
    run.thresholds(precision=0.8)
    assert (place / "run" / "model.json").read_bytes() == by_command


def test_predict_is_model_predict_and_write(place, run, command):
    shown = command("predict", "run", "vectors.npy")
    command("predict", "run", "vectors.npy", "--out", "by-command.csv")
    op.load("run").write("vectors.npy", "by-object.csv")
    assert (place / "by-command.csv").read_bytes() == (place / "by-object.csv").read_bytes()
    assert shown.splitlines() == (place / "by-object.csv").read_text().splitlines()
    predicted = run.model.predict("vectors.npy")
    assert [";".join(each.labels) for each in predicted] == [row["labels"] for row in rows_of(place / "by-command.csv")]


def test_export_is_model_export(place, run, command):
    pytest.importorskip("onnxruntime")
    command("export", "run", "--out", "by-command.onnx")
    run.model.export("by-object.onnx")
    ours, theirs = (op.load(name).predict("vectors.npy") for name in ("by-command.onnx", "by-object.onnx"))
    assert ours == theirs


def test_labels_is_run_write_labels(place, run, command):
    run.find()
    run.answer("0.jpg", "cat", True)
    run.answer("1.jpg", "dog", False)
    shown = command("labels", "run", "--out", "completed.csv")
    found = run.write_labels("other.csv")
    assert f"confirmed: {found.confirmed}, rejected: {found.rejected}" in shown
    assert (place / "completed.csv").read_bytes() == (place / "other.csv").read_bytes()
    command("labels", "run", "--out", "completed.json", "--as", "coco")
    run.write_labels("other.json", form="coco")
    assert (place / "completed.json").read_bytes() == (place / "other.json").read_bytes()
    assert run.labels().labels[0, 0] == 1


def test_report_is_run_report(place, run, command):
    command("report", "run", "--out", "by-command.html")
    run.report("by-object.html")
    assert (place / "by-command.html").read_text() == (place / "by-object.html").read_text()


def test_tune_is_tune(place, command):
    options = ("--method", "focal", "--set", "linear.protocol=epochs", "--set", "linear.epochs=1")
    command("tune", "labels.csv", "--features", "vectors.npy", *options, "--trials", 2, "--out", "by-command")
    data = op.Dataset.read("labels.csv", features="vectors.npy")
    given = {"method": "focal", "linear": {"protocol": "epochs", "epochs": 1}}
    tuned = op.tune(data, out="by-object", trials=2, **given)
    same_files(place / "by-command", place / "by-object", "trials.csv")
    assert tuned.to_frame().validation_map.max() == tuned.best.validation_map
    config = op.train(data, **given, **tuned.settings).config
    assert to_toml(replace(config, data=tuned.config.data)) in (place / "by-object" / "best.toml").read_text()


def test_reproduce_is_reproduce(place, command):
    options = {"mode": "linear", "backbone": "small-cnn", "seeds": 1, "epochs": 1}
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    command("reproduce", "table3", "--data", "digits", *words, "--methods", "bce,opml", "--out", "by-command")
    asked: dict = {**options, "methods": ["bce", "opml"], "out": "by-object"}
    made = op.reproduce("table3", "digits", **asked)
    same_files(place / "by-command", place / "by-object", "table3.csv", "table3.md")
    assert [each.row.method for each in made.tables[0].results] == ["bce", "opml"]
    assert sum(step.left for step in op.reproduce("table3", "digits", **asked, dry_run=True).plan) == 0


def test_features_is_dataset_extract_features(place, command):
    for row in range(3):
        Image.new("RGB", (32, 32), (90 * row, 0, 0)).save(place / f"photo{row}.png")
    (place / "photos.csv").write_text("file,red\n" + "".join(f"photo{row}.png,1\n" for row in range(3)))
    safetensors.torch.save_file(timm.create_model("test_resnet").state_dict(), place / "network.safetensors")
    network = ("--backbone", "test_resnet", "--weights", "network.safetensors")
    shown = command("features", "photos.csv", *network, "--out", "by-command.npy")
    found = op.Dataset.read("photos.csv").extract_features("test_resnet", weights="network.safetensors")
    assert (found.new, found.there) == (0, 3)
    assert str(found.folder) in shown
    found.write("by-object.npy")
    assert (place / "by-command.npy").read_bytes() == (place / "by-object.npy").read_bytes()
    with pytest.raises(op.OnepairError, match="no images to extract"):
        op.Dataset.read("labels.csv", features="vectors.npy").extract_features("test_resnet")


def test_compare_is_compare(place, run, command):
    command("train", "labels.csv", "--features", "vectors.npy", "--method", "bce", "--out", "other")
    shown = command("compare", "run", "other", "--resamples", "200", "--out", "by-command.html")
    compared = op.compare([run, "other"], resamples=200)
    compared.write("by-object.html")
    assert (place / "by-command.html").read_text() == (place / "by-object.html").read_text()
    (row,) = compared.to_frame().itertuples()
    assert (row.run, row.against) == ("other", "run")
    assert f"{100 * row.low:+.2f}".replace("-", "−") in shown
    assert ("real" in shown) == row.real


def test_review_is_run_review(run, command, monkeypatch):
    run.find()
    shown = []

    def read(page):
        with page, urllib.request.urlopen(page.url) as answer:  # noqa: S310 (our own address)
            shown.append(answer.read())

    monkeypatch.setattr("onepair.review.server.Page.wait", read)
    command("review", "run", "--port", 0)
    read(run.review())
    assert shown[0] == shown[1]


def test_audit_is_run_audit(place, run, command):
    for name in ("audited", "as-well"):
        shutil.copytree(place / "run", place / name)
    by_object = op.Run("as-well")
    drawn = by_object.audit(10, split="test")
    command("audit", "audited", "--images", 10, "--split", "test", "--sheet", "by-command.csv")
    drawn.write_sheet("by-object.csv")
    assert (place / "by-command.csv").read_bytes() == (place / "by-object.csv").read_bytes()
    shown = command("audit", "audited", "--images", 10, "--split", "test", "--answers", "by-object.csv")
    assert drawn.take_sheet("by-command.csv") == []
    assert drawn.left == 0
    same_files(place / "audited", place / "as-well", "audit/sample.json", "audit/audited.csv")
    told = by_object.audit_summary()
    assert f"audited: {told.images} of {told.population} test images" in shown
    assert f"{told.found:,} missing labels found, {told.denied:,} denied" in shown


def test_retrain_is_run_retrain(place, run, command):
    shutil.copytree(place / "run", place / "project" / "first")
    first = op.Run(place / "project" / "first")
    with pytest.raises(op.OnepairError, match="nobody has answered"):
        op.Run(shutil.copytree(place / "again", place / "unanswered")).retrain()
    first.find()
    first.answer("2.jpg", "sofa", True)
    command("retrain", "project/first")
    by_command, by_object = op.Run(place / "project" / "first-2"), first.retrain(out=place / "by-object")
    assert (by_command.path / "finding" / "suggestions.csv").exists()
    assert by_object.data.labels[2, 2] == 1
    assert np.array_equal(by_command.data.labels, by_object.data.labels)
    assert by_command.results == by_object.results
    assert np.array_equal(by_command.model.scores("vectors.npy"), by_object.model.scores("vectors.npy"))


@pytest.fixture
def project(place, command):
    """A run of drawn photos, in a project; made once."""
    if (place / "tags.onepair").exists():
        return op.Run("tags.onepair")
    for row in range(12):
        Image.new("RGB", (32, 32), (20 * row, 255 - 20 * row, 0)).save(place / f"shown{row}.png")
    rows = [f"shown{row}.png,{'red' if row > 5 else 'green'}\n" for row in range(12)]
    (place / "tags.csv").write_text("file,labels\n" + "".join(rows))
    command("start", "tags.csv", "--backbone", "small-cnn", "--no-page")
    return op.Run("tags.onepair")


def test_answers_is_run_write_answers_and_take_answers(place, project, command):
    project.answer("shown3.png", "red", False)
    command("answers", "export", "by-command.csv", "--project", "tags.onepair")
    assert project.write_answers("by-object.csv") == 1
    assert (place / "by-command.csv").read_bytes() == (place / "by-object.csv").read_bytes()
    assert "0 answers taken in, 1 known" in command("answers", "import", "by-object.csv", "--project", "tags.onepair")
    merged = project.take_answers("by-command.csv")
    assert (merged.added, merged.known) == (0, 1)
    with pytest.raises(op.OnepairError, match="is in no project"):
        op.Run("run").write_answers("x.csv")


def test_explain_is_run_explain(place, project, command):
    command("explain", project.path, "shown3.png", 4, "--labels", "red", "--out", "by-command.png")
    project.explain(["shown3.png", 4], labels=["red"]).write("by-object.png")
    one, other = (np.asarray(Image.open(place / f"by-{who}.png")) for who in ("command", "object"))
    assert np.array_equal(one, other)


def test_config_is_the_config_of_a_run(place, run, command):
    shown = command("config", "--features", "vectors.npy")
    assert to_toml(replace(run.config, data=replace(run.config.data, source=""))) in shown


def test_methods_and_datasets_are_the_registered_ones(command):
    shown = command("methods")
    assert [name for name in METHODS if name not in shown] == []
    assert op.create_method("opml-sp").__class__.__name__ == "OPMLSP"
    shown = command("datasets")
    assert [name for name in READERS if name not in shown] == []


def test_runs_is_the_results_of_each_run(run, command):
    estimate = 100 * run.results.test_map
    assert f"{estimate:.2f} (test)" in command("runs", "list", "run")


WITHOUT_OBJECT = {
    "start": "check, train, find and review, which it prints",
    "demo": "write_scenes, check, train and find",
    "doctor": "says what is on this machine",
    "cache": "sizes and frees a folder of this machine",
}


def test_every_command_has_its_object_here():
    tests = [name for name in globals() if name.startswith("test_")]
    commands = {each.callback.__name__ for each in app.registered_commands} | {e.name for e in app.registered_groups}
    missing = [name for name in commands - set(WITHOUT_OBJECT) if not any(re.search(f"_{name}(_|$)", t) for t in tests)]
    assert sorted(missing) == []
    assert set(WITHOUT_OBJECT) < commands
