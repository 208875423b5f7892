"""Batches: each row once, the same for any number of workers, and no error lost on the way."""

import itertools
import multiprocessing
import os
import pickle
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from onepair.data.images import batches as loading
from onepair.data.images.batches import Batch, ImageReader, batch_specs, default_workers, image_batches, prepare
from onepair.data.images.decode import Preprocessing, decode
from onepair.data.label_table import LabelTable, Problem
from onepair.errors import DataError

SCALE = Preprocessing(8, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
COUNT = 11


@pytest.fixture
def table(tmp_path: Path) -> LabelTable:
    noise = np.random.default_rng(0)
    for index in range(COUNT):
        Image.fromarray(noise.integers(0, 256, (9, 12, 3), dtype=np.uint8)).save(tmp_path / f"{index}.png")
    return make_table(tmp_path)


def make_table(root: Path, pixels: np.ndarray | None = None) -> LabelTable:
    files = tuple(f"{index}.png" for index in range(COUNT))
    return LabelTable(files, ("any",), np.zeros((COUNT, 1), np.int8), np.full(COUNT, "train"), root, pixels)


def read(table: LabelTable, *, training: bool = True, workers: int = 0, **options: object) -> list[Batch]:
    rows = np.arange(COUNT)
    return list(image_batches(table, rows, SCALE, batch_size=4, training=training, workers=workers, **options))


def as_one(batches: list[Batch]) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.cat([batch.images for batch in batches]), torch.cat([batch.rows for batch in batches])


@pytest.mark.parametrize("workers", [0, 2])
def test_evaluation_gives_every_row_once_in_order(table: LabelTable, workers: int) -> None:
    batches = read(table, training=False, workers=workers)
    images, rows = as_one(batches)
    assert [len(batch.rows) for batch in batches] == [4, 4, 3]
    assert rows.tolist() == list(range(COUNT))
    assert rows.dtype == torch.int64
    for image, row in zip(images, rows.tolist(), strict=True):
        assert torch.equal(image, prepare(decode(table.path(row)), SCALE))


def test_images_are_channels_last_bytes(table: LabelTable) -> None:
    images = read(table)[0].images
    assert images.shape == (4, 3, 8, 8)
    assert images.dtype == torch.uint8
    assert images.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("workers", [1, 2])
def test_training_is_the_same_for_any_number_of_workers(table: LabelTable, workers: int) -> None:
    for alone, together in zip(read(table, seed=3), read(table, seed=3, workers=workers), strict=True):
        assert torch.equal(alone.images, together.images)
        assert torch.equal(alone.rows, together.rows)


def test_seed_and_epoch_change_order_and_flips(table: LabelTable) -> None:
    _, first = as_one(read(table, seed=0, epoch=0))
    assert sorted(first.tolist()) == list(range(COUNT))
    for other in ({"seed": 1, "epoch": 0}, {"seed": 0, "epoch": 1}):
        _, rows = as_one(read(table, **other))
        assert sorted(rows.tolist()) == list(range(COUNT))
        assert rows.tolist() != first.tolist()


def flipped_rows(table: LabelTable, rows: np.ndarray, *, batch_size: int) -> dict[int, bool]:
    flips = {}
    for images, chosen in image_batches(table, rows, SCALE, batch_size=batch_size, training=True, seed=5, workers=0):
        for image, row in zip(images, chosen.tolist(), strict=True):
            plain = prepare(decode(table.path(row)), SCALE)
            flips[row] = torch.equal(image, plain.flip(-1))
            assert flips[row] or torch.equal(image, plain)
    return flips


def test_a_flip_depends_on_seed_epoch_and_row_only(table: LabelTable) -> None:
    every = flipped_rows(table, np.arange(COUNT), batch_size=4)
    some = flipped_rows(table, np.array([9, 2, 5, 7]), batch_size=3)
    assert some == {row: every[row] for row in (9, 2, 5, 7)}
    assert set(every.values()) == {True, False}


def test_pixels_in_memory_are_used_instead_of_files(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (COUNT, 8, 8, 3), dtype=np.uint8)
    images, _ = as_one(read(make_table(tmp_path, pixels), training=False))
    np.testing.assert_array_equal(images.permute(0, 2, 3, 1), pixels)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("training", [False, True])
def test_an_unreadable_image_is_a_data_error(table: LabelTable, workers: int, training: bool) -> None:
    table.path(6).write_bytes(b"broken")
    with pytest.raises(DataError, match=r"6\.png") as caught:
        read(table, training=training, workers=workers)
    assert str(caught.value) == f"{table.path(6)}: is not an image (JPEG, PNG, WEBP, GIF, BMP, TIFF)"


@pytest.mark.parametrize("workers", [0, 2])
def test_a_report_that_returns_leaves_the_image_out(table: LabelTable, workers: int) -> None:
    table.path(6).write_bytes(b"broken")
    table.path(3).unlink()
    skipped: list[Problem] = []
    _, rows = as_one(read(table, workers=workers, report=skipped.append))
    assert sorted(rows.tolist()) == [row for row in range(COUNT) if row not in (3, 6)]
    assert sorted(problem.where for problem in skipped) == [str(table.path(3)), str(table.path(6))]


def test_evaluation_leaves_nothing_out_whatever_the_report(table: LabelTable) -> None:
    table.path(6).write_bytes(b"broken")
    with pytest.raises(DataError, match=r"6\.png"):
        read(table, training=False, report=[].append)


def test_a_batch_without_any_readable_image_is_not_yielded(table: LabelTable) -> None:
    for row in range(COUNT):
        table.path(row).write_bytes(b"broken")
    skipped: list[Problem] = []
    assert read(table, report=skipped.append) == []
    assert len(skipped) == COUNT


def test_a_worker_that_dies_is_an_error_and_not_a_wait(table: LabelTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "decode", lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(RuntimeError, match="worker"):
        read(table, workers=1)


def test_no_rows_give_no_batches(table: LabelTable) -> None:
    assert list(image_batches(table, np.array([], int), SCALE, batch_size=4, training=True, workers=0)) == []


@pytest.mark.parametrize(
    ("cores", "gpu", "expected"), [(1, False, 0), (2, False, 0), (2, True, 1), (4, False, 3), (64, True, 8)]
)
def test_default_workers_leave_the_model_its_cores(
    monkeypatch: pytest.MonkeyPatch, cores: int, gpu: bool, expected: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)), raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    assert default_workers() == expected


def test_processes_that_read_together_share_each_batch(table: LabelTable) -> None:
    asked = batch_specs(np.arange(COUNT), batch_size=4, mirrored=SCALE.flip, seed=1)
    reader = ImageReader(table, SCALE, workers=0)
    for process in range(3):
        parts = reader.read([reading.part(process, 3) for reading in asked])
        for (part, problems), whole in zip(parts, read(table, seed=1), strict=True):
            assert problems == []
            assert torch.equal(part.rows, whole.rows[process::3])
            assert torch.equal(part.images, whole.images[process::3])


@pytest.mark.parametrize("start", [1, 2, 3, 4])
def test_a_later_start_reads_the_batches_that_are_left_and_no_other_image(table: LabelTable, start: int) -> None:
    whole = read(table, seed=1)
    for batch in whole[:start]:
        for row in batch.rows.tolist():
            table.path(row).unlink()
    asked = batch_specs(np.arange(COUNT), batch_size=4, mirrored=SCALE.flip, seed=1, start=start)
    left = list(ImageReader(table, SCALE, workers=0).read(asked))
    assert len(left) == len(whole[start:])
    for (batch, problems), expected in zip(left, whole[start:], strict=True):
        assert problems == []
        assert torch.equal(batch.rows, expected.rows)
        assert torch.equal(batch.images, expected.images)


def test_one_reader_keeps_its_processes_and_gives_them_no_labels(table: LabelTable) -> None:
    asked = batch_specs(np.arange(COUNT), batch_size=2, mirrored=None)
    reader = ImageReader(table, SCALE, workers=2)
    assert b"LabelTable" not in pickle.dumps(reader._loader.dataset)
    readers = []
    for taken in (6, 3, 6):  # the second time, some batches are left and must not turn up in the third
        rows = [batch.rows.tolist() for batch, _ in itertools.islice(reader.read(asked), taken)]
        assert rows == [reading.rows.tolist() for reading in asked[:taken]]
        readers.append({process.pid for process in multiprocessing.active_children()})
    assert len(readers[0]) == 2
    assert readers[0] == readers[1] == readers[2]


def test_readers_outlive_a_signal_to_all_processes_of_a_terminal(table: LabelTable) -> None:
    reader = ImageReader(table, SCALE, workers=1)
    asked = batch_specs(np.arange(COUNT), batch_size=2, mirrored=None)
    next(reader.read(asked))
    (process,) = multiprocessing.active_children()
    assert os.getpgid(process.pid or 0) != os.getpgid(0)
