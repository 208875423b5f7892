"""The picture of heat maps: what is in it, and that nothing in names or shapes upsets it."""

import io

import matplotlib
import numpy as np
import pytest
from PIL import Image

from onepair.report.explain_images import ACROSS, DOTS, PANEL, Explained, Sighting, overlay, render


def explained(*, labels=1, shape=(40, 60), name="a.png", label="dog"):
    pixels = np.random.default_rng(0).integers(0, 256, (*shape, 3)).astype(np.uint8)
    evidence = np.array([[0, 0], [0, 255]], np.uint8)
    return Explained(name, "train", pixels, [Sighting(label, 0.5, "observed", evidence) for _ in range(labels)])


def size_of(png):
    with Image.open(io.BytesIO(png)) as image:
        return image.size


def test_colour_is_where_the_evidence_is():
    photo = np.full((40, 40, 3), (90, 140, 60), np.uint8)
    shown = overlay(photo, np.array([[0, 0], [0, 255]], np.uint8)).astype(int)
    assert shown.shape == photo.shape
    spread = shown.max(2) - shown.min(2)
    assert spread[0, 0] <= 3  # grey
    assert spread[-1, -1] > 40
    assert shown[-1, -1].sum() > 2 * shown[0, 0].sum()  # brighter too, for those who see no colours


def test_the_image_stays_visible_under_any_evidence():
    stripes = np.zeros((20, 20, 3), np.uint8)
    stripes[::2] = 255
    for level in (0, 128, 255):
        shown = overlay(stripes, np.full((3, 3), level, np.uint8)).astype(int)
        assert np.abs(shown[0, 0] - shown[1, 0]).min() >= 255 // 3


def test_labels_fill_lines():
    widths, heights = zip(*(size_of(render([explained(labels=n)])) for n in (1, ACROSS, ACROSS + 1)), strict=True)
    panel = round(PANEL * DOTS)
    assert widths == (2 * panel, (1 + ACROSS) * panel, (1 + ACROSS) * panel)
    assert heights[0] == heights[1]
    assert heights[2] == pytest.approx(2 * heights[1], abs=2)


def test_every_panel_is_drawn():
    """Black images under full evidence: as many yellow areas as labels, and as many black ones as images."""
    black = np.zeros((60, 60, 3), np.uint8)
    full = np.full((2, 2), 255, np.uint8)
    images = [Explained("", "", black, [Sighting("", 1.0, "", full)] * labels) for labels in (2, ACROSS + 1)]
    with Image.open(io.BytesIO(render(images))) as picture:
        pixels = np.asarray(picture.convert("RGB")).reshape(-1, 3)
    heat = overlay(black, full)[0, 0]
    areas = (pixels == heat).all(1).sum(), (pixels < 8).all(1).sum()
    assert areas[0] / areas[1] == pytest.approx((2 + ACROSS + 1) / 2, rel=0.05)


@pytest.mark.parametrize("shape", [(1, 1), (1, 900), (900, 1), (32, 32), (300, 500)])
def test_images_of_any_shape(shape):
    width, height = size_of(render([explained(shape=shape)]))
    assert width == 2 * round(PANEL * DOTS)
    assert height < 5 * width


@pytest.mark.parametrize("name", ["$x_1$", "\\frac{", "犬🐕", "line\nbreak", "a" * 300, ""])
def test_any_name(name):
    assert size_of(render([explained(name=name, label=name)])) == size_of(render([explained()]))


def test_the_users_settings_change_nothing():
    expected = render([explained()])
    with matplotlib.rc_context({"figure.facecolor": "red", "text.color": "green", "font.size": 30}):
        assert render([explained()]) == expected
