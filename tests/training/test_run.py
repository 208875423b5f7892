"""Whole runs on a tiny dataset: what they leave behind, what they depend on, and how they stop."""

import csv
import json
import math
import os
import shutil

import numpy as np
import pytest
import torch

from onepair.data.formats.read import read_dataset
from onepair.data.images.batches import image_batches, normalise
from onepair.errors import ConfigError, DataError, RunError, TrainingError, WriteError
from onepair.features import extract_features
from onepair.inference.engine_selector import EngineSelector
from onepair.inference.model_files import load_model
from onepair.labels import UNKNOWN, observe_positives
from onepair.methods import METHODS
from onepair.methods.large_loss import LargeLoss
from onepair.methods.opml_sp import OPMLPlus
from onepair.metrics import average_precision, mean_average_precision
from onepair.probability.evaluation import estimated_map
from onepair.probability.thresholds import fit_decisions
from onepair.runs.config import build_config
from onepair.runs.finished import FinishedRun
from onepair.runs.folder import RunFolder
from onepair.runs.task import RunCache, make_method, prepare_task
from onepair.training import checkpoint as stopping
from onepair.training import context, loop
from onepair.training import run as running
from onepair.training.checkpoint import load_state
from onepair.training.hardware import Hardware
from onepair.training.loop import Trainer
from tests.training.tiny import CLASSES, TEST, TRAIN, labels_of, tiny_config, write_images, write_table

# Options without which two epochs are too few, and a mode that there is.
SHORT = {"entmax-apl": ("method.options.warmup=1",), "ll-r-boostlu": ("model.mode=finetune",)}


@pytest.fixture
def own_images(tmp_path):
    """A copy of the dataset that a test may damage."""
    (tmp_path / "own").mkdir()
    return write_images(tmp_path / "own")


@pytest.fixture
def checkpoint_every_batch(monkeypatch):
    monkeypatch.setattr(stopping, "SECONDS_BETWEEN_CHECKPOINTS", -1)


def model_scores(folder, rows, source):
    """The logits of the model in a run's folder, computed without the training code."""
    classifier, _ = load_model(folder.path)
    preprocessing = classifier.backbone.preprocessing
    batches = image_batches(read_dataset(source), rows, preprocessing, batch_size=64, training=False, workers=0)
    with torch.inference_mode():
        return torch.cat([classifier(normalise(batch.images, preprocessing)) for batch in batches]).numpy()


@pytest.mark.parametrize("name", METHODS)
def test_every_method_trains(train, name):
    done = train(f"method.name={name}", "linear.epochs=2", *SHORT.get(name, ()))
    assert done.results.method == name
    assert 0 < done.results.test_map <= 1
    assert all(math.isfinite(record["loss"]) for record in done.folder.metrics())


def test_a_boosted_classifier_needs_places(train):
    with pytest.raises(ConfigError, match="fixed features do not have; choose --mode finetune"):
        train("method.name=ll-r-boostlu", "model.mode=linear")
    with pytest.raises(
        ConfigError, match="features of test_convnext are more than their mean; choose another --backbone"
    ):
        train(
            "method.name=ll-r-boostlu",
            "model.mode=finetune",
            "model.backbone=test_convnext",
            "model.weights=none",
            "model.image_size=64",
        )
    done = train("method.name=ll-r-boostlu", "model.mode=linear-init")
    assert load_model(done.folder.path)[0].boost == 5


def test_a_batch_of_one_image_takes_the_norms_as_they_are(train):
    """Where a map is of one place, a batch norm knows no variance of one image."""
    small = ("model.backbone=test_resnet", "model.weights=none", "model.image_size=32")
    done = train("model.mode=finetune", "finetune.batch_size=29", "finetune.epochs=1", *small)  # of 30 images
    assert 0 < done.results.validation_map <= 1


