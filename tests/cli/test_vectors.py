"""The whole way on vectors from elsewhere, and on texts: from a table to predictions and completed labels."""

import csv
import html
import json
import shutil

import numpy as np
import pytest
from starlette.testclient import TestClient

import onepair
from onepair.data import read_dataset
from onepair.review.answers import Answer
from onepair.review.queue import open_run, read_queue
from onepair.runs.finished import FinishedRun
from tests.review.audits import open_audit_app
from tests.review.runs import open_app

CLASSES = ("cat", "dog", "sofa")
TRAIN, ROWS, WIDTH = 90, 120, 8


def vectors_and_labels():
    random = np.random.default_rng(3)
    labels = random.random((ROWS, len(CLASSES))) < 0.4
    labels[np.arange(ROWS), np.arange(ROWS) % 3] = True
    directions = random.normal(size=(len(CLASSES), WIDTH))
    noise = 0.3 * random.normal(size=(ROWS, WIDTH))
    return (labels @ directions + noise).astype(np.float32), labels


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Ids, single positives to train on and full labels to test on; one row is no good."""
    vectors, labels = vectors_and_labels()
    lines = ["file,split,labels"]
    for row, positives in enumerate(labels):
        names = [CLASSES[i] for i in np.flatnonzero(positives)]
        train = row < TRAIN
        lines.append(f"id {row},{'train' if train else 'test'},{names[row % len(names)] if train else ';'.join(names)}")
    lines[8] = ",train,cat"
    (tmp_path / "labels.csv").write_text("\n".join(lines))
    np.save(tmp_path / "v.npy", vectors)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


GIVEN = ("--features", "v.npy", "--complete-split", "test")


def read_csv(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_whole_way_on_vectors(folder, in_process):
    def run(*words):
        code, output, errors = in_process(*words)
        assert code == 0, errors
        return output, errors

    output, errors = run("train", "labels.csv", *GIVEN, "--out", "run")
    assert "test: mAP" in output
    finished = FinishedRun(folder / "run")
    assert finished.results.test_map > 0.8
    assert (finished.config.model.backbone, finished.config.model.mode) == ("vectors", "linear")
    vectors, _ = vectors_and_labels()
    kept = np.delete(np.arange(ROWS), 7)
    np.testing.assert_array_equal(finished.table.vectors.take(np.arange(ROWS - 1)), vectors[kept])

    # Scores that are computed now are those of the training, and those of each row's own vector.
    (folder / "run" / "scores_test.npy").rename(folder / "test.npy")
    np.testing.assert_allclose(finished.scores("test"), np.load(folder / "test.npy"), atol=1e-5)
    head = finished.classifier.head
    expected = vectors[TRAIN:] @ head.weight.detach().numpy().T + head.bias.detach().numpy()
    np.testing.assert_allclose(finished.scores("test"), expected, atol=1e-4)

    run("evaluate", "run")
    run("evaluate", "run", "--data", "labels.csv", *GIVEN)
    run("decide", "run", "--rule", "count")
    _, errors = run("find", "run", "--folds", "2")
    assert "there are no heat maps" in errors
    assert not (folder / "run" / "finding" / "maps.npy").exists()
    assert len(read_queue(open_run(folder / "run"))) > 0

    app, session = open_app(folder / "run")
    client = TestClient(app)
    assert "has neither a text nor an image to show" in client.get("/suggestion/1").text
    session.record([Answer(session.suggestion(1).file, session.suggestion(1).label, "yes", 0)], who="Ann")
    run("labels", "run", "--out", "completed.csv", "--as", "csv")
    completed = read_dataset("completed.csv", features="v.npy")
    np.testing.assert_array_equal(completed.vectors.take(np.arange(ROWS - 1)), vectors[kept])

    # Of a file of vectors, of names that it has, and of an array, by torch and by ONNX Runtime.
    run("predict", "run", "v.npy", "--out", "predictions.csv")
    found = read_csv(folder / "predictions.csv")
    assert [row["file"] for row in found] == [str(row) for row in range(ROWS)]
    np.savez(folder / "some.npz", X=vectors[5:8].astype(np.float64), ids=np.array(["x", "y", "z"]))
    run("export", "run")
    output, _ = run("predict", "run/model.onnx", "some.npz")
    named = list(csv.DictReader(output.splitlines()))
    assert [row["file"] for row in named] == ["x", "y", "z"]
    for one, other in zip(named, found[5:8], strict=True):
        assert [float(one[name]) for name in CLASSES] == pytest.approx(
            [float(other[name]) for name in CLASSES], abs=1e-4
        )
    model = onepair.load("run")
    by_array = model.predict(vectors[:4])
    assert [each.file for each in by_array] == [None] * 4
    assert by_array[2].probabilities["cat"] == pytest.approx(float(found[2]["cat"]), abs=1e-5)
    assert model.predict(vectors[2])[0].labels == by_array[2].labels

    # Vectors that are no good for a prediction, and those of another width.
    spoiled = vectors[:3].copy()
    spoiled[1, 0] = np.nan
    np.save(folder / "spoiled.npy", spoiled)
    _, errors = run("predict", "run", "spoiled.npy", "--out", "rest.jsonl")
    assert [json.loads(line)["file"] for line in (folder / "rest.jsonl").read_text().splitlines()] == ["0", "2"]
    assert "1 vector could not be read" in errors
    (folder / "given.csv").write_text("kept")
    code, _, errors = in_process("predict", "run", "given.csv", "--out", "./given.csv")
    assert (code, (folder / "given.csv").read_text()) == (2, "kept"), errors
    np.save(folder / "wide.npy", np.zeros((2, WIDTH + 1)))
    code, _, errors = in_process("predict", "run", "wide.npy")
    assert (code, "has vectors of 9 values, and the model was trained on 8" in errors) == (2, True)

    # Changed vectors are refused.
    np.save(folder / "v.npy", vectors[::-1])
    code, _, errors = in_process("find", "run")
    assert (code, "v.npy have changed since it was trained" in errors) == (2, True)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--mode", "finetune"), "there is no network to fine-tune; choose --mode linear instead of finetune"),
        (("--backbone", "small-cnn"), "data.features are vectors, and model.backbone small-cnn would make others"),
        (("--set", "model.image_size=64"), "model.image_size is about images; leave it out"),
        (("--set", "model.augment=crop"), "model.augment is about images"),
        (("--method", "opml-boostlu"), "method"),
    ],
)
def test_what_is_about_images_is_refused(folder, in_process, words, sentence):
    code, _, errors = in_process("train", "labels.csv", *GIVEN, *words)
    assert (code, sentence in errors) == (2, True), errors
    assert not (folder / "runs").exists()


def test_a_preset_brings_no_images(folder, in_process):
    code, _, errors = in_process(
        *("train", "labels.csv", *GIVEN, "--preset", "voc2012", "--set", "data.observe=given"),
        *("--set", "linear.epochs=1", "--out", "run"),
    )
    assert code == 0, errors
    assert FinishedRun(folder / "run").config.model.image_size is None


def test_bad_vectors_fail_before_anything_is_written(folder, in_process):
    vectors, _ = vectors_and_labels()
    vectors[20, 3] = np.inf
    np.save(folder / "v.npy", vectors)
    code, _, errors = in_process("train", "labels.csv", *GIVEN)
    assert (code, "v.npy: row 20 (id 20) holds NaN or an infinite value" in errors) == (2, True), errors
    np.save(folder / "v.npy", vectors[:-1])
    code, _, errors = in_process("train", "labels.csv", *GIVEN)
    assert (code, "holds 119 vectors, and labels.csv has 120 rows" in errors) == (2, True), errors
    np.save(folder / "v.npy", vectors)
    code, output, _ = in_process("check", "labels.csv", "--features", "v.npy")
    assert (code, "v.npy, row 20: of id 20 holds NaN" in output) == (1, True)
    assert not (folder / "runs").exists()


# Texts

WORDS = {
    "cat": ("purring", "whiskers", "meow"),
    "dog": ("barking", "leash", "fetch"),
    "sofa": ("cushion", "lounge", "seat"),
}
HOSTILE = "<script>alert('x')</script> & \"quotes\"\nsecond line"


def unquoted(page):
    """Jinja writes quotes by their numbers, Python's html by a name and a number."""
    return page.replace("&#34;", "&quot;").replace("&#39;", "&#x27;")


