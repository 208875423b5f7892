"""Images are scaled as Pillow would, whole or from their centre."""

import json
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from onepair.data.images.decode import Preprocessing, scale

PLAIN: dict[str, Any] = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}


def scene(height: int, width: int) -> NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)


@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
def test_squash_takes_the_whole_image(interpolation: Any) -> None:
    way = Image.Resampling[interpolation.upper()]
    expected = np.asarray(Image.fromarray(scene(12, 20)).resize((8, 8), way))
    scaled = scale(scene(12, 20), Preprocessing(8, **PLAIN, interpolation=interpolation))
    assert scaled.dtype == np.uint8
    np.testing.assert_array_equal(scaled, expected)


@pytest.mark.parametrize("turned", [False, True])
def test_crop_scales_the_short_side_and_takes_the_centre(turned: bool) -> None:
    image = scene(30, 10) if turned else scene(10, 30)
    scaled = Image.fromarray(image).resize((5, 15) if turned else (15, 5), Image.Resampling.BICUBIC)
    expected = np.asarray(scaled.crop((0, 5, 5, 10) if turned else (5, 0, 10, 5)))
    np.testing.assert_array_equal(scale(image, Preprocessing(5, **PLAIN, resize="crop")), expected)


@pytest.mark.parametrize("wrong", [{"size": 0}, {"resize": "stretch"}, {"interpolation": "nearest"}, {"flip": 2.0}])
def test_preprocessing_refuses_what_it_does_not_know(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=str(next(iter(wrong.values())))):
        Preprocessing(**{"size": 8, **PLAIN, **wrong})


def test_preprocessing_survives_json() -> None:
    given = Preprocessing(9, mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6), resize="crop", interpolation="bilinear", flip=0)
    assert Preprocessing.from_dict(json.loads(json.dumps(asdict(given)))) == given
