"""Fine-tuning from a stage on: what lies before is frozen, computed once, and no different to what learns."""

import shutil

import numpy as np
import pytest
import safetensors.torch
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from onepair.data.images.batches import image_batches, normalise
from onepair.errors import ConfigError, DataError
from onepair.features import extract_features
from onepair.finding.find import find_labels
from onepair.runs.finished import FinishedRun
from onepair.runs.task import RunCache, prepare_task
from onepair.training import run as running
from onepair.training.hardware import Hardware
from tests.training.test_processes import arguments, assert_same, in_two, run_command
from tests.training.test_run import model_scores
from tests.training.tiny import TEST, TRAIN, tiny_config

SGD = ("model.mode=finetune", "finetune.optimiser.name=sgd", "finetune.optimiser.lr=0.05")
FROM_6 = (*SGD, "model.train_from='6'")


def weights_of(done):
    return safetensors.torch.load(done.weights)


def plain_training(images, epochs):
    """The weights of an obvious loop over images: the frozen part in evaluation mode, its outcome in half precision."""
    config = tiny_config(images, *FROM_6)
    task = prepare_task(config.data)
    classifier = running._create_classifier(config, task, RunCache(), boost=1.0).train()
    network, preprocessing = classifier.backbone.network, classifier.backbone.preprocessing
    frozen = torch.nn.Sequential(*(network[place] for place in range(6))).eval().requires_grad_(False)
    rest = torch.nn.Sequential(*(network[place] for place in range(6, len(network))), classifier.head)
    targets = torch.zeros(len(task.table), len(task.table.classes))
    targets[torch.from_numpy(task.train)] = torch.from_numpy(task.observed.dense()).clamp(min=0).float()
    learning = [weight for weight in classifier.parameters() if weight.requires_grad]
    optimiser = torch.optim.SGD(learning, lr=0.05, momentum=0.9, weight_decay=1e-3)
    for epoch in range(1, epochs + 1):
        for batch in image_batches(
            task.table, task.train, preprocessing, batch_size=8, training=True, seed=3, epoch=epoch, workers=0
        ):
            logits = rest(frozen(normalise(batch.images, preprocessing)).half().float())
            optimiser.zero_grad()
            binary_cross_entropy_with_logits(logits, targets[batch.rows]).backward()
            optimiser.step()
    return classifier.state_dict()


def test_what_is_computed_once_teaches_the_same_as_whole_images(train, images):
    done = train(*FROM_6, "finetune.epochs=1")
    expected, begun = plain_training(images, 1), plain_training(images, 0)
    for name, learned in weights_of(done).items():
        moved = (expected[name] - begun[name]).float().norm()
        assert (learned - expected[name]).float().norm() <= 1e-4 * moved, name
    frozen = [name for name in begun if name.startswith(tuple(f"backbone.network.{place}." for place in range(6)))]
    assert len(frozen) == 12
    assert all(torch.equal(weights_of(done)[name], begun[name]) for name in frozen)


def test_whether_it_is_kept_makes_no_difference(train, monkeypatch):
    kept = train(*FROM_6, out="kept")
    monkeypatch.setattr(
        running,
        "_activation_source",
        lambda run, prefix: running.FrozenSource(running._image_source(run), prefix.backbone),
    )
    anew = train(*FROM_6, out="anew")
    torch.testing.assert_close(weights_of(kept), weights_of(anew), rtol=1e-5, atol=1e-5)


def test_an_epoch_reads_no_image(train, monkeypatch):
    first = train(*FROM_6, out="first")

    def no_reading(*_, **__):
        raise AssertionError("an image was read")

    monkeypatch.setattr("onepair.data.images.blocks.decode", no_reading)
    monkeypatch.setattr("onepair.data.images.batches.decode", no_reading)
    assert train(*FROM_6, out="second").weights == first.weights


def test_the_model_is_the_one_that_was_scored(train, images):
    done = train(*FROM_6, "method.name=opml-sp", "finetune.optimiser.ema=0.5")
    expected = model_scores(done.folder, np.arange(TRAIN, TRAIN + TEST), images)
    np.testing.assert_allclose(done.folder.scores("test"), expected, rtol=5e-3, atol=5e-3)


@pytest.mark.parametrize("augment", ["crop", "strong"])
def test_augmented_images_are_seen_through_the_frozen_part_each_time(train, augment):
    settings = (*FROM_6, f"model.augment={augment}")
    done, again, plain = train(*settings), train(*settings, out="again"), train(*FROM_6, out="plain")
    assert done.weights == again.weights
    weights = weights_of(done)
    assert not torch.equal(weights["head.weight"], weights_of(plain)["head.weight"])
    assert torch.equal(weights["backbone.network.0.weight"], weights_of(plain)["backbone.network.0.weight"])


def test_two_processes_train_from_a_stage_as_one(images, cache, tmp_path, train):
    settings = (*FROM_6, "method.name=opml-sp", "finetune.batch_size=7", "finetune.hold_norms=true")
    codes, logs = in_two(tmp_path, run_command, arguments(images, cache, tmp_path / "two", *settings))
    assert codes == [0, 0], logs
    assert_same(running.RunFolder(tmp_path / "two"), train(*settings, out="one").folder)


def test_folds_find_what_the_run_has_computed(train, cache, monkeypatch):
    done = train(*FROM_6, "data.observe=single-positive")
    extracted = []

    def spy(*given, **options):
        found = extract_features(*given, **options)
        extracted.append(found.new)
        return found

    monkeypatch.setattr("onepair.training.sources.extract_features", spy)
    hardware = Hardware(accelerator="cpu", devices=1, workers=0, cache=cache)
    found = find_labels(FinishedRun(done.folder.path), folds=2, hardware=hardware, callbacks=())
    assert found.folds == 2
    assert extracted == [0, 0]  # plain and mirrored, once for both folds


def test_unreadable_images_are_left_out(train, images, tmp_path):
    own = tmp_path / "own"
    shutil.copytree(images.parent, own)
    row = prepare_task(tiny_config(own / images.name).data).train[4]
    (own / f"{row:02}.png").write_bytes(b"")
    assert train(*FROM_6, source=own / images.name).results.skipped_images == [f"{row:02}.png"]


def test_a_disk_without_room_is_told_before_anything_is_written(train, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**9, 10**9, 1000))
    with pytest.raises(DataError, match=r"take 0\.0 GB there, and 0\.0 GB are free; make room, or name another"):
        train(*FROM_6, "model.weights=none", "seed=77")


def test_how_much_room_it_takes_is_said(train, monkeypatch):
    monkeypatch.setattr("onepair.training.sources.MUCH", 0)
    said = train(*FROM_6, "seed=78").listener.said
    assert any(
        sentence.startswith("keeping small-cnn-before-6 of 46 images (plain) takes 0.0 GB in ") for sentence in said
    )
    assert any("(flipped)" in sentence for sentence in said)


def test_linear_training_has_no_stage_to_begin_at(train, tmp_path):
    with pytest.raises(ConfigError, match="choose mode finetune or linear-init, or leave it out"):
        train("model.train_from='6'")
    with pytest.raises(ConfigError, match=r"cannot be trained from 'blocks\.5'; there are 0, 1, 2"):
        train(*SGD, "model.train_from=blocks.5")
    assert not (tmp_path / "run").exists()