@pytest.fixture
def texts(folder):
    _, labels = vectors_and_labels()
    random = np.random.default_rng(7)
    with (folder / "texts.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["text", "split", "labels"])
        for row, positives in enumerate(labels):
            names = [CLASSES[i] for i in np.flatnonzero(positives)]
            words = [random.choice(WORDS[name]) for name in names for _ in range(3)]
            text = " ".join([*words, *random.choice(["the", "a", "this", "one"], 4)]) + HOSTILE
            train = row < TRAIN
            table.writerow([text, "train" if train else "test", names[row % len(names)] if train else ";".join(names)])
    return folder


def test_the_whole_way_on_texts(texts, in_process):
    folder = texts / "runs" / "texts-opml-plus-linear-tfidf"
    for words in (("train", "texts.csv", "--complete-split", "test"), ("find", folder)):
        code, output, errors = in_process(*words)
        assert code == 0, errors
    run = FinishedRun(folder)
    assert run.results.test_map > 0.7
    assert not list(folder.rglob("*.pkl"))
    scores = run.scores("test")
    (folder / "scores_test.npy").unlink()
    np.testing.assert_allclose(FinishedRun(folder).scores("test"), scores, atol=1e-5)

    # Pages show the text, as text.
    app, session = open_app(folder)
    audit, _ = open_audit_app(folder)
    cell = session.suggestion(1)
    escaped = html.escape(run.table.texts[cell.row])
    pages = {
        "review": TestClient(app).get("/suggestion/1").text,
        "grid": TestClient(app).get(f"/grid?label={cell.label}&suggested=1&likely={int(cell.likely)}").text,
        "audit": TestClient(audit).get("/image-1").text,
    }
    assert "alert(" in escaped
    assert escaped in unquoted(pages["review"])
    for name, page in pages.items():
        assert "&lt;script&gt;alert(" in page, name
        assert "<script>alert(" not in page, name
        assert "<img" not in page, name
    assert "Does this text belong to" in pages["review"]
    other = shutil.copytree(folder, texts / "other")
    code, _, errors = in_process("compare", folder, other, "--out", "report.html")
    assert code == 0, errors
    report = (texts / "report.html").read_text()
    assert html.escape(run.table.texts[TRAIN]) in unquoted(report)
    assert "<script>alert(" not in report
    session.record([Answer(cell.file, cell.label, "yes", 0)], who="Ann")

    (texts / "more.txt").write_text("purring meow whiskers\nthe leash, barking\n\n")
    code, output, errors = in_process("predict", folder, "more.txt")
    assert code == 0, errors
    by_file = list(csv.DictReader(output.splitlines()))
    assert [row["file"] for row in by_file] == ["0", "1"]
    model = onepair.load(folder)
    by_text = model.predict(["purring meow whiskers", "the leash, barking"])
    of_cat, of_dog = ([each.probabilities[name] for each in by_text] for name in ("cat", "dog"))
    assert of_cat[0] > of_cat[1]
    assert of_dog[0] < of_dog[1]
    assert by_text[0].probabilities["cat"] == pytest.approx(float(by_file[0]["cat"]), abs=1e-5)
    code, output, errors = in_process("predict", folder, "texts.csv")
    assert (code, output.count("\n")) == (0, ROWS + 1), errors

    code, _, errors = in_process("export", folder)
    assert (code, "reads texts, whose words an ONNX file cannot tell" in errors) == (2, True)
    code, _, errors = in_process("explain", folder, "0")
    assert (code, "in which no label has a place" in errors) == (2, True)

    code, _, errors = in_process("labels", folder, "--out", "completed.csv", "--as", "csv")
    assert code == 0, errors
    assert read_dataset("completed.csv").texts == run.table.texts
    changed = (texts / "texts.csv").read_text().replace("the", "thee", 1)
    (texts / "texts.csv").write_text(changed)
    code, _, errors = in_process("evaluate", folder)
    assert (code, "the texts of texts.csv have changed" in errors) == (2, True)


def test_texts_without_a_way_to_read_them_say_which(texts, in_process):
    code, _, errors = in_process("train", "texts.csv", "--backbone", "small-cnn", "--mode", "linear")
    assert (code, "holds texts, and none of its files is there" in errors) == (2, True), errors
    code, _, errors = in_process("train", "digits", "--backbone", "tfidf")
    assert (code, "tfidf reads texts, and digits has no column text" in errors) == (2, True), errors


def test_vectors_of_several_files_are_told_apart(folder, in_process):
    vectors, _ = vectors_and_labels()
    for name in ("one", "other"):
        (folder / name).mkdir()
        np.save(folder / name / "x.npy", vectors[:2])
    assert in_process("train", "labels.csv", *GIVEN, "--out", "run")[0] == 0
    assert in_process("predict", "run", "one/x.npy", "other/x.npy", "--out", "found.csv")[0] == 0
    assert [row["file"] for row in read_csv(folder / "found.csv")] == [
        *("one/x.npy:0", "one/x.npy:1", "other/x.npy:0", "other/x.npy:1"),
    ]


def test_names_with_a_semicolon_are_told_apart_in_predictions(folder, in_process):
    table = (folder / "labels.csv").read_text().replace("file,split,labels", "file,split,cat;black,dog")
    rows = [line.split(",") for line in table.splitlines()[1:] if line[0] != ","]
    lines = [f"{file},{split},{int('cat' in names)},{int('dog' in names)}" for file, split, names in rows]
    (folder / "wide.csv").write_text("\n".join(["file,split,cat;black,dog", *lines]))
    np.save(folder / "fewer.npy", np.delete(vectors_and_labels()[0], 7, axis=0))
    assert in_process("train", "wide.csv", "--features", "fewer.npy", "--out", "run")[0] == 0
    assert in_process("predict", "run", "fewer.npy", "--out", "found.csv")[0] == 0
    both = [
        row["labels"] for row in read_csv(folder / "found.csv") if "cat" in row["labels"] and "dog" in row["labels"]
    ]
    assert both
    assert set(both) == {'["cat;black", "dog"]'}


def test_an_image_in_two_splits_is_asked_about_once_and_answered_for_both(folder, in_process):
    lines = (folder / "labels.csv").read_text().splitlines()
    lines[1:4] = [f"id {row},validation,{name}" for row, name in enumerate(CLASSES)]
    for place, row in ((41, 0), (42, 1), (43, 2)):  # of training rows
        lines[place] = f"id {row},train,{CLASSES[row]}"
    (folder / "labels.csv").write_text("\n".join(lines))
    assert in_process("train", "labels.csv", *GIVEN, "--out", "run")[0] == 0
    code, output, errors = in_process("find", "run", "--folds", "2", "--min-probability", "0")
    assert code == 0, errors
    found = read_csv(folder / "run" / "finding" / "suggestions.csv")
    cells = [(row["file"], row["label"]) for row in found]
    assert len(set(cells)) == len(cells)
    _, session = open_app(folder / "run")
    session.record([Answer("id 0", "dog", "yes", 0), Answer("id 1", "sofa", "no", 0)], who="Ann")
    code, output, errors = in_process("labels", "run", "--out", "completed.csv", "--as", "csv")
    assert "confirmed: 2, rejected: 2" in output
    completed = [row for row in read_csv(folder / "completed.csv") if row["file"] in ("id 0", "id 1")]
    assert [(row["file"], row["split"], row["dog"], row["sofa"]) for row in completed] == [
        ("id 0", "validation", "1", ""),
        ("id 1", "validation", "1", "0"),
        ("id 0", "train", "1", ""),
        ("id 1", "train", "1", "0"),
    ]
