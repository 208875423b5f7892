"""The labels after a review, and what training makes of them."""

import csv
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from onepair.data.formats.digits import read_digits
from onepair.data.formats.read import read_dataset
from onepair.data.formats.write import write_table
from onepair.errors import DataError, ReviewError
from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN
from onepair.review.answers import Answer, Entry
from onepair.review.completion import write_completed
from onepair.review.queue import open_run
from onepair.runs.config import build_config
from onepair.runs.folder import RunFolder
from tests.review.runs import (
    CLASSES,
    TEST,
    TRAIN,
    VALIDATION,
    open_session,
    small_run,
    truth_of,
    write_images,
    write_run,
    write_suggestions,
)


def entry(file, label, answer, who="Ann", id=1):
    return Entry(id, id, file, label, answer, who, "2024-05-01T09:00:00.000+00:00")


def decisions(path):
    return list(csv.DictReader(path.read_text().splitlines()))


@pytest.fixture
def run(tmp_path):
    return open_run(small_run(tmp_path))


def unknown_cell(run, number=0):
    place, column = np.argwhere(run.task.observed == UNKNOWN)[number]
    return int(run.task.train[place]), int(column)


def test_yes_is_1_no_is_0_and_the_rest_stays(run, tmp_path):
    table, cells = run.task.table, [unknown_cell(run, number) for number in range(4)]
    entries = [
        entry(table.files[row], CLASSES[column], answer)
        for (row, column), answer in zip(cells, ("yes", "no", "skip", None), strict=True)
    ]
    found = write_completed(run, entries, tmp_path / "images" / "completed.csv")
    completed = read_dataset(tmp_path / "images" / "completed.csv")
    expected = table.labels.dense()
    expected[run.task.train] = run.task.observed
    expected[cells[0]], expected[cells[1]] = POSITIVE, NEGATIVE
    np.testing.assert_array_equal(completed.labels, expected)
    assert completed.files == table.files
    assert (found.confirmed, found.rejected, found.corrected, found.foreign) == (1, 1, 0, 0)
    assert found.unknown == (run.task.observed == UNKNOWN).sum() - 2


def test_what_was_answered_is_marked_as_asked_for_over_several_rounds(run, tmp_path):
    table, cells = run.task.table, [unknown_cell(run, number) for number in range(3)]
    entries = [
        entry(table.files[row], CLASSES[column], answer)
        for (row, column), answer in zip(cells, ("yes", "no", "skip"), strict=True)
    ]
    write_completed(run, entries, tmp_path / "completed.csv")
    again = open_run(write_run(tmp_path / "again", tmp_path / "completed.csv"))
    assert {tuple(cell) for cell in np.argwhere(again.task.table.asked)} == set(cells[:2])
    (row, column), files = cells[2], again.task.table.files
    write_completed(again, [entry(files[row], CLASSES[column], "yes")], tmp_path / "twice.csv")
    assert {tuple(cell) for cell in np.argwhere(read_dataset(tmp_path / "twice.csv").asked)} == set(cells)


def test_other_programs_get_the_labels_in_their_formats(run, tmp_path):
    (row, column), table = unknown_cell(run), run.task.table
    entries = [entry(table.files[row], CLASSES[column], "no")]
    write_completed(run, entries, tmp_path / "completed.csv")
    for format in ("coco", "label-studio"):
        write_completed(run, entries, tmp_path / f"{format}.json", format=format)
        np.testing.assert_array_equal(
            read_dataset(tmp_path / f"{format}.json").labels, read_dataset(tmp_path / "completed.csv").labels
        )


def test_of_several_answers_the_last_one_counts(run, tmp_path):
    row, column = unknown_cell(run)
    file = run.task.table.files[row]
    answers = [entry(file, CLASSES[column], answer, id=i) for i, answer in enumerate(("no", "skip", "yes"), start=1)]
    write_completed(run, answers, tmp_path / "completed.csv")
    assert read_dataset(tmp_path / "completed.csv").labels[row, column] == POSITIVE


def test_an_observed_label_that_was_wrong_is_flipped(tmp_path):
    run = open_run(small_run(tmp_path, observe="given"))
    table = run.task.table
    flipped = {1: "no", 0: "yes"}
    entries = [
        entry(table.files[0], label, flipped[int(value)]) for label, value in zip(CLASSES, table.labels[0], strict=True)
    ]
    found = write_completed(run, entries, tmp_path / "completed.csv")
    np.testing.assert_array_equal(read_dataset(tmp_path / "completed.csv").labels[0], 1 - table.labels[0])
    assert (found.confirmed, found.rejected, found.corrected) == (0, 0, 4)


