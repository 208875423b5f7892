"""Suggestions of a run: where labels hardly tell what is missing, and where they are too many to be held."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from onepair import label_matrix
from onepair.finding import search
from onepair.finding.find import find_in, find_labels
from onepair.finding.folds import OutOfSample
from onepair.finding.suggestions import FEWEST
from onepair.label_matrix import LabelMatrix
from onepair.labels import UNKNOWN
from onepair.review.queue import open_run, read_queue
from onepair.runs.finished import FinishedRun
from onepair.runs.task import prepare_task
from onepair.training.hardware import Hardware
from tests.training.tiny import CLASSES, TRAIN, Listener, labels_of, tiny_config, train_tiny, write_images, write_table

ROWS = 60


def scored(labels):
    """Positives score far above all else, so that likelihood takes what is unknown for negative."""
    known = np.full((ROWS, 2), labels, np.int8)
    known[:12, 0] = known[12:24, 1] = 1
    scores = np.random.default_rng(0).normal(np.where(known == 1, 4, -4), 0.3).astype(np.float32)
    table = SimpleNamespace(asked=None, classes=("cat", "dog"), files=[f"{row}.jpg" for row in range(ROWS)])
    config = SimpleNamespace(data=SimpleNamespace(process="auto"))
    run = SimpleNamespace(table=table, config=config, known=LabelMatrix.of(known), audit=None)
    nothing, zeros = np.empty((5, 0, 2), np.float32), np.zeros(ROWS, np.intp)
    bias = np.zeros((1, 2), np.float32)
    return OutOfSample(run, np.arange(ROWS), [scores.__getitem__], zeros, bias, known[:0], nothing, folds=5)


def test_where_labels_do_not_tell_how_many_are_missing_the_surest_are_suggested():
    given = scored(-1)
    found = find_in(given, callbacks=[Listener()])
    assert found.are_right == "how many of the first 50 are right, answers will tell: give 30, or audit 30 images"
    assert (found.suggestions.kind == "missing").sum() == FEWEST
    everything = find_in(given, min_probability=0, callbacks=[Listener()]).suggestions
    missing = everything[everything.kind == "missing"][:FEWEST]
    np.testing.assert_array_equal(found.suggestions.row, missing.row)
    assert len(find_in(given, min_probability=0.05, callbacks=[Listener()]).suggestions) == 0


def test_where_all_is_known_nothing_is_suggested_as_missing():
    found = find_in(scored(0), callbacks=[Listener()])
    assert not (found.suggestions.kind == "missing").any()


@pytest.fixture
def place(tmp_path):
    """A folder with a dataset, and a run on its images' features."""
    train_tiny(write_images(tmp_path), "linear.epochs=3", out=tmp_path / "run", cache=tmp_path / "cache")
    return tmp_path


def machine_of(place):
    return Hardware(accelerator="cpu", devices=1, workers=0, cache=place / "cache")


def test_models_that_are_asked_suggest_what_kept_scores_do(place, monkeypatch):
    kept = find(place, Listener())
    for results in (place / "run" / "finding" / "folds").rglob("results.json"):
        results.unlink()  # so that folds are trained again, and keep their models this time
    monkeypatch.setattr(label_matrix, "MOST_CELLS", 10)
    computed = find(place, Listener())
    assert len(list((place / "run" / "finding").rglob("*.safetensors"))) == 2
    for part in ("row", "label", "kind"):
        np.testing.assert_array_equal(getattr(computed.suggestions, part), getattr(kept.suggestions, part))
    np.testing.assert_allclose(computed.suggestions.probability, kept.suggestions.probability, atol=1e-4)
    assert [each.suggested for each in computed.classes] == [each.suggested for each in kept.classes]
    assert computed.basis == kept.basis


