"""Colours of charts on light and on dark pages."""

import re
from importlib import resources

import pytest

from onepair.report.style import DARK, INK, PALETTE, for_dark_screens

DARK_PAGE = "#1e2129"  # of the documents' theme; the page of a report is darker


def luminance(colour):
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("colour", PALETTE)
def test_colours_can_be_told_from_either_page(colour):
    assert contrast(colour, "#ffffff") >= 4.5
    assert contrast(DARK[colour], DARK_PAGE) >= 4.5


def test_dark_colours_are_those_of_the_page_of_a_report():
    css = resources.files("onepair.report").joinpath("page.css").read_text("utf-8")
    dark = css.partition("prefers-color-scheme: dark")[2]
    assert re.findall(r"--run\d: (#\w+)", dark) == [DARK[colour] for colour in PALETTE]


def test_an_svg_file_keeps_its_colours_and_adds_those_of_dark_screens():
    drawn = b'<?xml version="1.0"?><svg width="1"><path style="fill: #ffffff"/><g style="fill: #1d2530"/></svg>'
    found = for_dark_screens(drawn).decode()
    assert re.sub("<style>.*</style>", "", found) == drawn.decode()
    assert found.index("<svg") < found.index("<style>@media (prefers-color-scheme:dark)") < found.index("<path")
    assert f'[style*="fill: {INK}"]{{fill:{DARK[INK]}!important}}' in found
    assert 'path[style*="fill: #ffffff"]{fill:none!important}' in found, "the ground is that of the page"
