"""Blocks of images: each exactly once, in order, no more of them read than are needed."""

import numpy as np
import pytest
from PIL import Image

from onepair.data.images.blocks import image_blocks
from onepair.data.images.decode import Preprocessing, decode, scale
from onepair.errors import DataError

SCALE = Preprocessing(8, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))


@pytest.fixture
def files(tmp_path):
    random = np.random.default_rng(0)
    for number in range(11):
        Image.fromarray(random.integers(0, 256, (9, 12, 3), dtype=np.uint8)).save(tmp_path / f"{number:02}.png")
    return sorted(tmp_path.iterdir())


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_blocks_are_the_images_in_order(files, workers):
    images = [*files, decode(files[0])]
    blocks = list(image_blocks(iter(images), SCALE, batch_size=5, workers=workers))
    assert [len(block.rows) for block in blocks] == [5, 5, 2]
    assert [block.seen for block in blocks] == [5, 10, 12]
    np.testing.assert_array_equal(np.concatenate([block.rows for block in blocks]), np.arange(12))
    assert [each for block in blocks for each in block.sources][:11] == files
    expected = np.stack([scale(decode(file, at_least=8), SCALE) for file in [*files, files[0]]])
    np.testing.assert_array_equal(np.concatenate([block.inputs for block in blocks]), expected)


@pytest.mark.parametrize("workers", [0, 2])
def test_unreadable_images_are_left_out_and_blocks_stay_where_they_are(files, workers):
    for number in (1, 5, 6, 7, 8, 9):
        files[number].write_bytes(b"torn")
    problems = []
    blocks = list(image_blocks(files, SCALE, batch_size=5, workers=workers, report=problems.append))
    assert [(block.rows.tolist(), block.seen) for block in blocks] == [([0, 2, 3, 4], 5), ([10], 11)]
    assert [problem.where for problem in problems] == [str(files[number]) for number in (1, 5, 6, 7, 8, 9)]
    assert all(str(problem).startswith(f"{problem.where}: is not an image") for problem in problems)
    with pytest.raises(DataError, match=r"01\.png: is not an image"):
        list(image_blocks(files, SCALE, batch_size=5, workers=workers))


def test_no_more_is_read_than_the_next_block(files):
    asked = []

    def images():
        for number in range(1000):
            asked.append(number)
            yield files[number % len(files)]

    blocks = image_blocks(images(), SCALE, batch_size=5, workers=2)
    next(blocks)
    next(blocks)
    assert len(asked) == 15
    blocks.close()