@pytest.mark.parametrize("held", [True, False])
def test_held_norms_keep_their_statistics(train, held):
    done = train("model.mode=finetune", f"finetune.hold_norms={str(held).lower()}")
    weights = load_model(done.folder.path)[0].state_dict()
    seen = [int(value) for name, value in weights.items() if name.endswith("num_batches_tracked")]
    assert seen == [0] * 4 if held else all(seen)


def test_what_mode_linear_does_not_do_is_refused(train):
    with pytest.raises(ConfigError, match=r"model.augment=strong changes images each time they are seen"):
        train("model.augment=strong")


@pytest.mark.parametrize(
    ("mode", "name"),
    [
        ("linear", "role"),
        ("linear", "entmax-apl"),
        ("finetune", "bce"),
        ("finetune", "ll-cp"),
        ("linear-init", "opml-sp"),
    ],
)
def test_a_run_leaves_everything_behind(train, images, mode, name):
    done = train(f"model.mode={mode}", f"method.name={name}", *SHORT.get(name, ()))
    folder, results = done.folder, done.results
    stages = {"linear": [("linear", 3)], "finetune": [("finetune", 2)], "linear-init": [("linear", 3), ("finetune", 2)]}
    expected = [(stage, epoch) for stage, epochs in stages[mode] for epoch in range(1, epochs + 1)]
    records = folder.metrics()
    assert [(record["stage"], record["epoch"]) for record in records] == expected
    assert done.listener.epochs == records
    last_stage = [record for record in records if record["stage"] == expected[-1][0]]
    assert results.validation_map == max(record["validation_map"] for record in last_stage)
    assert last_stage[results.best_epoch - 1]["validation_map"] == results.validation_map

    task = prepare_task(tiny_config(images).data)
    validation, test = folder.scores("validation"), folder.scores("test")
    labels = labels_of(TRAIN + TEST)
    assert mean_average_precision(validation, task.validation_labels).value == results.validation_map
    assert tuple(mean_average_precision(test, labels[TRAIN:])) == (results.test_map, results.test_classes)
    assert results.test_class_ap == dict(zip(CLASSES, average_precision(test, labels[TRAIN:]), strict=True))
    assert folder.results() == results

    classifier, decisions = load_model(folder.path)
    assert classifier.classes == CLASSES
    assert decisions.to_dict() == fit_decisions(validation, task.validation_labels, rule="likely").to_dict()
    precise = {"rtol": 1e-5, "atol": 1e-5} if mode != "linear" else {"rtol": 1e-2, "atol": 1e-2}  # features are halves
    np.testing.assert_allclose(model_scores(folder, task.test, images), test, **precise)
    np.testing.assert_allclose(model_scores(folder, task.validation, images), validation, **precise)


def test_training_teaches(train):
    done = train("model.mode=finetune", "data.observe=given", "finetune.epochs=8")
    first, *_, last = done.folder.metrics()
    assert last["loss"] < 0.7 * first["loss"]
    assert done.results.test_map > 0.9


def test_where_validation_labels_have_holes_epochs_are_compared_by_an_estimate(train, own_images):
    labels = labels_of(TRAIN + TEST)
    splits = ["validation" if row % 3 == 0 else "train" for row in range(TRAIN)] + ["test"] * TEST
    labels[::3] = observe_positives(labels[::3])
    write_table(own_images, splits, labels)
    done = train("data.observe=given", source=own_images)
    validation = prepare_task(tiny_config(own_images, "data.observe=given").data).validation_labels
    assert (validation == UNKNOWN).any()
    assert done.results.validation_map == estimated_map(done.folder.scores("validation"), validation)