def test_a_sample_of_many_labels_makes_suggestions_that_can_be_reviewed(place, monkeypatch):
    monkeypatch.setattr(search, "FEW_CELLS", 20 * len(CLASSES))
    run, watch = FinishedRun(place / "run"), Listener()
    found = find(place, watch)
    assert f"looking through {TRAIN - 7} images for the likeliest of 4 classes" in watch.said
    assert found.basis.startswith(f"by a random sample of 20 of {TRAIN - 7} images, ")
    known = run.known.take(run.searched)
    queue = read_queue(open_run(place / "run"))
    np.testing.assert_array_equal(queue.rows, run.searched[found.suggestions.row])
    summary = json.loads((place / "run" / "finding" / "summary.json").read_text())
    assert [each["name"] for each in summary["classes"]] == list(CLASSES)
    missing = found.suggestions[found.suggestions.kind == "missing"]
    for column, each in enumerate(found.classes):
        assert each.unknown == int((known.dense()[:, column] == UNKNOWN).sum())
        if each.suggested:
            assert (missing.probability[missing.label == column] >= each.threshold).sum() == each.suggested
    assert found.missing.low <= found.missing.value <= found.missing.high
    assert found.missing.value == pytest.approx(sum(each.missing for each in found.classes), rel=0.01)
    again = find_labels(run, folds=2, hardware=machine_of(place), callbacks=[second := Listener()], maps=False, top=5)
    assert not second.epochs
    assert again.classes == found.classes
    for part in ("row", "label", "probability"):
        np.testing.assert_array_equal(getattr(again.suggestions, part), getattr(found.suggestions, part)[:5])


def find(folder, watch):
    return find_labels(FinishedRun(folder / "run"), folds=2, hardware=machine_of(folder), callbacks=[watch], maps=False)


def test_images_that_have_gone_or_come_back_are_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(label_matrix, "MOST_CELLS", 10)
    source = write_images(tmp_path)
    task = prepare_task(tiny_config(source).data)
    back, *gone = (tmp_path / f"{row:02}.png" for row in (task.train[-1], task.train[3], task.validation[1]))
    image = back.read_bytes()
    back.write_bytes(b"not an image")
    train_tiny(source, out=tmp_path / "run", cache=tmp_path / "cache")
    back.write_bytes(image)
    for each in gone:  # since the run
        each.unlink()
    found = find(tmp_path, watch := Listener())
    np.testing.assert_array_equal(found.rows, np.delete(task.train, [3, -1]))
    assert watch.said[-1] == f"1 image left out that can no longer be read: {gone[0].name}"
    (tmp_path / f"{task.train[8]:02}.png").unlink()  # since the folds
    (tmp_path / f"{task.validation[2]:02}.png").unlink()
    np.testing.assert_array_equal(find(tmp_path, Listener()).rows, np.delete(task.train, [3, 8, -1]))


def test_many_validation_images_are_too_many_as_well(tmp_path, monkeypatch):
    monkeypatch.setattr(label_matrix, "MOST_CELLS", 20 * len(CLASSES))
    write_images(tmp_path)
    source = write_table(tmp_path / "many.csv", ["train"] * 15 + ["validation"] * 31, labels_of(46))
    train_tiny(source, out=tmp_path / "run", cache=tmp_path / "cache")
    assert find(tmp_path, Listener()).rows.tolist() == list(range(15))


def test_texts_are_scored_by_what_each_fold_has_learned_of_words(tmp_path, monkeypatch):
    monkeypatch.setattr(label_matrix, "MOST_CELLS", 10)
    lines = [
        f'{row},{"train" if row < 40 else "validation"},"{" ".join([f"word{row % 7}", *names])}",{";".join(names[:1])}'
        for row in range(50)
        for names in [[name for column, name in enumerate(CLASSES) if (row + 1) >> column & 1 or column == row % 4]]
    ]
    (tmp_path / "texts.csv").write_text("\n".join(["id,split,text,labels", *lines]))
    settings = ("model.backbone=tfidf", "model.image_size=none", "data.observe=given")
    train_tiny(tmp_path / "texts.csv", *settings, out=tmp_path / "run", cache=tmp_path / "cache")
    found = find(tmp_path, Listener())
    assert found.rows.tolist() == list(range(50))  # validation rows have holes
    assert len(found.suggestions)
