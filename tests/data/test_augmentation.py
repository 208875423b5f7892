"""Augmented images: random, but the same for the same seed, epoch and row."""

import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torchvision.transforms.autoaugment import InterpolationMode, TrivialAugmentWide, _apply_op

from onepair.data.images.batches import _OPERATIONS, LEAST, ImageReader, augment, batch_specs, prepare
from onepair.data.images.decode import Preprocessing
from onepair.data.label_table import LabelTable

SMALL = Preprocessing(16, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5), flip=0.0)
COUNT = 9


@pytest.fixture
def table():
    pixels = np.random.default_rng(0).integers(0, 256, (COUNT, 24, 20, 3)).astype(np.uint8)
    return LabelTable(
        files=tuple(map(str, range(COUNT))),
        classes=("a",),
        labels=np.ones((COUNT, 1), np.int8),
        split=np.full(COUNT, "train"),
        root=Path(),
        pixels=pixels,
    )


def seen(table, augmentation, *, batch_size=4, workers=0, epoch=1, training=True, flip=0.0):
    """Every row's image in an epoch."""
    asked = batch_specs(np.arange(COUNT), batch_size=batch_size, mirrored=flip if training else None, epoch=epoch)
    reader = ImageReader(table, replace(SMALL, flip=flip), workers=workers, augmentation=augmentation)
    return {
        row: image
        for batch, _ in reader.read(asked)
        for row, image in zip(batch.rows.tolist(), batch.images, strict=True)
    }


@pytest.mark.parametrize("augmentation", ["crop", "strong"])
def test_seed_epoch_and_row_decide_what_is_seen(table, augmentation):
    first = seen(table, augmentation)
    for again in (seen(table, augmentation, batch_size=2), seen(table, augmentation, workers=2)):
        assert all(torch.equal(first[row], again[row]) for row in range(COUNT))
    other = seen(table, augmentation, epoch=2)
    assert not any(torch.equal(first[row], other[row]) for row in range(COUNT))


@pytest.mark.parametrize("augmentation", ["crop", "strong"])
def test_only_training_images_are_augmented(table, augmentation):
    plain = seen(table, augmentation, training=False)
    assert all(torch.equal(plain[row], prepare(table.pixels[row], SMALL)) for row in range(COUNT))


def test_augmented_images_are_mirrored_as_others_are(table):
    plain, mirrored = seen(table, "crop"), seen(table, "crop", flip=1.0)
    assert all(torch.equal(plain[row].flip(-1), mirrored[row]) for row in range(COUNT))


def test_a_crop_keeps_half_of_the_image_or_more():
    """On a ramp along each axis, the reach of values is the side of the crop."""
    across, down = np.meshgrid(np.arange(200), np.arange(200))
    ramp = np.stack([across, down, np.zeros_like(across)], axis=-1).astype(np.uint8)
    areas = []
    for draw in range(60):
        crop = augment(ramp, SMALL, "crop", draw=draw).float()
        width, height = ((crop[axis].max() - crop[axis].min()).item() / 200 * 16 / 15 for axis in (0, 1))
        areas.append(width * height)
    assert LEAST - 0.03 <= min(areas) < 0.6
    assert 0.9 < max(areas) <= 1.1


def test_the_strong_policy_changes_colours_too(table):
    grey = np.full((30, 30, 3), 90, np.uint8)
    assert all((augment(grey, SMALL, "crop", draw=draw) == 90).all() for draw in range(9))
    assert any((augment(grey, SMALL, "strong", draw=draw) != 90).any() for draw in range(9))


@pytest.mark.parametrize("operation", range(len(_OPERATIONS)))
def test_the_strong_policy_is_that_of_torchvision(table, operation):
    """The same operations in the same order, at any strength and sign."""
    image = torch.tensor(table.pixels[0]).permute(2, 0, 1)
    policy = TrivialAugmentWide(fill=[128.0])
    name = list(policy._augmentation_space(31))[operation]
    magnitudes, signed = policy._augmentation_space(31)[name]
    for strength, sign in itertools.product((0, 7, 15, 30), (-1, 1) if signed else (1,)):
        magnitude = sign * round(float(magnitudes[strength]), 5) if magnitudes.ndim else 0.0
        expected = _apply_op(image, name, magnitude, InterpolationMode.NEAREST, [128.0])
        torch.testing.assert_close(_OPERATIONS[operation](image, strength / 30, sign), expected, atol=1, rtol=0)


def test_threads_do_not_draw_for_each_other(table):
    draws = [draw for draw in range(12) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda draw: augment(table.pixels[0], SMALL, "strong", draw=draw), draws))
    alone = {draw: augment(table.pixels[0], SMALL, "strong", draw=draw) for draw in set(draws)}
    assert all(torch.equal(image, alone[draw]) for draw, image in zip(draws, found, strict=True))


def test_nothing_else_draws_from_these_random_numbers(table):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    augment(table.pixels[0], SMALL, "strong", draw=1)
    assert torch.equal(torch.rand(3), expected)