def test_hidden_labels_stay_hidden_and_all_splits_are_there(run, tmp_path):
    write_completed(run, [], tmp_path / "completed.csv")
    completed = read_dataset(tmp_path / "completed.csv")
    assert [len(completed.rows(split)) for split in ("train", "validation", "test")] == [TRAIN, VALIDATION, TEST]
    assert ((completed.labels[completed.rows("train")] == POSITIVE).sum(1) == 1).all()
    assert (completed.labels[completed.rows("train")] != NEGATIVE).all()
    for split in ("validation", "test"):
        rows = completed.rows(split)
        np.testing.assert_array_equal(completed.labels[rows], run.task.table.labels[rows])


@pytest.mark.parametrize("observe", ["single-positive", "given"])
def test_training_on_the_completed_file_selects_on_the_same_images(tmp_path, observe):
    """Also where the validation images are taken from the training split by the seed."""
    table = write_images(tmp_path / "images")
    table.write_text(table.read_text().replace("validation", "train"))
    run = open_run(write_run(tmp_path / "run", table, observe=observe))
    write_completed(run, [], tmp_path / "completed.csv")
    again = open_run(write_run(tmp_path / "again", tmp_path / "completed.csv"))
    for rows in ("train", "validation", "test"):
        np.testing.assert_array_equal(getattr(again.task, rows), getattr(run.task, rows))
    np.testing.assert_array_equal(again.task.observed, run.task.observed)
    np.testing.assert_array_equal(again.task.validation_labels, run.task.validation_labels)


@pytest.mark.parametrize("place", ["images", ".", "elsewhere/deep"])
def test_images_are_found_from_wherever_the_table_is_written(run, tmp_path, place):
    (tmp_path / place).mkdir(parents=True, exist_ok=True)
    write_completed(run, [], tmp_path / place / "completed.csv")
    completed = read_dataset(tmp_path / place / "completed.csv")
    for row in range(len(completed)):
        assert completed.path(row).samefile(run.task.table.path(row))


