"""What is learned, selected and tested on: the published order of hiding and splitting, and what cannot be used."""

import numpy as np
import pytest

from onepair.errors import DataError
from onepair.labels import (
    NEGATIVE,
    POSITIVE,
    UNKNOWN,
    observe_fraction,
    observe_positives,
    observe_preferred,
    split_validation,
)
from onepair.runs.config import DataConfig
from onepair.runs.task import describe_observation, prepare_task
from tests.training.tiny import CLASSES, TEST, TRAIN, labels_of, write_table

LABELS = labels_of(TRAIN + TEST)


def test_labels_are_hidden_first_and_split_afterwards(images):
    task = prepare_task(DataConfig(str(images), observe="single-positive"))
    official = np.arange(TRAIN)
    kept, held_out = split_validation(TRAIN, fraction=0.2, seed=1200)
    np.testing.assert_array_equal(task.train, official[kept])
    np.testing.assert_array_equal(task.observed, observe_positives(LABELS[:TRAIN], seed=1200)[kept])
    np.testing.assert_array_equal(task.validation, official[held_out])
    np.testing.assert_array_equal(task.validation_labels, LABELS[held_out])
    np.testing.assert_array_equal(task.test, np.arange(TRAIN, TRAIN + TEST))
    assert task.selected_on == "full validation labels"


def test_a_share_of_no_label_is_refused(images):
    with pytest.raises(DataError, match=r"data.known=0.001 of 148 labels is none; raise it"):
        prepare_task(DataConfig(str(images), observe="fraction", known=0.001))


def test_seed_and_share_are_those_asked_for(images):
    task = prepare_task(DataConfig(str(images), observe="single-positive", seed=5, validation=0.5))
    kept, held_out = split_validation(TRAIN, fraction=0.5, seed=5)
    np.testing.assert_array_equal(task.validation, held_out)
    np.testing.assert_array_equal(task.observed, observe_positives(LABELS[:TRAIN], seed=5)[kept])


def test_given_labels_stay_as_they_are(images):
    task = prepare_task(DataConfig(str(images)))
    np.testing.assert_array_equal(task.observed, LABELS[task.train])


def test_the_oracle_keeps_one_positive_and_all_negatives(images):
    config = DataConfig(str(images), observe="single-positive")
    full, oracle = LABELS[prepare_task(config).train], prepare_task(config, with_all_negatives=True).observed
    np.testing.assert_array_equal(oracle == NEGATIVE, full == NEGATIVE)
    assert ((oracle == POSITIVE).sum(1) == 1).all()
    assert (full[oracle == POSITIVE] == POSITIVE).all()


def test_a_validation_split_of_its_own_is_used(tmp_path):
    splits = ["validation", "train", "test", "train"] * 3
    labels = labels_of(12)
    table = write_table(tmp_path / "labels.csv", splits, labels)
    task = prepare_task(DataConfig(str(table), observe="single-positive"))
    np.testing.assert_array_equal(task.train, [1, 3, 5, 7, 9, 11])
    np.testing.assert_array_equal(task.validation, [0, 4, 8])
    np.testing.assert_array_equal(task.test, [2, 6, 10])
    np.testing.assert_array_equal(task.observed, observe_positives(labels[1::2]))
    np.testing.assert_array_equal(task.validation_labels, labels[::4])


def test_unknown_validation_labels_stay_unknown(tmp_path):
    labels = np.array([[1, -1, 0, -1]] * 10, np.int8)
    task = prepare_task(DataConfig(str(write_table(tmp_path / "labels.csv", ["train"] * 10, labels))))
    np.testing.assert_array_equal(task.validation_labels, [[1, UNKNOWN, 0, UNKNOWN]] * 2)
    words = "observed labels of validation images, with an estimate of what the unknown ones are"
    assert (
        task.selected_on == f"{words}; by these, every model reaches 100"
    )  # all of them are positive of the first class
    assert (task.observed == UNKNOWN).any()


def refused(tmp_path, splits, labels, **settings):
    table = write_table(tmp_path / "labels.csv", splits, np.array(labels, np.int8))
    with pytest.raises(DataError) as caught:
        prepare_task(DataConfig(str(table), **settings))
    assert str(caught.value).startswith(f"{table}: ")
    return str(caught.value)


def test_hiding_needs_complete_labels(tmp_path):
    sentence = refused(tmp_path, ["train"] * 3, [[1, 0, -1, 0]] * 3, observe="single-positive")
    assert "every training label must be known" in sentence