def test_linear_training_is_that_of_a_plain_loop(train, images, cache, tmp_path):
    settings = ("linear.optimiser.name=sgd", "linear.optimiser.lr=0.5")
    done = train(*settings)
    config = tiny_config(images, *settings)
    task = prepare_task(config.data)
    classifier = running._create_classifier(config, task, RunCache(), boost=1.0)
    rows = np.arange(len(task.table))
    backbone = classifier.backbone
    features = extract_features(
        task.table, backbone, backbone.preprocessing, EngineSelector(backbone), folder=cache / "features", rows=rows
    ).features
    inputs, head = torch.from_numpy(np.array(features)).float(), classifier.head
    targets = torch.zeros(len(rows), len(CLASSES))
    targets[torch.from_numpy(task.train)] = torch.from_numpy(task.observed.dense()).clamp(min=0).float()
    optimiser = torch.optim.SGD(head.parameters(), lr=0.5, momentum=0.9, weight_decay=1e-3)
    for record in done.folder.metrics():
        order = torch.from_numpy(np.random.default_rng((3, record["epoch"])).permutation(task.train))
        losses = []
        for batch in order.split(8):
            loss = torch.nn.functional.binary_cross_entropy_with_logits(head(inputs[batch]), targets[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
        assert record["loss"] == pytest.approx(np.mean(losses), rel=1e-5)
    scores = head(inputs[torch.from_numpy(task.validation)]).detach()
    last = mean_average_precision(scores, task.validation_labels).value
    assert done.folder.metrics()[-1]["validation_map"] == pytest.approx(last)


@pytest.mark.parametrize("mode", ["linear", "finetune"])
def test_the_seed_decides_the_weights(train, mode):
    weights = [
        train(f"model.mode={mode}", "method.name=opml-sp", f"seed={seed}", out=str(out)).weights
        for out, seed in enumerate((1, 1, 2))
    ]
    assert weights[0] == weights[1]
    assert weights[0] != weights[2]


@pytest.mark.parametrize("mode", ["linear", "finetune"])
def test_the_random_state_of_the_program_is_left_alone(train, mode):
    before = torch.get_rng_state()
    train(f"model.mode={mode}")
    assert torch.equal(torch.get_rng_state(), before)


def test_test_images_are_scored_once_and_at_the_end(train, monkeypatch):
    scored, score = [], running.score

    def spy(fabric, model, source, rows, **options):
        scored.append(rows.tolist())
        return score(fabric, model, source, rows, **options)

    monkeypatch.setattr(running, "score", spy)
    monkeypatch.setattr(loop, "score", spy)
    train("method.name=opml-sp", "model.mode=linear-init")
    test = set(range(TRAIN, TRAIN + TEST))
    assert len(scored) == 5 * 2 + 2
    assert [bool(test & set(rows)) for rows in scored] == [False] * (len(scored) - 1) + [True]


def test_a_finished_run_is_returned_as_it_is(train, monkeypatch):
    first = train()
    before = {file: file.stat().st_mtime_ns for file in first.folder.path.iterdir()}
    monkeypatch.setattr(running, "task_of", lambda *_, **__: pytest.fail("began again"))
    again = train()
    assert again.results == first.results
    assert "holds this run already" in again.listener.said[0]
    assert {file: file.stat().st_mtime_ns for file in first.folder.path.iterdir()} == before
    with pytest.raises(RunError, match=r"linear\.epochs is 4, was 3"):
        train("linear.epochs=4")


# Learning rates and averaged weights


def test_every_step_has_its_learning_rate(train, monkeypatch):
    rates, set_lr = [], loop.set_lr

    def spy(optimiser, factor):
        set_lr(optimiser, factor)
        rates.append([group["lr"] for group in optimiser.param_groups])

    monkeypatch.setattr(loop, "set_lr", spy)
    settings = ("model.mode=finetune", "finetune.optimiser.head_lr_multiplier=10", "finetune.batch_size=16")
    train(*settings, "finetune.optimiser.schedule=cosine", "finetune.optimiser.warmup_epochs=1")
    progress = [0, 16 / 30, 1, 1 + 16 / 30]  # in epochs, of the 30 rows
    factors = [min(1, done) * (1 + math.cos(math.pi * done / 2)) / 2 for done in progress]
    assert np.array(rates) == pytest.approx(np.array([[0.01 * factor, 0.1 * factor] for factor in factors]))


def test_the_head_and_the_first_stage_have_rates_of_their_own(train, monkeypatch):
    rates, make = [], loop.make_optimiser

    def spy(*arguments, **options):
        optimiser = make(*arguments, **options)
        rates.append([group["lr"] for group in optimiser.param_groups])
        return optimiser

    monkeypatch.setattr(loop, "make_optimiser", spy)
    settings = ("linear.optimiser.lr=0.5", "finetune.optimiser.head_lr_multiplier=10")
    train("model.mode=linear-init", *settings, "method.name=role", out="a")
    train("model.mode=linear", "finetune.optimiser.lr=0.5", out="b")
    assert rates == [[0.5, 5.0], [0.01, 0.1, 0.1], [0.01]]  # the head, the network, the method


def test_averaged_weights_are_the_ones_evaluated(train):
    plain, averaged = train(out="plain"), train("linear.optimiser.ema=0.9", out="averaged")
    assert [record["loss"] for record in plain.folder.metrics()] == [
        record["loss"] for record in averaged.folder.metrics()
    ]
    last, plain_last = (load_state(done.folder.path / "linear-last.safetensors") for done in (averaged, plain))
    assert torch.equal(last["model"]["weight"], plain_last["model"]["weight"])
    assert not torch.equal(last["average"]["module.weight"], last["model"]["weight"])
    assert plain.weights != averaged.weights


# Methods over both stages


def test_what_a_method_learns_does_not_decay(train, monkeypatch):
    """An image's label estimates change in the one batch of an epoch that it is in, and in no other."""
    changes, step = [], torch.optim.SGD.step

    def spy(optimiser, *arguments):
        estimates = optimiser.param_groups[-1]["params"][0]
        before = estimates.detach().clone()
        step(optimiser, *arguments)
        changes.append((estimates.detach() != before).any(1).sum().item())

    monkeypatch.setattr(torch.optim.SGD, "step", spy)
    train(
        "method.name=role",
        "linear.optimiser.name=sgd",
        "linear.optimiser.momentum=0",
        "linear.optimiser.weight_decay=0.1",
    )
    assert changes == [8, 8, 8, 6] * 3


def test_what_a_method_learned_is_carried_into_the_second_stage(train, monkeypatch):
    starts, run = [], Trainer.run

    def spy(trainer):
        starts.append({name: tensor.clone() for name, tensor in trainer.method.state_dict().items()})
        run(trainer)

    monkeypatch.setattr(Trainer, "run", spy)
    done = train("method.name=role", "model.mode=linear-init")
    first, second = starts
    after_first = load_state(done.folder.path / "linear-last.safetensors")["method"]
    assert torch.equal(second["label_estimates"], after_first["label_estimates"])
    assert not torch.equal(second["label_estimates"], first["label_estimates"])


def test_to_a_method_both_stages_are_one_training(train, monkeypatch):
    epochs, end_epoch = [], LargeLoss.end_epoch

    def spy(method, epoch, scores):
        epochs.append(epoch)
        end_epoch(method, epoch, scores)

    monkeypatch.setattr(LargeLoss, "end_epoch", spy)
    train("method.name=ll-r", "model.mode=linear-init")
    assert epochs == [1, 2, 3, 4, 5]
    config = tiny_config("", "method.name=entmax-apl", "model.mode=linear-init", "method.options.warmup=2")
    assert make_method(config).labelling_epochs == 5 - 2


def test_priors_are_estimated_ever_more_rarely(train, monkeypatch):
    """After epochs 1, 2, 4, 8 of both stages together."""
    told, epochs = [], []
    monkeypatch.setattr(OPMLPlus, "take_priors", lambda self, priors: told.append((len(epochs) + 1, priors.tolist())))
    monkeypatch.setattr(OPMLPlus, "end_epoch", lambda self, epoch, scores: epochs.append(epoch))
    done = train("method.name=opml-plus", "model.mode=linear-init", "linear.epochs=5", "finetune.epochs=4")
    assert epochs == list(range(1, 10))
    assert [epoch for epoch, _ in told] == [1, 2, 4, 8]
    task = FinishedRun(done.folder.path).task  # all labels of its validation images are known
    assert told[0][1] == pytest.approx(task.validation_labels.dense().mean(0).tolist())


def test_the_second_stage_starts_from_the_best_head_of_the_first(train, monkeypatch):
    starts, run = [], Trainer.run

    def spy(trainer):
        starts.append(trainer.stage.classifier.weight.detach().clone())
        run(trainer)

    monkeypatch.setattr(Trainer, "run", spy)
    done = train("model.mode=linear-init")
    best = done.folder.metrics()[2]["best_epoch"]
    assert torch.equal(starts[1], load_state(done.folder.path / f"linear-best-{best}.safetensors")["weight"])


# What goes wrong


def test_an_infinite_loss_names_the_batch(train):
    with pytest.raises(
        TrainingError, match=r"the loss of batch \d in epoch 1 is (nan|inf).*smaller linear\.optimiser\.lr"
    ):
        train("linear.optimiser.name=sgd", "linear.optimiser.lr=1e30")


@pytest.mark.parametrize("name", ["bce", "opml-sp"])
def test_infinite_scores_name_the_epoch(train, monkeypatch, name):
    monkeypatch.setattr(loop, "lr_factor", lambda config, progress, epochs: math.inf)
    with pytest.raises(
        TrainingError, match=r"the scores after epoch 1 are not finite; try a smaller linear\.optimiser\.lr"
    ):
        train(f"method.name={name}", "linear.optimiser.schedule=cosine", "linear.batch_size=64")


@pytest.mark.usefixtures("checkpoint_every_batch")
def test_the_last_good_state_is_kept(train, monkeypatch, tmp_path):
    monkeypatch.setattr(loop, "lr_factor", lambda config, progress, epochs: 1.0 if progress < 2 else 1e38)
    with pytest.raises(
        TrainingError, match=r"of epoch 3 are not finite; .*linear-last\.safetensors keeps the last good state"
    ):
        train("linear.optimiser.schedule=cosine", "linear.optimiser.name=sgd", "linear.epochs=4")
    state = load_state(tmp_path / "run" / "linear-last.safetensors")
    assert state["progress"]["epoch"] == 2
    assert all(tensor.isfinite().all() for tensor in state["model"].values())
    assert len(RunFolder(tmp_path / "run").metrics()) == 2


@pytest.mark.usefixtures("checkpoint_every_batch")
def test_weights_that_a_finite_loss_made_infinite_are_not_saved(train, monkeypatch, tmp_path):
    step = torch.optim.SGD.step

    def spoil(optimiser, *arguments):
        step(optimiser, *arguments)
        optimiser.param_groups[0]["params"][0].data[0, 0] = math.inf

    monkeypatch.setattr(torch.optim.SGD, "step", spoil)
    with pytest.raises(TrainingError, match="the weights after batch 1 of epoch 1 are not finite; try a smaller"):
        train("linear.optimiser.name=sgd")
    assert not (tmp_path / "run" / "linear-last.safetensors").exists()


@pytest.mark.parametrize("settings", [("model.mode=finetune", "method.name=opml-sp"), ("method.name=role",)], ids=str)
def test_unreadable_training_images_are_left_out_by_name(train, own_images, settings):
    broken = [own_images.parent / f"{row:02}.png" for row in prepare_task(tiny_config(own_images).data).train[[2, 5]]]
    broken[0].write_bytes(b"no image in here")
    broken[1].unlink()
    with pytest.raises(DataError, match=r"\.png: "):
        train("data.on_error=raise", *settings, source=own_images, out="refused")
    done = train(*settings, source=own_images)
    names = sorted(path.name for path in broken)
    assert done.results.skipped_images == names
    (told,) = [sentence for sentence in done.listener.said if sentence.startswith("2 images left out:")]
    assert all(name in told for name in names)
    header, *lines = (done.folder.path / "skipped.csv").read_text().splitlines()
    assert header == "file,reason,place"
    assert [line.partition(",")[0] for line in lines] == names
    assert done.listener.batches[-1]["done"] == done.listener.batches[-1]["rows"] == 28


def test_what_is_wrong_with_the_table_is_left_out_by_its_place(train, own_images):
    text = own_images.read_text().splitlines()
    text[3] = text[3].replace("train", "eval")
    text[5] = text[5][:-1] + "maybe"
    own_images.write_text("\n".join([*text, "gone.png,train,1,1,1,1"]))
    with pytest.raises(DataError, match="line 4, column split: holds 'eval'"):
        train("data.on_error=raise", source=own_images, out="refused")
    done = train("data.observe=given", source=own_images)
    (problems,) = [sentence for sentence in done.listener.said if sentence.startswith("2 problems in the labels:")]
    assert "line 4, column split: holds 'eval'" in problems
    assert problems.endswith("now unknown")
    (images,) = [sentence for sentence in done.listener.said if sentence.startswith("1 image left out:")]
    place = f"labels.csv, line {len(text) + 1}"
    assert images.endswith(f"{place}: no such file gone.png in {own_images.parent}")
    with (done.folder.path / "skipped.csv").open(newline="") as file:
        split, value, gone = csv.DictReader(file)
    assert split["place"] == "labels.csv, line 4, column split"
    assert value["reason"].endswith("; now unknown")
    assert (gone["file"], gone["place"]) == ("gone.png", place)
    assert done.results.skipped_images == ["gone.png"]
    assert FinishedRun(done.folder.path).scores("train").shape == FinishedRun(done.folder.path).labels("train").shape


def test_remarks_on_the_table_are_said(train, own_images):
    header, *rows = own_images.read_text().splitlines()
    own_images.write_text("\n".join([f"{header},width", *(f"{row},640" for row in rows)]))
    (remarks,) = [said for said in train(source=own_images).listener.said if said.startswith("noted about the labels:")]
    assert "column width: holds values that are no labels, as '640' in line 2; left out" in remarks


@pytest.mark.parametrize("mode", ["linear", "finetune"])
def test_unreadable_images_of_every_split_are_left_out(train, own_images, mode):
    task = prepare_task(tiny_config(own_images).data)
    broken = [task.validation[0], task.test[3]]
    for row in broken:
        (own_images.parent / f"{row:02}.png").write_bytes(b"")
    done = train(f"model.mode={mode}", source=own_images)
    assert done.results.skipped_images == sorted(f"{row:02}.png" for row in broken)
    opened = FinishedRun(done.folder.path)
    for split, lost in (("train", 0), ("validation", 1), ("test", 1)):
        assert len(opened.rows(split)) == len(task.rows(split)) - lost
        assert opened.scores(split).shape == opened.labels(split).shape


def test_validation_images_that_can_be_read_need_a_positive(train, own_images):
    labels = labels_of(TRAIN + TEST)
    labels[:3] = [[1, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    splits = ["validation"] * 3 + ["train"] * (TRAIN - 3) + ["test"] * TEST
    write_table(own_images, splits, labels)
    (own_images.parent / "00.png").write_bytes(b"")
    with pytest.raises(DataError, match="of the 2 validation images that can be read none has a positive label"):
        train("data.observe=given", source=own_images)


@pytest.mark.parametrize("known", [0, -1])
def test_test_labels_without_a_positive_do_not_end_the_run(train, own_images, known):
    labels = labels_of(TRAIN + TEST)
    labels[TRAIN:] = known
    write_table(own_images, ["train"] * TRAIN + ["test"] * TEST, labels)
    done = train(source=own_images)
    assert done.results.test_map is None
    assert done.results.test_note == "no test image has a positive label"
    assert done.folder.scores("test").shape == (TEST, len(CLASSES))


def test_a_class_without_test_positives_is_left_out_of_the_mean(train, own_images):
    labels = labels_of(TRAIN + TEST)
    labels[TRAIN:, 1] = 0
    write_table(own_images, ["train"] * TRAIN + ["test"] * TEST, labels)
    done = train(source=own_images)
    assert done.results.test_classes == len(CLASSES) - 1
    assert json.loads((done.folder.path / "results.json").read_text())["test_class_ap"]["green"] is None


def test_a_run_needs_no_test_images(train, own_images):
    labels = labels_of(TRAIN + TEST)
    write_table(own_images, ["train"] * (TRAIN + TEST), labels)
    done = train(source=own_images)
    assert done.results.test_map is done.results.test_classes is None
    assert "test_map" not in (done.folder.path / "results.json").read_text()
    assert not (done.folder.path / "scores_test.npy").exists()


def test_a_run_does_not_go_on_with_other_labels(train, own_images, monkeypatch):
    monkeypatch.setattr(context, "save_model", lambda *_, **__: pytest.exit("killed"))
    with pytest.raises(pytest.exit.Exception):
        train(source=own_images)
    monkeypatch.undo()
    labels = labels_of(TRAIN + TEST)[::-1]
    write_table(own_images, ["train"] * TRAIN + ["test"] * TEST, labels)
    with pytest.raises(RunError, match="the data are not those that the run began with"):
        train(source=own_images)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ("method.name=opml-sb", "there is no method 'opml-sb'; did you mean 'opml-sp'?"),
        ("method.options.alfa=1", "method 'bce' has no option 'alfa'"),
        ("method={name='opml', options={alpha='x'}}", "method: "),
        ("method={name='entmax-apl', options={warmup=9}}", "warmup must be"),
        ("model.backbone=small-cnm", "there is no backbone 'small-cnm'"),
        ("data.validation=0.999", "change data.validation"),
        ("data.format=voz", "there is no dataset format 'voz'; did you mean voc"),
    ],
)
def test_mistakes_leave_no_folder(train, tmp_path, settings, sentence):
    with pytest.raises(ValueError, match=r".") as caught:
        train(settings)
    assert sentence in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "asked", [{"accelerator": "cuda"}, {"accelerator": "abacus"}, {"strategy": "ddb"}, {"devices": 0}], ids=str
)
def test_a_machine_that_is_not_this_one_is_refused(asked):
    if asked.get("accelerator") == "cuda" and torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(ConfigError, match="cannot compute as asked"):
        Hardware(**{"accelerator": "cpu", "devices": 1, **asked}).fabric("32-true")


def test_a_network_stays_whole():
    with pytest.raises(ConfigError, match=r"--strategy fsdp splits a network over devices.*choose ddp"):
        Hardware(accelerator="cpu", devices=2, strategy="fsdp").fabric("32-true")


def test_a_full_disk_while_training_is_told_in_a_sentence(train, monkeypatch, tmp_path):
    def no_space(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RunFolder, "add_metrics", no_space)
    with pytest.raises(WriteError, match=r"run: cannot be written \(No space left on device\)"):
        train()
    monkeypatch.undo()
    shutil.copytree(tmp_path / "run", tmp_path / "again")
    assert len(train(out="again").folder.metrics()) == 3


def test_a_configuration_without_a_backbone_finds_one(tmp_path):
    """As `build_config` makes it, without the command line."""
    rows = [f"a {word} is here {number},{word}" for number in range(6) for word in ("cat", "dog")]
    (tmp_path / "texts.csv").write_text("\n".join(["text,labels", *rows]) + "\n")
    config = build_config({"data": {"source": str(tmp_path / "texts.csv")}})
    folder = RunFolder(tmp_path / "run")
    running.train(config, folder, hardware=Hardware(accelerator="cpu", devices=1, workers=0, cache=tmp_path / "cache"))
    assert folder.config().model.backbone == "tfidf"
    assert folder.finished


@pytest.mark.parametrize("before", [None, "0"])
def test_a_run_leaves_the_environment_as_it_was(train, monkeypatch, before):
    if before is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", before)
    train()
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == before
