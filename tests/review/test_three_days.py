"""Three days with a messy collection in a real browser: after each, the written table is the truth of all answers.

The table is a German list as spreadsheets save it. A model of it, written out here, says what each line must be.
"""

import csv
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from onepair.files import cache_folder
from tests.cli.command import onepair
from tests.review.processes import serving

THINGS = ("rot", "grün", "blau", "gestreift", "gerahmt")
HEADER = ["Inventar-Nr.", "Bilddatei", "Schlagwörter", "Fotograf", "Notiz"]


class Collection:
    """Photos, what they show, and the lines of a table; what people said is kept by image and class."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.table = folder, folder / "Meine Fotos.csv"
        self.random = np.random.default_rng(5)
        self.shown: dict[str, set[str]] = {}
        self.lines: list[list[str]] = []
        self.said: dict[tuple[bytes, str], bool] = {}
        self.header, self.delimiter, self.end, self.encoding = HEADER, ";", "\r\n", "cp1252"

    def add(self, count: int, things: tuple[str, ...]) -> None:
        for _ in range(count):
            number = len(self.shown)
            place = (f"Urlaub & Meer/IMG {number:04}.jpg", f"party 🎉/p{number} (1).png", f"straße-{number}.jpeg")
            file = place[number % 3]
            shown = {thing for thing in things if self.random.random() < 0.5} or {things[number % len(things)]}
            path = self.folder / file
            path.parent.mkdir(exist_ok=True)
            Image.fromarray(self.picture(shown)).save(path)
            self.shown[file] = shown
            tag = sorted(shown)[self.random.integers(len(shown))]
            spelled = (tag, tag.title(), f" {tag}", tag)[number % 4]
            note = 'schön; "toll"' if number % 7 == 0 else ""
            self.lines.append([f"{number:05}", file, spelled, ("Öztürk", "Müller")[number % 2], note])

    def picture(self, shown: set[str]) -> np.ndarray:
        pixels = self.random.integers(0, 90, (24, 24, 3))
        for channel, colour in enumerate(THINGS[:3]):
            pixels[..., channel] += 120 * (colour in shown)
        pixels[::4] += 40 * ("gestreift" in shown)
        pixels[:3] += 40 * ("gerahmt" in shown)
        return pixels.astype(np.uint8)

    def rename(self, old: str, new: str) -> None:
        (self.folder / old).rename(self.folder / new)
        self.shown[new] = self.shown.pop(old)
        for line in self.lines:
            line[1] = new if line[1] == old else line[1]

    def save(self) -> None:
        self.table.write_bytes(self.content(self.lines))

    def content(self, lines: list[list[str]]) -> bytes:
        """As a spreadsheet of Windows saves it; names of folders may hold what cp1252 lacks, so only the name stays."""
        written = [[number, name_in_table(file), *rest] for number, file, *rest in lines]
        rows = [self.delimiter.join(map(self.quoted, line)) for line in [self.header, *written]]
        return (self.end.join(rows) + self.end).encode(self.encoding)

    def quoted(self, cell: str) -> str:
        return '"{}"'.format(cell.replace('"', '""')) if {'"', self.delimiter} & set(cell) else cell

    def edit_elsewhere(self) -> None:
        """Somebody else adds and removes tags and lines, notes and a column, and saves it with another program."""
        tags = self.header.index("Schlagwörter")
        for line in self.lines[10:30]:  # the whole truth, whatever was answered
            line[tags] = ", ".join(sorted(self.shown.get(line[1], {"rot"})))
        for line in self.lines[30:40]:  # a tag that may have been denied or be in need of confirmation
            line[tags] = "blau"
        del self.lines[40:45]
        for number, line in enumerate(self.lines):
            line[-1] = f'{line[-1]}, "neu"' if number % 9 == 0 else line[-1]
            line.insert(tags, ("Köln", "", "Łódź; Altstadt")[number % 3])
        self.header = [*HEADER[:tags], "Ort", *HEADER[tags:]]
        self.delimiter, self.end, self.encoding = ",", "\n", "utf-8-sig"

    def expected(self) -> bytes:
        """The table with what people said: tags that were denied are gone, the others come after those of before."""
        lines, tags = [], self.header.index("Schlagwörter")
        for line in self.lines:
            file, cell = line[1], line[tags]
            said = {name: yes for (image, name), yes in self.said.items() if image == self.image(file)}
            before = [name.strip() for name in cell.split(",") if name.strip()]
            denied = {name for name in before if said.get(name.lower()) is False}
            more = sorted(name for name, yes in said.items() if yes and name not in map(str.lower, before))
            kept = [name for name in before if name not in denied]
            # A cell in which nothing changed stays as it is, with its spaces.
            new = ", ".join([*([cell.rstrip()] if kept and not denied else kept), *more]) if denied or more else cell
            lines.append([*line[:tags], new, *line[tags + 1 :]])
        return self.content(lines)

    def image(self, file: str) -> bytes:
        path = self.folder / file
        return path.read_bytes() if path.exists() else file.encode()


def name_in_table(file: str) -> str:
    return file.removeprefix("party 🎉/").replace("/", "\\")


@pytest.fixture
def photos(tmp_path, monkeypatch):
    collection = Collection(tmp_path / "Fotos für Oma")
    collection.folder.mkdir()
    monkeypatch.chdir(collection.folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(collection.folder / "cache"))
    collection.add(60, THINGS[:3])
    collection.lines.insert(9, list(collection.lines[4]))  # a row twice
    collection.lines.append(["99999", "fehlt.jpg", "rot", "", ""])
    (collection.folder / "straße-2.jpeg").write_bytes(b"kaputt")
    (collection.folder / "film.mp4").write_bytes(b"kein Foto")
    collection.save()
    return collection


def live(photos: Collection, tab, *words: str, answers: int = 5) -> str:
    """A day on the page, and what the command said: some suggestions are answered by what is true, none of before."""
    with serving(Path(words[0]), *words[1:], "--backbone", "small-cnn", command="start") as server:
        page = tab()
        page.goto(server.url)
        for number in range(answers):
            page.locator("#question").wait_for()
            file = page.locator("figcaption").inner_text()
            label = page.locator("#question strong").inner_text().rstrip("?")
            place = photos.image(file), label.lower()
            assert place not in photos.said, f"{file}, {label} was asked before"
            photos.said[place] = label.lower() in photos.shown[file]
            before = page.url
            if number % 2:
                page.keyboard.press("y" if photos.said[place] else "n")
            else:
                page.locator("#yes" if photos.said[place] else "#no").click()
            page.wait_for_url(lambda url, before=before: url != before)
        page.context.close()
    return server.said


def import_answers(photos: Collection, count: int) -> None:
    """Answers of somebody else, in a list of their own program: by file names, separated by semicolons."""
    run = max((photos.folder / "Meine Fotos.onepair" / "runs").glob("[0-9]"))
    with (run / "finding" / "suggestions.csv").open(encoding="utf-8") as text:
        found = [(each["file"], each["label"]) for each in csv.DictReader(text)]
    lines = ["File;Label;Answer"]
    for file, label in found:
        place = photos.image(file), label.lower()
        if place not in photos.said and len(lines) <= count:
            photos.said[place] = label.lower() in photos.shown[file]
            lines.append(f"{file};{label};{'Yes' if photos.said[place] else 'No'}")
    (photos.folder / "answers.csv").write_text("\n".join(lines), encoding="utf-8")
    for taken in (len(lines) - 1, 0):  # a second time nothing changes
        result = onepair("answers", "import", "answers.csv", cwd=photos.folder)
        assert result.stdout.startswith(f"{taken} answer"), result.stdout + result.stderr


def require_truth(photos: Collection, out: str) -> None:
    before = photos.table.read_bytes()
    for _ in range(2):
        result = onepair("labels", "--out", out, cwd=photos.folder)
        assert result.returncode == 0, result.stderr
    expected = photos.expected()
    assert (photos.folder / out).read_bytes().decode(photos.encoding) == expected.decode(photos.encoding)
    assert (photos.folder / out).read_bytes() == expected
    changed = sum(one != other for one, other in zip(before.split(b"\n"), expected.split(b"\n"), strict=True))
    assert changed >= len({image for (image, _), yes in photos.said.items() if yes}) // 4  # it has something to tell
    assert photos.table.read_bytes() == before


def test_three_days(photos, tab):
    said = live(photos, tab, "Meine Fotos.csv", "--label-columns", "Schlagwörter")
    assert "left out: 1 video (film.mp4)" in said
    import_answers(photos, 15)
    require_truth(photos, "Tag 1.csv")

    photos.add(300, THINGS)
    for number in range(10, 20):
        old = next(file for file in photos.shown if re.search(rf"\D0*{number}\b", file))
        photos.rename(old, f"umbenannt {number}{Path(old).suffix}")
    photos.random.shuffle(photos.lines)
    photos.save()
    said = live(photos, tab, "Meine Fotos.csv")  # how the table is read was said on the first day
    assert "since the last time: 300 photos and 2 classes new, 10 photos renamed" in said
    assert "20 answers of before count as known labels" in said
    import_answers(photos, 30)
    require_truth(photos, "Tag 2.csv")

    photos.edit_elsewhere()
    photos.save()
    require_truth(photos, "Tag 3 vorher.csv")
    said = live(photos, tab, "Meine Fotos.csv")
    assert "answers of before count as known labels" in said
    import_answers(photos, 30)
    require_truth(photos, "Tag 3.csv")
    shutil.rmtree(cache_folder(), ignore_errors=True)  # what is known of files can be read again
    require_truth(photos, "Tag 3 noch einmal.csv")
    result = onepair("answers", "export", "all.csv", cwd=photos.folder)
    assert result.stdout.startswith(f"{len(photos.said)} answers"), result.stdout  # those to photos that are gone, too
