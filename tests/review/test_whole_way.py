"""The whole way of somebody with a messy folder: one command, a page in a real browser, answers, and better labels."""

import re

import numpy as np
import pytest
from PIL import Image, ImageDraw

from onepair.data.formats.read import read_dataset
from tests.cli.command import onepair
from tests.review.processes import serving

SHAPES = ("circle", "square", "bar")
PHOTOS = 40


def photo(shown, random):
    """Shapes somewhere on a ground of some colour; a phone's photo or a scan."""
    image = Image.new("RGB", (48, 36), tuple(random.integers(150, 256, 3).tolist()))
    draw = ImageDraw.Draw(image)
    for shape in shown:
        left, top = random.integers(2, 30), random.integers(2, 20)
        box = (left, top, left + 12, top + 12)
        if shape == "circle":
            draw.ellipse(box, "red")
        elif shape == "square":
            draw.rectangle(box, "blue")
        else:
            draw.rectangle((0, top + 5, 48, top + 8), "black")
    return image


@pytest.fixture
def folder(tmp_path):
    """Photos in two folders and two formats, one of them broken, and a list of one tag each as spreadsheets save it."""
    random = np.random.default_rng(1)
    lines = ["sep=;", "Image;Tags;Comment"]
    for number in range(PHOTOS):
        shown = [shape for shape in SHAPES if random.random() < 0.5] or ["circle"]
        place = (
            tmp_path / ("Holiday 2023" if number % 2 else "scans") / f"p{number:02}.{'jpg' if number % 3 else 'png'}"
        )
        place.parent.mkdir(exist_ok=True)
        image = photo(shown, random)
        (image.convert("CMYK") if number == 4 else image).save(place)
        path = str(place.relative_to(tmp_path)).replace("/", "\\")
        lines.append(f"{path};{shown[0].title() if number == 7 else shown[0]};{'schön' if number % 5 == 0 else ''}")
    (tmp_path / "scans" / "p02.jpg").write_bytes(b"half a photo")
    lines += ["scans\\gone.png;circle;", ";;"]
    (tmp_path / "my tags.csv").write_bytes("\r\n".join(lines).encode("cp1252"))
    return tmp_path


def test_from_a_messy_folder_to_confirmed_labels_and_a_better_model(folder, tab, monkeypatch):
    monkeypatch.chdir(folder)
    table = folder / "my tags.csv"
    with serving(table, "--backbone", "small-cnn", command="start") as server:
        (skipped,) = folder.glob("my tags.onepair/runs/*/skipped.csv")
        assert {"p02.jpg", "gone.png"} <= set(re.findall(r"\w+\.\w+", skipped.read_text().replace("\\", "/")))
        page = tab()
        page.goto(server.url)
        said = {}
        for answer in ("yes", "no", "yes"):
            place = page.locator("figcaption").inner_text(), page.locator("#question strong").inner_text().rstrip("?")
            said[place] = answer
            before = page.url
            page.locator(f"#{answer}").click()
            page.wait_for_url(lambda url, before=before: url != before)
        file = page.locator("figcaption").inner_text()
        page.keyboard.press("a")
        page.get_by_role("searchbox").wait_for()
        page.keyboard.type("sky")
        page.keyboard.press("Enter")  # no such class yet: it is added, and given to the photo
        page.get_by_text("added").wait_for()
        said[file, "sky"] = "yes"

        page.locator("#training").click()
        page.locator("#start").click()
        page.get_by_role("button", name="Stop").wait_for()
        page.get_by_role("heading", name="Before and after").wait_for(timeout=600_000)
        page.wait_for_load_state("networkidle")  # its photos are there, before the server is gone
        first, second = sorted(path.parent for path in folder.glob("my tags.onepair/runs/*/config.toml"))
        page.get_by_text("Show the figures").click()
        figures = page.locator("table:not(.worth)")
        assert figures.locator("tbody th").all_inner_texts() == [first.name, second.name]
        cells = figures.locator("td").all_inner_texts()
        assert all(re.fullmatch(r"([\d.]+|–) +[\d.]+ to [\d.]+", cell) for cell in cells)

    assert second.name == f"{first.name}-2"
    written = onepair("labels", first, "--out", "completed.csv", "--as", "csv", cwd=folder)
    assert written.returncode == 0, written.stderr
    assert "labels confirmed: 3, rejected: 1" in written.stdout
    completed = read_dataset(folder / "completed.csv")
    row_of = {file: row for row, file in enumerate(completed.files)}
    for (file, label), answer in said.items():
        assert completed.labels[row_of[file], completed.classes.index(label)] == (answer == "yes")
    learned_from = read_dataset(second.with_name(f"{second.name}-labels.csv"))
    np.testing.assert_array_equal(learned_from.labels, completed.labels)
