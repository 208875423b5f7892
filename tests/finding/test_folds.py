"""Every training row is scored once, by a model that has not seen it."""

from dataclasses import replace

import numpy as np
import pytest

from onepair import label_matrix
from onepair.errors import ConfigError, DataError, RunError
from onepair.finding.folds import read_out_of_sample, train_folds
from onepair.inference.engine_selector import score_images
from onepair.labels import UNKNOWN
from onepair.runs.audit import draw, write_audit
from onepair.runs.config import DataConfig
from onepair.runs.finished import FinishedRun
from onepair.runs.folder import RunFolder
from onepair.runs.task import prepare_task
from onepair.training.hardware import Hardware
from tests.training.tiny import (
    CLASSES,
    TEST,
    TRAIN,
    Listener,
    labels_of,
    tiny_config,
    train_tiny,
    write_images,
    write_table,
)

FOLDS = 3


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("folds")
    write_images(folder)
    return folder


@pytest.fixture(scope="module")
def scored(place):
    """A run, its out-of-sample scores, and all that was told meanwhile."""
    run = train_tiny(place / "labels.csv", "linear.epochs=8", out=place / "run", cache=place / "cache").folder
    return run, *again(run, place)


def again(run, place, folds=FOLDS):
    machine, watch = Hardware(accelerator="cpu", devices=1, workers=0, cache=place / "cache"), Listener()
    opened = FinishedRun(run.path)
    configs = train_folds(opened, folds, hardware=machine, callbacks=[watch])
    fabric = machine.fabric("32-true")
    return read_out_of_sample(opened, configs, fabric=fabric, hardware=machine, callbacks=[watch]), watch