def test_also_through_a_linked_folder_and_for_absolute_names(run, tmp_path, monkeypatch):
    (tmp_path / "real" / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real" / "deep")
    monkeypatch.chdir(tmp_path)
    absolute = replace(run.task.table, files=tuple(str(run.task.table.path(row)) for row in range(len(run.task.table))))
    for table in (run.task.table, absolute):
        run.task = replace(run.task, table=table)
        write_completed(run, [], (tmp_path / "link" / "completed.csv").relative_to(tmp_path))
        completed = read_dataset(tmp_path / "link" / "completed.csv")
        assert all(completed.path(row).samefile(run.task.table.path(row)) for row in range(len(completed)))


def test_lists_of_labels_become_a_wide_table(tmp_path):
    images = write_images(tmp_path / "images").parent
    (images / "lists.csv").write_text("file,labels\n00.png,bar;cross\n01.png,circle\n02.png,bar\n03.png,cross\n")
    run = open_run(write_run(tmp_path / "run", images / "lists.csv", validation=0.25))
    file = run.task.table.files[run.task.train[0]]
    label = run.task.table.classes[int(np.flatnonzero(run.task.observed[0] == UNKNOWN)[0])]
    write_completed(run, [entry(file, label, "no")], images / "completed.csv")
    rows = {row["file"]: row for row in csv.DictReader((images / "completed.csv").read_text().splitlines())}
    assert list(rows["00.png"]) == ["file", "split", "asked", "bar", "circle", "cross"]
    assert rows[file][label] == "0"
    assert rows[file]["asked"] == label


def test_parquet_is_written_as_parquet(run, tmp_path):
    row, column = unknown_cell(run)
    write_completed(run, [entry(run.task.table.files[row], CLASSES[column], "yes")], tmp_path / "completed.parquet")
    assert read_dataset(tmp_path / "completed.parquet").labels[row, column] == POSITIVE
    assert len(decisions(tmp_path / "completed_decisions.csv")) == 1


def test_images_without_files_become_files(run, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (len(run.task.table), 8, 8, 3), np.uint8)
    run.task = replace(run.task, table=replace(run.task.table, pixels=pixels))
    write_completed(run, [], tmp_path / "completed.csv")
    completed = read_dataset(tmp_path / "completed.csv")
    assert completed.files[3] == "completed_images/03.png"
    np.testing.assert_array_equal(np.asarray(Image.open(completed.path(3))), pixels[3])
    write_completed(run, [], tmp_path / "completed.csv")  # its own it writes anew
    Image.fromarray(pixels[4]).save(completed.path(3))
    with pytest.raises(ReviewError, match=r"03.png: is there already, and would be overwritten"):
        write_completed(run, [], tmp_path / "completed.csv")


def test_files_that_did_not_come_from_here_are_never_overwritten(run, tmp_path):
    entries = [entry(run.table.files[0], CLASSES[0], "yes")]
    write_completed(run, entries, tmp_path / "photos.csv")
    write_completed(run, entries, tmp_path / "photos.csv")  # its own it writes anew
    (tmp_path / "others_decisions.csv").write_text("file,label\na.png,dog\n")
    with pytest.raises(ReviewError, match=r"others_decisions.csv: is there already, and would be overwritten"):
        write_completed(run, entries, tmp_path / "others.csv")
    assert not (tmp_path / "others.csv").exists()
    assert (tmp_path / "others_decisions.csv").read_text() == "file,label\na.png,dog\n"


def test_who_and_when_are_beside_it(run, tmp_path):
    (row, column), file = unknown_cell(run), run.task.table.files[unknown_cell(run)[0]]
    observed = CLASSES[int(np.flatnonzero(run.task.observed[0] == POSITIVE)[0])]
    entries = [
        entry(file, CLASSES[column], "yes", "Ann"),
        entry(run.task.table.files[run.task.train[0]], observed, "no", "Ben"),
        entry("01.png", CLASSES[0], None),
        entry("gone.png", "bar", "yes"),
    ]
    found = write_completed(run, entries, tmp_path / "images" / "completed.csv")
    first, second = decisions(found.decisions)
    when = "2024-05-01T09:00:00.000+00:00"
    assert first == {"file": file, "label": CLASSES[column], "before": "", "answer": "yes", "who": "Ann", "when": when}
    assert (second["before"], second["answer"], second["who"]) == ("1", "no", "Ben")
    assert found.foreign == 1
    assert row == run.task.table.files.index(file)


def test_other_endings_are_refused_before_anything_is_written(run, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(DataError, match=r"completed\.txt: labels are written as \.csv or \.parquet"):
        write_completed(run, [], tmp_path / "completed.txt")
    assert sorted(tmp_path.rglob("*")) == before


def test_confirmed_suggestions_raise_the_map(tmp_path):
    """The loop closes: train, have suggestions confirmed by somebody who knows all labels, train again."""
    from onepair.training.hardware import Hardware
    from onepair.training.run import train
    from tests.training.tiny import Listener

    scenes = read_digits(train=300, test=150)
    assert scenes.pixels is not None
    for file, pixels in zip(scenes.files, scenes.pixels, strict=True):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        Image.fromarray(pixels).save(tmp_path / file)
    write_table(replace(scenes, pixels=None), tmp_path / "labels.csv")
    run = open_run(write_run(tmp_path / "run", tmp_path / "labels.csv", observe="single-positive"))
    truth = scenes.labels[run.task.train]
    places = np.argwhere(run.task.observed == UNKNOWN)
    truly = truth[tuple(places.T)] == POSITIVE
    kept = np.concatenate([places[truly], places[~truly][: truly.sum()]])  # half of the suggestions are right
    files = [scenes.files[row] for row in run.task.train]
    write_suggestions(run.path, [(files[place], scenes.classes[column], 0.5, "missing") for place, column in kept])
    session = open_session(run.path)
    cells = [session.suggestion(number) for number in range(1, len(session) + 1)]
    session.record([Answer(cell.file, cell.label, truth_of(session, cell), 0) for cell in cells], who="Ann")
    found = write_completed(run, session.store.entries(), tmp_path / "completed.csv")
    assert (found.confirmed, found.rejected) == (truly.sum(), truly.sum())

    def test_map(source, observe):
        config = build_config(
            {
                "data": {"source": str(source), "observe": observe},
                "model": {"backbone": "small-cnn", "mode": "finetune", "weights": "none", "flip": 0.0},
                "method": {"name": "bce"},
                "finetune": {
                    "epochs": 10,
                    "optimiser": {"name": "adam", "lr": 0.003, "head_lr_multiplier": 1.0, "weight_decay": 0.0},
                },
            }
        )
        hardware = Hardware(accelerator="cpu", devices=1, workers=0, cache=tmp_path / "cache")
        return train(config, RunFolder(tmp_path / observe), hardware=hardware, callbacks=[Listener()]).test_map

    before = test_map(tmp_path / "labels.csv", "single-positive")
    after = test_map(tmp_path / "completed.csv", "given")
    assert after > before + 0.05