def test_something_to_train_on_is_needed(tmp_path):
    assert "has no training images" in refused(tmp_path, ["test"] * 3, [[1, 0, 0, 0]] * 3)


def test_something_to_select_on_is_needed(tmp_path):
    assert "1 image is too few" in refused(tmp_path, ["train"], [[1, 0, 0, 0]])
    assert "change data.validation" in refused(tmp_path, ["train"] * 2, [[1, 0, 0, 0]] * 2, validation=0.9)


@pytest.mark.parametrize("hidden", [0, -1])
def test_validation_needs_a_positive(tmp_path, hidden):
    splits, labels = ["train"] * 3 + ["validation"] * 2, [[1, 0, 1, 0]] * 3 + [[0, hidden, 0, 0]] * 2
    sentence = refused(tmp_path, splits, labels)
    assert "of 2 validation images none has a positive label" in sentence
    assert "take the validation split out of the table" in sentence


def test_images_can_be_left_out_of_every_split(images):
    task = prepare_task(DataConfig(str(images)))
    gone = [task.train[0], task.train[-1], task.validation[1], task.test[0]]
    less = task.without({task.table.files[row] for row in gone})
    np.testing.assert_array_equal(less.train, task.train[1:-1])
    np.testing.assert_array_equal(less.observed, task.observed[1:-1])
    np.testing.assert_array_equal(less.validation, np.delete(task.validation, 1))
    np.testing.assert_array_equal(less.validation_labels, np.delete(task.validation_labels, 1, axis=0))
    np.testing.assert_array_equal(less.test, task.test[1:])
    assert task.without(set()) is task
    for split in ("training", "validation"):
        rows = task.train if split == "training" else task.validation
        with pytest.raises(DataError, match=f"not one {split} image can be read"):
            task.without({task.table.files[row] for row in rows})


def test_the_validation_split_is_the_published_one_or_keeps_every_class(tmp_path):
    labels = np.zeros((40, 4), np.int8)
    labels[:, 0] = 1
    labels[:5, 1] = 1
    labels[7, 2] = 1
    table = write_table(tmp_path / "labels.csv", ["train"] * 40, labels)
    published = split_validation(40)[1]
    for settings, expected in (({"observe": "single-positive"}, True), ({"split": "published"}, True), ({}, False)):
        task = prepare_task(DataConfig(str(table), **settings))
        assert (task.validation.tolist() == published.tolist()) == expected
    assert (labels[task.validation, 1]).sum() == 1
    assert 7 in task.train


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"observe": "fraction", "known": 0.25}, lambda full: observe_fraction(full, known=0.25)),
        ({"observe": "fraction", "known": 1.0}, lambda full: full),
        ({"observe": "few-positives", "positives": 3}, lambda full: observe_positives(full, per_sample=3)),
        ({"observe": "most-frequent"}, lambda full: observe_preferred(full, full.sum(0))),
    ],
)
def test_other_ways_to_hide_labels(images, settings, expected):
    task = prepare_task(DataConfig(str(images), **settings))
    kept, held_out = split_validation(TRAIN)
    np.testing.assert_array_equal(task.observed, expected(LABELS[:TRAIN])[kept])
    np.testing.assert_array_equal(task.validation_labels, LABELS[held_out])


def test_the_largest_object_is_seen(images, tmp_path):
    boxes = tmp_path / "boxes.csv"
    lines = [f"{row:02}.png,{name},0,0,{1 + column},1" for row in range(TRAIN) for column, name in enumerate(CLASSES)]
    boxes.write_text("\n".join(["file,class,xmin,ymin,xmax,ymax", *lines]))
    task = prepare_task(DataConfig(str(images), observe="largest-object", boxes=str(boxes)))
    last = len(CLASSES) - 1 - LABELS[task.train][:, ::-1].argmax(1)
    np.testing.assert_array_equal(np.argwhere(task.observed == POSITIVE)[:, 1], last)
    with pytest.raises(DataError, match=r"name a file of objects as data\.boxes"):
        prepare_task(DataConfig(str(images), observe="largest-object"))


def test_what_was_seen_in_words():
    assert describe_observation(DataConfig()) == "labels as given"
    assert describe_observation(DataConfig(observe="few-positives", positives=3)) == "up to 3 positives of each image"
