"""Three days with a collection that grows: whatever becomes of table and photos, no answer is asked for again."""

import csv
import shutil
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from openpyxl import Workbook, load_workbook
from PIL import Image
from starlette.testclient import TestClient

from onepair import Run
from onepair.cli.first_steps import ask_of_names
from onepair.data.formats.read import read_dataset
from onepair.data.formats.xmp import read_keywords
from onepair.data.images.image_files import skipped_files
from onepair.review.answers import Answer
from onepair.review.app import Application
from onepair.review.image_answers import open_answers
from onepair.review.photos import Pictures
from onepair.review.queue import open_run, read_queue
from onepair.review.session import ReviewSession
from onepair.runs.project import Project, run_in
from tests.review.sites import Site

SHAPES = ("red", "green", "blue", "striped", "framed")


class Collection:
    """Photos that show some of five things, and a table that names one of them; what is true is known here alone."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.random = folder, np.random.default_rng(3)
        self.truth: dict[str, set[str]] = {}
        self.tags: dict[str, str] = {}

    def add(self, count: int, *, things=SHAPES[:3], tagged: bool = True) -> None:
        for _ in range(count):
            name = f"IMG_{len(self.truth):03}.png"
            shown = {thing for thing in things if self.random.random() < 0.5} or {things[0]}
            Image.fromarray(self.picture(shown)).save(self.folder / name)
            self.truth[name] = shown
            if tagged:
                self.tags[name] = sorted(shown)[self.random.integers(len(shown))]

    def picture(self, shown: set[str]) -> np.ndarray:
        pixels = self.random.integers(0, 90, (16, 16, 3))
        for channel, colour in enumerate(SHAPES[:3]):
            pixels[..., channel] += 120 * (colour in shown)
        pixels[::4] += 40 * ("striped" in shown)
        pixels[:2] += 40 * ("framed" in shown)
        return pixels.astype(np.uint8)

    def rename(self, old: str, new: str) -> None:
        (self.folder / old).rename(self.folder / new)
        for names in (self.truth, self.tags):
            names[new] = names.pop(old)

    def write(self, *, shuffled: bool = False) -> None:
        lines = [f"{file},{label},seen on a walk" for file, label in self.tags.items()]
        if shuffled:
            self.random.shuffle(lines)
        (self.folder / "tags.csv").write_text("\n".join(["photo,tags,comment", *lines]) + "\n")


@pytest.fixture
def photos(tmp_path, monkeypatch):
    folder = tmp_path / "photos"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    collection = Collection(folder)
    collection.add(40)
    collection.write()
    return collection


@pytest.fixture
def start(in_process):
    def run(*more):
        result = in_process("start", "tags.csv", "--backbone", "small-cnn", "--no-page", *more)
        assert result.returncode == 0, result.stderr
        return result.stdout

    return run


def session_of(path: Path | None = None) -> ReviewSession:
    opened = open_run(run_in(path))
    return ReviewSession(opened, read_queue(opened), open_answers(opened))


def answer(photos: Collection, count: int, said: dict[tuple[bytes, str], bool]) -> None:
    """Answer so many open suggestions by what is true; none may have been answered before."""
    session = session_of()
    for _ in range(count):
        number = session.next_open("probability")
        if number is None:
            return
        cell = session.suggestion(number)
        place = content(photos, cell.file), cell.label
        assert place not in said, f"{cell.file} {cell.label} was asked before"
        said[place] = cell.label in photos.truth[cell.file]
        reply = "yes" if said[place] else "no"
        session.record([Answer(cell.file, cell.label, reply, cell.version)], who="Ann")


def content(photos: Collection, file: str) -> bytes:
    return (photos.folder / file).read_bytes()


def require_truth(photos: Collection, said, in_process, out: str) -> None:
    """The table is written in its own form, with the tags of before and what people said, and nothing else."""
    for _ in range(2):
        result = in_process("labels", "--out", out)
        assert result.returncode == 0, result.stderr
    lines = Path("tags.csv").read_text().splitlines()
    for i, line in enumerate(lines[1:], start=1):
        file, _, rest = line.partition(",")
        tags = [tag for tag in [photos.tags[file]] if said.get((content(photos, file), tag), True)]
        more = [tag for (image, tag), yes in said.items() if yes and image == content(photos, file) and tag not in tags]
        lines[i] = ",".join([file, ";".join([*tags, *sorted(more)]), rest.partition(",")[2]])
    assert Path(out).read_text().splitlines() == lines


def test_three_days(photos, start, in_process):
    said: dict[tuple[bytes, str], bool] = {}

    assert "since the last time" not in start()
    answer(photos, 30, said)
    require_truth(photos, said, in_process, "day1.csv")
    assert "since the last time" not in start()  # the same command goes on
    assert Project(Path("tags.onepair")).newest_run().name == "1"
    assert Run("tags.onepair").path == Path("tags.onepair/runs/1")

    photos.add(20, things=SHAPES)
    for number in range(10):
        photos.rename(f"IMG_{number:03}.png", f"summer {number}.png")
    for name in ("IMG_011.png", "IMG_012.png"):
        (photos.folder / name).unlink()
        photos.tags.pop(name)
    photos.write(shuffled=True)
    second = start()
    assert "since the last time: 20 photos and 2 classes new, 2 photos gone, 10 photos renamed" in second
    assert f"{len(said)} answers of before count as known" in second
    answer(photos, 30, said)
    require_truth(photos, said, in_process, "day2.csv")

    for file in list(photos.tags)[5:15]:  # somebody else has tagged other things, and removed some rows
        photos.tags[file] = sorted(photos.truth[file])[-1]
    for file in list(photos.tags)[:3]:
        del photos.tags[file]
    photos.write()
    assert "3 photos gone" in start()
    answer(photos, 30, said)
    require_truth(photos, said, in_process, "day3.csv")

    command = ("labels", "tags.onepair/runs/1", "--format", "csv", "--out", "old.csv")  # of a table that is no more
    old = in_process(*command)
    assert old.returncode == 0, old.stderr
    labels = read_dataset("old.csv", images="missing").files
    assert len(labels) == 40


def test_three_days_in_a_workbook(photos, in_process):
    """With a title, dates, notes, formulas, another sheet, and files that are called by numbers, without an ending."""
    book = Workbook()
    page, day = book.active, datetime(2024, 5, 31)
    book.create_sheet("Other")["A1"] = "stays"
    said: dict[tuple[bytes, str], bool] = {}
    for number, file in enumerate(sorted(photos.tags)[:10]):
        photos.rename(file, f"{1000 + number}.png")

    def save() -> None:
        page.delete_rows(1, page.max_row)
        page.append(["Our photos"])
        page.append(["Nr", "Foto", "Schlagwörter", "Datum", "Notiz", "Länge"])
        for row, (file, label) in enumerate(photos.tags.items(), start=3):
            name = int(file[:4]) if file[0] == "1" else file
            page.append([row, name, label, day, "schön" if row % 3 else None, f"=LEN(C{row})"])
            page.cell(row, 4).number_format = "dd.mm.yyyy"
        book.save("fotos.xlsx")

    for today in range(3):
        if today == 1:
            photos.add(20, things=SHAPES)
        if today == 2:  # somebody else has tagged other things
            for file in list(photos.tags)[5:15]:
                photos.tags[file] = sorted(photos.truth[file])[-1]
        save()
        begun = in_process("start", "fotos.xlsx", "--backbone", "small-cnn", "--no-page")
        assert begun.returncode == 0, begun.stderr
        answer(photos, 15, said)
        written = in_process("labels", "--out", "done.xlsx")
        assert written.returncode == 0, written.stderr
        done = load_workbook("done.xlsx")
        assert done["Other"]["A1"].value == "stays"
        before = [[cell.value for cell in row] for row in page]
        for line, (file, label) in zip(before[2:], photos.tags.items(), strict=True):
            own = {name: yes for (image, name), yes in said.items() if image == content(photos, file)}
            kept = [label] if own.get(label, True) else []
            line[2] = ";".join([*kept, *sorted(name for name, yes in own.items() if yes and name != label)]) or None
        assert [[cell.value for cell in row] for row in done.active] == before
        assert {row[3].number_format for row in done.active.iter_rows(min_row=3)} == {"dd.mm.yyyy"}
    assert len(said) == 45


def test_an_edited_photo_and_a_renamed_class_keep_their_answers_and_photos_without_rows_come_in(photos, start):
    start()
    said: dict[tuple[bytes, str], bool] = {}
    answer(photos, 20, said)
    before = {(entry.file, entry.label): entry.answer for entry in session_of().store.entries()}
    edited = next(iter(before))[0]
    Image.fromarray(255 - np.asarray(Image.open(edited))).save(edited)
    photos.tags = {file: {"red": "rouge"}.get(label, label) for file, label in photos.tags.items()}
    photos.write()
    photos.add(3, tagged=False)
    output = start()
    assert "3 photos without a row in tags.csv: --new-photos takes them in" in output
    assert "1 photo edited (its answers stay), class red is now called rouge" in output
    expected = {(file, {"red": "rouge"}.get(label, label)): reply for (file, label), reply in before.items()}
    assert {(entry.file, entry.label): entry.answer for entry in session_of().store.entries()} == expected
    assert "3 photos new" in start("--new-photos")
    assert len(session_of().table) == 43
    assert "since the last time" not in start()  # which remembers the word
    assert len(session_of().table) == 43


def test_answers_of_two_machines_merge(photos, start, in_process, tmp_path, monkeypatch):
    start()
    shutil.copytree(photos.folder, tmp_path / "other")
    answer(photos, 6, {})
    (disputed, *_, last) = session_of().store.entries()
    assert in_process("answers", "export", tmp_path / "mine.csv").stdout == f"6 answers in {tmp_path / 'mine.csv'}\n"

    monkeypatch.chdir(tmp_path / "other")
    Path(last.file).rename("other name.png")
    Path("tags.csv").write_text(Path("tags.csv").read_text().replace(last.file, "other name.png"))
    start()
    other = {"yes": "no", "no": "yes"}[disputed.answer]
    session_of().record([Answer(disputed.file, disputed.label, other, 0)], who="Ben")
    result = in_process("answers", "import", tmp_path / "mine.csv")
    assert "5 answers taken in" in result.stdout
    assert f"differs: {disputed.file}, {disputed.label}: {other} by Ben here, {disputed.answer} by Ann" in result.stdout
    now = {(entry.file, entry.label): entry.answer for entry in session_of().store.entries()}
    assert now["other name.png", last.label] == last.answer
    assert now[disputed.file, disputed.label] == other  # the later one
    assert "0 answers taken in" in in_process("answers", "import", tmp_path / "mine.csv").stdout

    in_process("answers", "export", tmp_path / "theirs.csv")
    monkeypatch.chdir(photos.folder)
    assert "1 answer taken in" in in_process("answers", "import", tmp_path / "theirs.csv").stdout
    both = [
        (tmp_path / name).read_text()
        for name in ("a.csv", "theirs.csv")
        if in_process("answers", "export", tmp_path / "a.csv")
    ]
    assert {line.split(",", 1)[1] for line in both[0].splitlines()} == {
        line.split(",", 1)[1] for line in both[1].splitlines()
    }

    german = tmp_path / "german.csv"
    file = sorted(photos.tags)[20]
    german.write_bytes(f"File;Label;Answer;Notiz\r\n{file};red;Not sure;schön\r\n".encode("cp1252"))
    assert "1 answer taken in" in in_process("answers", "import", german).stdout
    assert in_process("answers", "export", "photos.sqlite").stderr.endswith("are written as .csv; name it so\n")
    strange = tmp_path / "strange.csv"
    for text, sentence in {
        "file,label,answer\nelse.jpg,red,yes\n": "not one of its images is in this project (else.jpg)",
        "file,label,answer\nIMG_001.png,red,perhaps\n": "line 2: the answer 'perhaps' is not yes, no or not sure",
        "file,label\n": "has no column answer",
        "file,label,answer,when\nIMG_001.png,red,no,soon\n": "line 2: 'soon' is no time",
    }.items():
        strange.write_text(text)
        result = in_process("answers", "import", strange)
        assert (result.returncode, result.stderr.count("\n")) == (2, 1)
        assert sentence in result.stderr
    assert len(session_of().store.entries()) == 8


def test_runs_of_before_are_taken_over_and_broken_projects_are_told_of(photos, start, in_process):
    arguments = ("--method", "opml-plus", "--mode", "linear", "--backbone", "small-cnn", "--out", "runs/old")
    assert in_process("train", "tags.csv", *arguments).returncode == 0
    assert in_process("find", "runs/old").returncode == 0
    session = session_of(Path("runs/old"))
    cell = session.suggestion(1)
    session.record([Answer(cell.file, cell.label, "no", 0)], who="Ann")
    output = start("--out", "runs/old")
    assert "1 answer of before counts" in output
    project = Path("runs/old.onepair")
    assert [entry[2:6] for entry in session_of(project).store.entries()] == [(cell.file, cell.label, "no", "Ann")]

    result = in_process("find")
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert "there is no project in this folder" in result.stderr
    (project / "project.json").write_text("{")
    result = in_process("start", "tags.csv", "--backbone", "small-cnn", "--no-page", "--out", "runs/old")
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert "project.json: is not JSON" in result.stderr
    (project / "project.json").unlink()
    start("--out", "runs/old")
    assert session_of(project).run.path.name == "2"
    assert len(session_of(project).store.entries()) == 1


def test_keywords_in_the_photos_themselves_keep_the_answers_of_those(photos, start, in_process):
    for file in list(photos.tags):
        Image.open(file).save(jpeg := Path(file).with_suffix(".jpg"), quality=95)
        Path(file).unlink()
        for names in (photos.truth, photos.tags):
            names[jpeg.name] = names.pop(file)
    photos.write()
    start()
    said: dict[tuple[bytes, str], bool] = {}
    answer(photos, 10, said)
    before = {(entry.file, entry.label): entry.answer for entry in session_of().store.entries()}
    result = in_process("labels", "--as", "in-place", "--out", "originals")
    assert result.stdout == "originals: what was before of 40 photos; 0 say all of it already\n", result.stderr
    assert {content(photos, f"originals/{file}") for file, _ in before} == {image for image, _ in said}
    assert {label for (file, label), reply in before.items() if reply == "yes"} <= {
        name for file, _ in before for name in read_keywords(Path(file)).names
    }
    old = next(iter(before))[0]
    photos.rename(old, "renamed.jpg")
    photos.write()
    assert "since the last time: 1 photo renamed" in start("--no-new-photos")
    now = {(entry.file, entry.label): entry.answer for entry in session_of().store.entries()}
    assert now == {({old: "renamed.jpg"}.get(file, file), label): reply for (file, label), reply in before.items()}


def test_photos_of_a_burst_are_in_one_fold_and_are_answered_at_once_if_somebody_says_so(photos, start):
    motif = np.kron(photos.random.integers(0, 256, (12, 12, 3)), np.ones((8, 8, 1)))
    for shot in range(3):  # a little brighter each time, and cut a little
        Image.fromarray(np.clip(motif[shot:, : 96 - shot] + 6 * shot, 0, 255).astype(np.uint8)).save(f"shot{shot}.png")
        photos.tags[f"shot{shot}.png"] = "red"
    photos.write()
    assert "3 photos look nearly the same, in 1 group (shot0.png, shot1.png, shot2.png): each is kept in one" in start()
    session = session_of()
    groups = dict(zip(session.table.files, session.table.group, strict=True))
    assert {groups.pop(f"shot{shot}.png") for shot in range(3)} == {"alike 1"}
    assert set(groups.values()) == {""}

    asked = next(
        cell for number in range(1, len(session) + 1) if (cell := session.suggestion(number)).file.startswith("shot")
    )
    app = Application(session, Pictures(session.table, cache=photos.folder / "cache"), name="Ann")
    site = Site(TestClient(app), session)
    page = site.get(f"/suggestion/{asked.number}")
    assert "Same answer for 2 photos that look nearly the same" in page.text
    said = {"file": asked.file, "label": asked.label, "seen": asked.version, "number": asked.number, "answer": "no"}
    shots = [f"shot{shot}.png" for shot in range(3)]
    for burst, expected in (("1", shots), ("", [asked.file])):
        site.post("/answer", order="probability", **said, **({"burst": burst} if burst else {}))
        answered = [file for file in shots if session.find(file, asked.label).answer == "no"]
        assert answered == expected
        undone = site.post("/undo")
        assert all(session.find(file, asked.label).answer is None for file in shots)
        assert site.number == asked.number
        assert "Same answer for 2 photos" in undone.text
        said["seen"] = session.suggestion(asked.number).version
    photos.add(1)
    photos.write()
    assert "in 1 group (shot0.png" in start()  # the next run, too


def test_near_names_are_asked_once_on_a_terminal(monkeypatch):
    asked = []
    monkeypatch.setattr("typer.confirm", lambda question, default: asked.append(question) or "motor" in question)
    names = ("motorbike", "motor-bike", "traffic light", "trafic light", "cat")
    assert ask_of_names(names, ()) == ([], ())  # no terminal here
    for stream in ("stdin", "stdout"):
        monkeypatch.setattr(f"sys.{stream}", type("Terminal", (), {"isatty": lambda self: True})())
    same, different = ask_of_names(names, ())
    assert same == ["motor-bike=motorbike"]
    assert different == (("traffic light", "trafic light"),)
    assert len(asked) == 2
    assert ask_of_names(("traffic light", "trafic light"), different) == ([], different)
    assert len(asked) == 2


def test_videos_and_raw_photos_are_named(tmp_path):
    (tmp_path / "a").mkdir()
    for name in ("a/clip.MOV", "b.nef", "c.jpg", ".hidden"):
        (tmp_path / name).touch()
    assert skipped_files(tmp_path) == (
        "left out: 1 video (clip.MOV) and 1 RAW photo (b.nef); photos are JPEG, PNG and the like"
    )


RESPELLED = {
    "another case": ({"red": "RED"}, (), "class red is now called RED"),
    "a plural": ({"red": "Reds"}, (), "class red is now called Reds"),
    "a word of the user": ({"red": "rojo"}, ("--same", "red=rojo"), "class red is now called rojo"),
    "into another class": ({}, ("--same", "red=green"), "class red is now called green"),
    "in the table, into another class": ({"red": "green"}, ("--same", "red=green"), "class red is now called green"),
}


@pytest.mark.parametrize("case", RESPELLED)
def test_answers_go_with_a_class_that_is_respelled(photos, start, in_process, case):
    new, words, told = RESPELLED[case]
    now = {"red": told.rpartition(" ")[2]}
    start()
    answer(photos, 25, {})
    before = session_of().store.entries()
    assert {entry.label for entry in before} == set(SHAPES[:3])
    photos.tags = {file: new.get(label, label) for file, label in photos.tags.items()}
    photos.tags[sorted(photos.tags)[0]] = "blue"  # so that other images have the class, whatever it is called
    photos.write()
    assert told in start(*words)
    session = session_of()
    assert "red" not in session.table.classes
    expected = {(entry.file, now.get(entry.label, entry.label)): entry.answer for entry in before}
    assert {(entry.file, entry.label): entry.answer for entry in session.store.entries()} == expected
    asked = [session.suggestion(number) for number in range(1, len(session) + 1)]
    assert not {(cell.file, cell.label) for cell in asked if cell.answer is None} & expected.keys()
    assert in_process("answers", "export", "all.csv").stdout == f"{len(expected)} answers in all.csv\n"
    assert {tuple(line.split(",")[:2]) for line in Path("all.csv").read_text().splitlines()[1:]} == expected.keys()
    assert "since the last time" not in start()  # what was said of classes is remembered


def test_answers_to_a_class_that_is_gone_are_kept_until_somebody_says_whose_they_are(photos, start):
    start()
    answer(photos, 25, {})
    answers = [entry for entry in session_of().store.entries() if entry.label == "red"]
    photos.tags = {file: "blue" if label == "red" else label for file, label in photos.tags.items()}
    photos.write()
    said = start()
    assert f"1 class gone ({len(answers)} answers to it are kept; --same red=NAME gives them to another class)" in said
    assert "class red is now called green" in start("--same", "red=green")
    assert "class" not in start("--same", "blau=blue").partition("since the last time")[2]  # both stay said
    assert Project(Path("tags.onepair")).record().reading["same"] == "red=green,blau=blue"
    now = {(entry.file, entry.label) for entry in session_of().store.entries()}
    assert {(entry.file, "green") for entry in answers} <= now
    start("--same", "red=red")  # is taken back
    assert Project(Path("tags.onepair")).record().reading["same"] == "blau=blue"


def test_a_project_that_is_moved_with_its_photos_goes_on_from_any_folder(
    photos, start, in_process, tmp_path, monkeypatch
):
    start()
    said: dict[tuple[bytes, str], bool] = {}
    answer(photos, 10, said)
    require_truth(photos, said, in_process, "before.csv")
    photos.folder = photos.folder.rename(tmp_path / "moved")
    monkeypatch.chdir(tmp_path)
    assert in_process("labels", "moved/tags.onepair", "--out", "after.csv").returncode == 0
    assert Path("after.csv").read_bytes() == Path("moved/before.csv").read_bytes()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    again = in_process("start", "../moved/tags.csv", "--no-page")  # the network is remembered, too
    assert again.returncode == 0, again.stderr
    assert "since the last time" not in again.stdout
    assert run_in(tmp_path / "moved" / "tags.onepair").name == "1"  # and nothing is computed anew

    monkeypatch.chdir(photos.folder)
    (photos.folder / "summer").mkdir()
    for number, name in enumerate(sorted(photos.tags)[:12]):  # the table names some as they are now, others as before
        photos.rename(name, f"summer/{name}")
        if number % 2:
            photos.tags[name] = photos.tags.pop(f"summer/{name}")
    photos.rename("IMG_039.png", "new name.png")
    photos.write()
    assert "since the last time: 13 photos renamed" in start()
    places = {Path(file).name: file for file in photos.truth}
    photos.tags = {places[Path(file).name]: label for file, label in photos.tags.items()}
    answer(photos, 10, said)


def test_a_copy_of_a_project_is_a_project_of_its_own(photos, start, in_process, tmp_path, monkeypatch):
    start()
    shutil.copytree(photos.folder, tmp_path / "copy")
    answer(photos, 5, {})
    monkeypatch.chdir(tmp_path / "copy")
    session = session_of()
    assert Path(session.run.config.data.source).is_relative_to(tmp_path / "copy")
    assert session.table.path(0).is_relative_to(tmp_path / "copy")
    assert not session.store.entries()


# Two at once


def run_together(*commands: tuple[object, ...], cwd: Path) -> list[tuple[int, str]]:
    """Exit codes of commands that begin at the same moment, and what they said."""
    program = [sys.executable, "-c", "from onepair.cli.main import main; main()"]
    pipe: dict = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "cwd": cwd}
    started = [subprocess.Popen([*program, *map(str, command)], **pipe) for command in commands]
    ended = [(process.communicate()[0], process.returncode) for process in started]
    assert not any("Traceback" in said for said, _ in ended), ended
    return [(code, said) for said, code in ended]


def test_of_two_starts_at_once_one_does_the_work(photos, start):
    command = ("start", "tags.csv", "--backbone", "small-cnn", "--no-page")
    for day in (1, 2):
        results = run_together(command, command, cwd=photos.folder)
        done = [said for code, said in results if code == 0]
        refused = [said.strip().splitlines()[-1] for code, said in results if code]
        assert len(done) + len(refused) == 2
        assert done
        assert all("tags.onepair is in use by process" in each for each in refused), refused
        assert Project(Path("tags.onepair")).newest_run().name == str(day)
        assert len(list(Path("tags.onepair/runs").glob("*-labels.parquet"))) == day
        photos.add(5)
        photos.write()


def test_of_answers_that_two_import_at_once_none_is_lost(photos, start, in_process):
    start()
    files = sorted(photos.tags)
    parts = {"a.csv": files[:25], "b.csv": files[15:]}
    for name, some in parts.items():
        lines = [
            f"{file},{label},{'yes' if label in photos.truth[file] else 'no'}" for file in some for label in SHAPES[:3]
        ]
        Path(name).write_text("\n".join(["file,label,answer", *lines]))
    results = run_together(*(("answers", "import", name) for name in parts), cwd=photos.folder)
    assert [code for code, _ in results] == [0, 0], results
    taken = [int(said.partition(" ")[0]) for _, said in results]
    assert sum(taken) == 120  # what both say is taken once
    entries = session_of().store.entries()
    assert len(entries) == 120
    assert all((entry.answer == "yes") == (entry.label in photos.truth[entry.file]) for entry in entries)
    assert in_process("answers", "import", "a.csv").stdout.startswith("0 answers taken in, 75 known")


def test_on_two_pages_of_one_project_nothing_is_lost_or_asked_twice(photos, start):
    start()
    pages = []
    for name in ("Ann", "Ben"):
        session = session_of()
        app = Application(session, Pictures(session.table, cache=photos.folder / "cache"), name=name)
        pages.append(Site(TestClient(app), session))
    said: dict[tuple[str, str], str] = {}
    for turn in range(12):
        site = pages[turn % 2]
        site.get("/")
        cell = site.session.suggestion(site.session.next_open("probability"))
        assert (cell.file, cell.label) not in said, f"turn {turn}"
        said[cell.file, cell.label] = reply = "yes" if cell.label in photos.truth[cell.file] else "no"
        site.answer(cell, reply)
        assert site.status == 200
    # Both look at one question: the second to answer is told, and what the first said stays.
    for site in pages:
        site.get("/")
    cell = pages[0].session.suggestion(pages[0].session.next_open("probability"))
    pages[0].answer(cell, "yes")
    assert "Ann" in pages[1].answer(cell, "no").text
    said[cell.file, cell.label] = "yes"
    assert {(entry.file, entry.label): entry.answer for entry in session_of().store.entries()} == said


# What goes wrong


def test_a_table_that_was_renamed_goes_on_with_its_project(photos, start, in_process):
    start()
    answer(photos, 5, {})
    Path("tags.csv").rename("tags of May.csv")
    told = in_process("start", "--no-page")
    assert (told.returncode, told.stderr.count("\n")) == (2, 1)
    assert "tags.csv: is gone" in told.stderr
    assert "--out tags.onepair" in told.stderr
    again = in_process("start", "tags of May.csv", "--no-page")
    assert again.returncode == 0, again.stderr
    assert "tags.onepair goes on with tags of May.csv" in again.stdout
    assert len(session_of().store.entries()) == 5
    assert in_process("labels", "--out", "done.csv").returncode == 0
    shutil.copy("tags of May.csv", "other.csv")
    assert (
        "to go on with the answers of another: --out tags.onepair"
        in in_process("start", "other.csv", "--no-page").stdout
    )


def test_what_cannot_be_read_is_named_by_its_row_in_the_users_table(photos, start):
    names = sorted(photos.tags)
    for name, content in zip(names[3:5], (b"no image", b""), strict=True):
        (photos.folder / name).write_bytes(content)
    photos.add(1, tagged=False)
    (photos.folder / "IMG_040.png").write_bytes(b"no image")
    start("--new-photos")
    skipped = (photos.folder / "tags.onepair" / "runs" / "1" / "skipped.csv").read_text().splitlines()
    where = [row[2] for row in csv.reader(skipped)][1:]
    assert where == ["tags.csv, line 5", "tags.csv, line 6", "photo without a row"]


def test_a_run_whose_labels_are_lost_is_made_anew(photos, start):
    start()
    said: dict[tuple[bytes, str], bool] = {}
    answer(photos, 5, said)
    Path("tags.onepair/runs/1-labels.parquet").unlink()
    assert "5 answers of before count" in start()
    answer(photos, 5, said)


def test_classes_that_took_each_others_names_are_told_of(photos, start):
    start()
    answer(photos, 10, {})
    before = session_of().store.entries()
    other = {"red": "green", "green": "red"}
    photos.tags = {file: other.get(label, label) for file, label in photos.tags.items()}
    photos.write()
    assert "classes green and red swapped (answers stay with the names)" in start()
    assert session_of().store.entries() == before
