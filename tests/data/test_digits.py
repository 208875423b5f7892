import numpy as np
import pytest

from onepair.data.formats.digits import CLASSES, _compose, read_digits


def test_scenes_are_labelled_by_the_digits_they_show():
    """With one drawing per digit, whose ink is the digit itself, the ink in a scene can be read back."""
    ink = np.arange(10, dtype=np.uint8)[:, None, None].repeat(8, axis=1).repeat(8, axis=2) + 1
    pixels, labels = _compose(ink, np.arange(10), 200, np.random.default_rng(0))
    for scene, row in zip(pixels, labels, strict=True):
        seen, areas = np.unique(255 - scene[..., 0], return_counts=True)
        assert set(seen[seen > 0] - 1) == set(np.flatnonzero(row))
        assert (areas[seen > 0] == 64).all()  # whole digits, none on top of another


def test_two_to_three_labels_per_image():
    table = read_digits()
    assert len(table.rows("train")) == 3000
    assert len(table.rows("test")) == 1000
    assert table.classes == CLASSES
    per_image = table.labels.dense().sum(1)
    assert per_image.mean() == pytest.approx(2.6, abs=0.05)
    assert per_image.min() == 1
    assert per_image.max() == 5


def test_same_seed_same_scenes():
    first, again, other = (
        read_digits(train=9, test=3),
        read_digits(train=9, test=3),
        read_digits(train=9, test=3, seed=1),
    )
    np.testing.assert_array_equal(first.pixels, again.pixels)
    np.testing.assert_array_equal(first.labels, again.labels)
    assert (first.pixels != other.pixels).any()


def test_training_scenes_do_not_depend_on_the_number_of_test_scenes():
    few, many = read_digits(train=5, test=1), read_digits(train=5, test=7)
    np.testing.assert_array_equal(few.pixels[:5], many.pixels[:5])


def test_train_and_test_share_no_handwriting(monkeypatch):
    """Give every sample an ink of its own, and look which inks each split uses."""
    import sklearn.datasets

    digits = np.arange(1797) % 10
    samples = np.zeros((1797, 64))
    samples[:, 0], samples[:, 1] = 1 + np.arange(1797) % 15, 1 + np.arange(1797) // 15 % 15
    samples[:, 2] = 1 + np.arange(1797) // 225
    monkeypatch.setattr(sklearn.datasets, "load_digits", lambda **_: (samples, digits))
    table = read_digits(train=300, test=300)
    used = {}
    for split in ("train", "test"):
        ink = 255 - table.pixels[table.rows(split)][..., 0]
        places = np.argwhere((ink[:, :, :-2] > 0) & (ink[:, :, 1:-1] > 0) & (ink[:, :, 2:] > 0))
        used[split] = {tuple(ink[scene, row, column : column + 3]) for scene, row, column in places}
    assert len(used["train"]) > 300
    assert len(used["test"]) > 300
    assert not used["train"] & used["test"]


def test_empty_splits_are_refused():
    with pytest.raises(ValueError, match="at least 1 scene each, got 0 and 5"):
        read_digits(train=0, test=5)
