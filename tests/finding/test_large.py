"""Finding where scores are never held: a tiny dataset, and a limit that it exceeds."""

import json

import numpy as np
import pytest

from onepair import label_matrix
from onepair.cli.finding import print_finding
from onepair.finding import block_find as large
from onepair.finding import folds as folds_module
from onepair.finding.find import find_labels
from onepair.finding.folds import models_of, read_folds, train_folds
from onepair.labels import UNKNOWN
from onepair.review.queue import open_run, read_queue
from onepair.runs.finished import FinishedRun
from onepair.runs.task import prepare_task
from onepair.training.hardware import Hardware
from tests.training.tiny import CLASSES, TRAIN, Listener, labels_of, tiny_config, train_tiny, write_images, write_table

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
    return Hardware(accelerator="cpu", devices=1, workers=0, cache=place / "cache")


def test_images_are_scored_by_the_models_that_they_were_held_out_of(place, monkeypatch):
    hardware, listener = machine_of(place), Listener()
    run = FinishedRun(place / "run")
    configs = train_folds(run, 3, hardware=hardware, callbacks=[listener])
    held = read_folds(run, configs, shared=hardware.shared)
    for fold in (place / "run" / "finding" / "folds").iterdir():
        (fold / "results.json").unlink()  # so that it is trained again, and keeps its model this time
    monkeypatch.setattr(label_matrix, "MOST_CELLS", 10)
    hardware = machine_of(place)
    train_folds(run, 3, hardware=hardware, callbacks=[listener])
    folds, model = models_of(run, configs, shared=hardware.shared)
    models, gone = large._scorers(
        run, [fold.classifier for fold in folds], hardware.fabric("32-true"), hardware, [listener]
    )
    assert len(gone) == 0
    higher = large._higher(models, large._seen_by_all(run, folds, gone), len(run.table.classes))
    scores = large.FoldScores(run.searched, model, models, higher)
    np.testing.assert_allclose(scores(np.arange(len(model))), held.scores, atol=1e-5)
    some = np.array([29, 2, 17, 3])
    np.testing.assert_allclose(scores(some), held.scores[some], atol=1e-5)


@pytest.mark.parametrize("limit", [(label_matrix, "MOST_CELLS"), (folds_module, "MOST_HELD")], ids=["all", "find"])
def test_suggestions_are_found_and_can_be_reviewed(place, monkeypatch, limit):
    monkeypatch.setattr(*limit, 10)
    run, listener = FinishedRun(place / "run"), Listener()
    found = find_labels(run, folds=2, hardware=machine_of(place), callbacks=[listener], maps=False)
    assert f"looking through {TRAIN - 7} images for the likeliest of 4 classes" in listener.said
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
    again = find_labels(run, folds=2, hardware=machine_of(place), callbacks=[second := Listener()], maps=False, top=5)
    assert not second.epochs
    assert again.classes == found.classes
    for part in ("row", "label", "probability"):
        np.testing.assert_array_equal(getattr(again.suggestions, part), getattr(found.suggestions, part)[:5])


def find(folder, listener):
    return find_labels(
        FinishedRun(folder / "run"), folds=2, hardware=machine_of(folder), callbacks=[listener], maps=False
    )


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
    found = find(tmp_path, listener := Listener())
    np.testing.assert_array_equal(found.rows, np.delete(task.train, [3, -1]))
    assert listener.said[-2:] == [
        f"looking through {len(task.train) - 2} images for the likeliest of 4 classes",
        f"1 image left out that can no longer be read: {gone[0].name}",
    ]
    (tmp_path / f"{task.train[8]:02}.png").unlink()  # since the folds
    (tmp_path / f"{task.validation[2]:02}.png").unlink()
    np.testing.assert_array_equal(find(tmp_path, Listener()).rows, np.delete(task.train, [3, 8, -1]))


def test_many_validation_images_are_too_many_as_well(tmp_path, monkeypatch):
    monkeypatch.setattr(label_matrix, "MOST_CELLS", 20 * len(CLASSES))
    write_images(tmp_path)
    source = write_table(tmp_path / "many.csv", ["train"] * 15 + ["validation"] * 31, labels_of(46))
    train_tiny(source, out=tmp_path / "run", cache=tmp_path / "cache")
    assert find(tmp_path, Listener()).rows.tolist() == list(range(15))


def test_it_is_said_that_no_wrong_labels_are_looked_for(tmp_path, monkeypatch, capsys):
    source = write_images(tmp_path)
    train_tiny(source, out=tmp_path / "run", cache=tmp_path / "cache")
    print_finding(find(tmp_path, Listener()))
    assert "of wrong ones" in capsys.readouterr().out
    for results in (tmp_path / "run" / "finding" / "folds").rglob("results.json"):
        results.unlink()
    monkeypatch.setattr(label_matrix, "MOST_CELLS", 10)
    found = find(tmp_path, Listener())
    print_finding(found)
    assert "; of so many labels, wrong ones are not looked for" in capsys.readouterr().out
    assert found.to_dict()["suggestions"]["wrong"] is None
    assert found.basis.startswith("a random sample of 30 of 30 images, if ")


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