@pytest.mark.parametrize("observe", ["given", "single-positive"])
def test_folds_part_the_training_rows(place, observe):
    whole = prepare_task(DataConfig(str(place / "labels.csv"), observe=observe))
    tasks = [
        prepare_task(DataConfig(str(place / "labels.csv"), observe=observe, fold=f"{part}/{FOLDS}"))
        for part in range(1, FOLDS + 1)
    ]
    held_out = np.concatenate([task.test for task in tasks])
    np.testing.assert_array_equal(np.sort(held_out), whole.train)  # each row once
    observed = dict(zip(whole.train.tolist(), whole.observed.tolist(), strict=True))
    for task in tasks:
        assert len(task.test) in (len(whole.train) // FOLDS, len(whole.train) // FOLDS + 1)
        assert not set(task.train) & set(task.test)
        np.testing.assert_array_equal(np.sort(np.concatenate([task.train, task.test])), whole.train)
        assert task.observed.tolist() == [observed[row] for row in task.train.tolist()]
        np.testing.assert_array_equal(task.validation, whole.validation)
        np.testing.assert_array_equal(task.validation_labels, whole.validation_labels)
    other = prepare_task(DataConfig(str(place / "labels.csv"), observe=observe, fold=f"1/{FOLDS}", seed=7))
    assert set(other.test) != set(tasks[0].test)


def test_a_row_is_scored_by_the_model_that_it_was_held_out_of(scored):
    run, found, _ = scored
    assert found.scores.shape == found.observed.shape
    assert np.isfinite(found.scores).all()
    assert found.sample_scores.shape == (FOLDS, len(found.run.task.validation), len(CLASSES))
    folds = [RunFolder(run.path / "finding" / "folds" / f"{part}-of-{FOLDS}") for part in range(1, FOLDS + 1)]
    level = np.mean([fold.scores("validation").mean(0) for fold in folds], axis=0)
    for part, fold in enumerate(folds, start=1):
        assert fold.config() == replace(run.config(), data=replace(run.config().data, fold=f"{part}/{FOLDS}"))
        held_out = prepare_task(fold.config().data).test
        apart = fold.scores("validation").mean(0) - level
        expected = {split: fold.scores(split) - apart for split in ("test", "validation")}
        np.testing.assert_allclose(found.scores[np.isin(found.rows, held_out)], expected["test"], atol=1e-6)
        np.testing.assert_allclose(found.sample_scores[part - 1], expected["validation"], atol=1e-6)


def test_models_of_all_folds_score_the_same_images_alike_on_average(scored):
    _, found, _ = scored
    means = found.sample_scores.mean(1)
    np.testing.assert_allclose(means, np.broadcast_to(means[0], means.shape), atol=1e-5)


def test_the_scores_are_not_those_of_the_run_itself(scored, place):
    from onepair.inference.model_files import load_model

    run, found, _ = scored
    classifier, _ = load_model(run.path)
    fitted = score_images(classifier, found.run.table, found.rows, workers=0)
    assert (np.abs(fitted - found.scores) > 1e-3).any(1).mean() > 0.8


def test_a_second_time_nothing_is_trained(scored, place):
    run, found, first = scored
    assert first.epochs
    repeated, watch = again(run, place)
    assert not watch.epochs
    np.testing.assert_array_equal(repeated.scores, found.scores)
    np.testing.assert_array_equal(repeated.sample_scores, found.sample_scores)


def test_finished_folds_keep_no_weights(scored):
    run, _, _ = scored
    assert not list((run.path / "finding").rglob("*.safetensors"))
    assert (run.path / "model.safetensors").exists()


KINDS = {
    "features": ("linear.epochs=3",),
    "network": ("model.mode=finetune",),
    "vectors": ("data.features='{folder}/vectors.npy'", "model.backbone=vectors", "model.image_size=none"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_models_that_were_kept_say_what_kept_scores_say(kind, tmp_path, monkeypatch):
    source = write_images(tmp_path)
    labels = np.loadtxt(source, delimiter=",", skiprows=1, usecols=range(2, 6))
    np.save(tmp_path / "vectors.npy", labels + np.random.default_rng(0).normal(size=labels.shape))
    settings = [each.format(folder=tmp_path) for each in KINDS[kind]]
    run = train_tiny(source, *settings, out=tmp_path / "run", cache=tmp_path / "cache").folder
    kept, _ = again(run, tmp_path)
    for fold in (tmp_path / "run" / "finding" / "folds").iterdir():
        (fold / "results.json").unlink()  # so that it is trained again, and keeps its model this time
    monkeypatch.setattr(label_matrix, "MOST_CELLS", 10)
    computed, _ = again(run, tmp_path)
    np.testing.assert_array_equal(computed.rows, kept.rows)
    np.testing.assert_allclose(computed.scores, kept.scores, atol=1e-5)
    np.testing.assert_allclose(computed.sample_scores, kept.sample_scores, atol=1e-5)
    some = np.array([29, 2, 17, 3])
    np.testing.assert_allclose(computed.score(some), kept.scores[some], atol=1e-5)


def test_images_that_were_left_out_stay_left_out(place, tmp_path):
    for image in place.glob("*.png"):
        (tmp_path / image.name).write_bytes(image.read_bytes())
    table = write_table(tmp_path / "labels.csv", ["train"] * TRAIN + ["test"] * TEST, labels_of(TRAIN + TEST))
    broken = prepare_task(DataConfig(str(table))).train[4]
    (tmp_path / f"{broken:02}.png").write_bytes(b"not an image")
    run = train_tiny(table, "data.on_error=skip", out=tmp_path / "run", cache=tmp_path / "cache").folder
    found, _ = again(run, tmp_path)
    assert broken not in found.rows
    assert len(found.scores) == len(prepare_task(DataConfig(str(table))).train) - 1
    assert np.isfinite(found.scores).all()


def test_validation_images_with_holes_are_searched_too_until_an_audit_fills_them(place, tmp_path):
    labels = labels_of(TRAIN + TEST)
    labels[::2, 1] = UNKNOWN
    table = write_table(tmp_path / "labels.csv", ["train"] * TRAIN + ["test"] * TEST, labels)
    run = train_tiny(
        table, f"data.images='{place}'", "data.observe=given", out=tmp_path / "run", cache=place / "cache"
    ).folder
    found, _ = again(run, place, folds=2)
    task = found.run.task
    holes = task.validation[(labels[task.validation] == UNKNOWN).any(1)]
    assert 0 < len(holes) < len(task.validation)
    np.testing.assert_array_equal(found.rows, np.union1d(task.train, holes))
    np.testing.assert_array_equal(found.observed, labels[found.rows])
    np.testing.assert_array_equal(found.sample, labels[np.setdiff1d(task.validation, holes)])
    folds = [FinishedRun(run.path / "finding" / "folds" / f"{part}-of-2") for part in (1, 2)]
    levels = [fold.scores("validation").mean(0) for fold in folds]
    for place_of, row in enumerate(holes.tolist()):
        expected = folds[place_of % 2].scores("validation")[task.validation.tolist().index(row)]
        expected = expected - levels[place_of % 2] + np.mean(levels, axis=0)
        np.testing.assert_allclose(found.scores[found.rows.tolist().index(row)], expected, atol=1e-6)

    opened = FinishedRun(run.path)
    sample = draw(opened, "validation", 10**6, 0)
    truth = labels_of(TRAIN + TEST)
    write_audit(opened, sample, {file: truth[opened.table.files.index(file)] for file in sample.files})
    audited, _ = again(run, place, folds=2)
    np.testing.assert_array_equal(audited.rows, task.train)
    np.testing.assert_array_equal(audited.sample, truth[task.validation])


def test_labels_that_changed_are_refused(place, tmp_path):
    labels = labels_of(TRAIN + TEST)
    table = write_table(tmp_path / "labels.csv", ["train"] * TRAIN + ["test"] * TEST, labels)
    run = train_tiny(table, f"data.images='{place}'", out=tmp_path / "run", cache=place / "cache").folder
    labels[0] = 1 - labels[0]
    write_table(table, ["train"] * TRAIN + ["test"] * TEST, labels)
    with pytest.raises(RunError, match=r"has changed since it was trained"):
        again(run, place)


def test_runs_without_parts_to_hold_out_are_refused(scored, place, tmp_path):
    run, _, _ = scored
    with pytest.raises(RunError, match="is a fold"):
        again(RunFolder(run.path / "finding" / "folds" / f"1-of-{FOLDS}"), place)
    with pytest.raises(RunError, match="holds no finished run"):
        again(RunFolder(tmp_path / "nowhere"), place)
    with pytest.raises(DataError, match="30 training images cannot be cut into 31 folds"):
        again(run, place, folds=31)


@pytest.mark.parametrize("fold", ["2", "0/5", "6/5", "1/1", "a/b", "1/2/3", "-1/5", "1.5/3", "/", "²/5"])
def test_folds_that_make_no_sense_are_refused(fold):
    from onepair.runs.config import build_config

    with pytest.raises(ConfigError, match=r"data\.fold must be a part of two or more, as 2/5, got"):
        build_config({"data": {"fold": fold}})


def test_images_that_have_gone_since_the_run_are_left_out(tmp_path):
    source = write_images(tmp_path)
    run = train_tiny(source, "linear.epochs=2", "data.observe=given", out=tmp_path / "run", cache=tmp_path / "cache")
    opened = FinishedRun(run.folder.path)
    gone = [opened.task.train[3], opened.task.validation[1]]
    for row in gone:
        opened.table.path(row).unlink()
    found, _ = again(run.folder, tmp_path)
    assert set(opened.searched) - set(found.rows) == {gone[0]}
    assert len(found.sample) == len(opened.task.validation) - 1
    for scores in (found.scores, found.sample_scores):
        assert np.isfinite(scores).all()


def test_images_that_are_there_again_take_the_place_of_no_other(place, tmp_path):
    for image in place.glob("*.png"):
        (tmp_path / image.name).write_bytes(image.read_bytes())
    table = write_table(tmp_path / "labels.csv", ["train"] * TRAIN + ["test"] * TEST, labels_of(TRAIN + TEST))
    task = prepare_task(tiny_config(table).data)
    broken = [f"{row:02}.png" for row in (task.train[4], task.train[-1], task.validation[-1])]
    for name in broken:
        (tmp_path / name).write_bytes(b"not an image")
    run = train_tiny(table, out=tmp_path / "run", cache=tmp_path / "cache").folder
    for name in broken:
        (tmp_path / name).write_bytes((place / name).read_bytes())
    found, _ = again(run, tmp_path)
    np.testing.assert_array_equal(found.rows, np.setdiff1d(task.train, [task.train[4], task.train[-1]]))
    assert len(found.sample) == len(task.validation) - 1
    folds = [FinishedRun(run.path / "finding" / "folds" / f"{part}-of-{FOLDS}") for part in range(1, FOLDS + 1)]
    level = np.mean([fold.scores("validation")[:-1].mean(0) for fold in folds], axis=0)
    for part, fold in enumerate(folds, start=1):
        own = np.isin(fold.rows("test"), found.rows)
        shown, expected = found.scores[np.isin(found.rows, fold.rows("test"))], fold.scores("test")[own]
        apart = fold.scores("validation")[:-1].mean(0) - level
        np.testing.assert_allclose(shown, expected - apart, atol=1e-6)
        np.testing.assert_allclose(found.sample_scores[part - 1], fold.scores("validation")[:-1] - apart, atol=1e-6)


def test_a_fold_of_one_image_that_has_gone_is_left_out(tmp_path):
    labels = labels_of(TRAIN + TEST)
    write_images(tmp_path)
    table = write_table(tmp_path / "few.csv", ["train"] * 3 + ["validation"] * 6, labels[:9])
    run = train_tiny(table, out=tmp_path / "run", cache=tmp_path / "cache").folder
    (tmp_path / "01.png").unlink()
    found, _ = again(run, tmp_path)
    assert found.rows.tolist() == [0, 2]
