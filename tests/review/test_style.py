"""Colours that can be told apart, by day and by night; the browser tests look at every text on every page."""

import re
from pathlib import Path

import pytest

from onepair import review

CSS = (Path(review.__file__).parent / "static" / "review.css").read_text()
LIGHT, DARK = (
    dict(re.findall(r"--([\w-]+): (#\w{6});", block)) for block in re.findall(r":root \{(.*?)\}", CSS, re.DOTALL)
)

TEXTS = [
    *((text, ground) for text in ("ink", "muted") for ground in ("sheet", "ground")),
    ("on-yes", "yes"), ("on-no", "no"), ("yes", "yes-tint"), ("no", "no-tint"), ("on-stage", "stage"),
    ("on-notice", "notice"), ("ink", "rule"),
]  # fmt: skip
MARKS = [("focus", "sheet"), ("focus", "ground"), ("hold", "sheet"), ("yes", "rule"), ("no", "rule")]


def contrast(first, second):
    """The ratio of WCAG 2.

    >>> round(contrast("#ffffff", "#000000"))
    21
    """

    def luminance(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_contrast_of_level_aa(colours):
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01)  # the grey that everybody knows
    for text, ground in TEXTS:
        assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
    for mark, ground in MARKS:
        assert contrast(colours[mark], colours[ground]) >= 3, (mark, ground)


def test_every_colour_has_a_name_and_is_used():
    assert LIGHT.keys() == DARK.keys()
    assert set(re.findall(r"var\(--([\w-]+)\)", CSS)) == LIGHT.keys()
    assert len(re.findall(r"#[0-9a-f]{3,8}\b", CSS)) == 2 * len(LIGHT)
