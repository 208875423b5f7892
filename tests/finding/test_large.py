"""Finding where scores are never held: a tiny dataset, and a limit that it exceeds."""

import json

import numpy as np
import pytest

from onepair import label_matrix
from onepair.finding import large
from onepair.finding.finding import find_labels
from onepair.finding.folds import models_of, read_folds, train_folds
from onepair.labels import UNKNOWN
from onepair.review.queue import open_run, read_queue
from onepair.runs.finished import FinishedRun
from onepair.training.machine import Machine
from tests.training.tiny import CLASSES, TRAIN, Listener, train_tiny, write_images

KINDS = {
    "features": ("linear.epochs=3",),
    "network": ("model.mode=finetune",),
    "vectors": ("data.features='{folder}/vectors.npy'", "model.backbone=vectors", "model.image_size=none"),
}


@pytest.fixture(params=KINDS)
def place(request, tmp_path):
    """A folder with a dataset, and a run on its images' features, on the images, or on vectors."""
    source = write_images(tmp_path)
    labels = np.loadtxt(source, delimiter=",", skiprows=1, usecols=range(2, 6))
    np.save(tmp_path / "vectors.npy", labels + np.random.default_rng(0).normal(size=labels.shape))
    settings = [each.format(folder=tmp_path) for each in KINDS[request.param]]
    train_tiny(source, *settings, out=tmp_path / "run", cache=tmp_path / "cache")
    return tmp_path


def machine_of(place):
    return Machine(accelerator="cpu", devices=1, workers=0, cache=place / "cache")


def test_images_are_scored_by_the_models_that_they_were_held_out_of(place, monkeypatch):
    machine, watch = machine_of(place), Listener()
    run = FinishedRun(place / "run")
    configs = train_folds(run, 3, machine=machine, watch=watch)
    held = read_folds(run, configs, shared=machine.shared)
    for fold in (place / "run" / "finding" / "folds").iterdir():
        (fold / "results.json").unlink()  # so that it is trained again, and keeps its model this time
    monkeypatch.setattr(label_matrix, "MOST_CELLS", 10)
    machine = machine_of(place)
    train_folds(run, 3, machine=machine, watch=watch)
    folds, model = models_of(run, configs, shared=machine.shared)
    models = large._scorers(run, folds, machine.fabric("32-true"), machine, watch)
    scores = large.FoldScores(run.searched, model, models)
    np.testing.assert_allclose(scores(np.arange(len(model))), held.scores, atol=1e-5)
    some = np.array([29, 2, 17, 3])
    np.testing.assert_allclose(scores(some), held.scores[some], atol=1e-5)


def test_suggestions_are_found_and_can_be_reviewed(place, monkeypatch):
    monkeypatch.setattr(label_matrix, "MOST_CELLS", 10)
    run, watch = FinishedRun(place / "run"), Listener()
    found = find_labels(run, folds=2, machine=machine_of(place), watch=watch, maps=False)
    assert f"looking through {TRAIN - 7} images for the likeliest of 4 classes" in watch.said
    assert len(list((place / "run" / "finding").rglob("*.safetensors"))) == 2
    known = run.known.take(run.searched)
    assert (known[found.suggestions.row, found.suggestions.label] == UNKNOWN).all()
    queue = read_queue(open_run(place / "run"))
    np.testing.assert_array_equal(queue.rows, run.searched[found.suggestions.row])
    summary = json.loads((place / "run" / "finding" / "summary.json").read_text())
    assert [each["name"] for each in summary["classes"]] == list(CLASSES)
    for column, each in enumerate(found.classes):
        own = found.suggestions.probability[found.suggestions.label == column]
        assert each.unknown == int((known.dense()[:, column] == UNKNOWN).sum())
        assert 0 < each.prior <= 1
        if each.suggested:
            assert (own >= each.threshold).sum() == each.suggested
    assert found.missing.low <= found.missing.value <= found.missing.high
    assert found.missing.value == pytest.approx(sum(each.missing for each in found.classes), rel=0.01)
    again = find_labels(run, folds=2, machine=machine_of(place), watch=(second := Listener()), maps=False)
    assert not second.epochs
    np.testing.assert_array_equal(again.suggestions.probability, found.suggestions.probability)
