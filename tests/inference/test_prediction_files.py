"""Predictions as files: what they hold, and that no crash or torn image spoils them."""

import csv
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace

import pyarrow.parquet as pq
import pytest
from PIL import Image

from onepair.data.images.image_files import image_files
from onepair.errors import UserError
from onepair.inference import prediction
from onepair.inference.export import export_onnx
from onepair.inference.prediction import WRITERS, load, write_predictions
from tests.saved import SCENES, save_model

COUNT = 40
TORN = (3, 16, 17, 18, 19, 20, 21, 22, 23, 39)  # one of a block, a whole block, the last


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a run, its ONNX file, another run and images."""
    folder = tmp_path_factory.mktemp("place")
    export_onnx(save_model(folder / "run"), folder / "model.onnx")
    save_model(folder / "other", calibration="isotonic")
    return folder


@pytest.fixture
def images(tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    for number, row in enumerate(SCENES.rows("test")[:COUNT]):
        Image.fromarray(SCENES.pixels[row]).save(folder / f"{number:02}.png")
    for number in TORN:
        (folder / f"{number:02}.png").write_bytes(b"torn")
    return folder


class StoppedError(Exception):
    """Stands for the end of the process."""


def write(model, images, out, *, stop=None, **options):
    def on_progress(done):
        if stop is not None and done >= stop:
            raise StoppedError

    return write_predictions(model, image_files(images), out, on_progress=on_progress, **options)


def files_in(folder):
    return sorted(file.name for file in folder.iterdir() if file.is_file())


@pytest.mark.parametrize("run", ["run", "other"])  # by lines, by curves
def test_of_many_classes_only_what_is_predicted_is_written(place, images, tmp_path, monkeypatch, run):
    model = load(place / run)
    every = {each.file: each for each in model.stream(images, report=[].append)}
    written = {}
    for case in ("asked for", "by default"):
        monkeypatch.setattr(prediction, "MANY_CLASSES", 1000 if case == "asked for" else 3)
        for suffix in WRITERS:
            only = True if case == "asked for" else None
            write(model, images, tmp_path / f"out{suffix}", predicted_only=only)
        written[case] = [(tmp_path / f"out{suffix}").read_bytes() for suffix in (".csv", ".jsonl")]
        assert written[case] == written["asked for"]
        lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
        assert any(len(line["labels"]) > 1 for line in lines)
        for line in lines:
            expected = every[line["file"]]
            assert tuple(line["labels"]) == tuple(line["probabilities"]) == expected.labels
            assert line["probabilities"] == pytest.approx(
                {name: expected.probabilities[name] for name in expected.labels}, abs=1e-6
            )
        with (tmp_path / "out.csv").open(newline="") as file:
            cells = list(csv.reader(file))
        assert cells[0] == ["file", "labels", "probabilities"]
        assert [(line["file"], ";".join(line["labels"])) for line in lines] == [(a, b) for a, b, _ in cells[1:]]
        assert [";".join(map(str, line["probabilities"].values())) for line in lines] == [c for *_, c in cells[1:]]
        table = pq.read_table(tmp_path / "out.parquet").to_pylist()
        assert [each["labels"] for each in table] == [line["labels"] for line in lines]
        assert [each["probabilities"] for each in table] == [
            pytest.approx(list(line["probabilities"].values())) for line in lines
        ]


def test_a_link_to_itself_is_left_out_and_listed(place, images, tmp_path):
    (images / "loop.png").symlink_to("loop.png")
    (images / "gone.png").symlink_to("nowhere.png")
    assert write(load(place / "model.onnx"), images, tmp_path / "out.csv").unreadable == len(TORN) + 2
    assert f"{images}/loop.png,cannot be read" in (tmp_path / "out.skipped.csv").read_text()


def test_a_file_holds_what_the_model_says(place, images, tmp_path, monkeypatch):
    model = load(place / "run")
    problems = []
    expected = list(model.stream(images, report=problems.append))
    monkeypatch.setattr(prediction, "ROW_GROUP", 12)
    for suffix in WRITERS:
        assert write(model, images, tmp_path / f"out{suffix}") == (COUNT - len(TORN), len(TORN))
    names = [each.file for each in expected]
    with (tmp_path / "out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.column_names == list(rows[0]) == ["file", "labels", *model.classes]
    assert names == [row["file"] for row in rows] == [each["file"] for each in lines] == table["file"].to_pylist()
    for place_, each in enumerate(expected):
        assert rows[place_]["labels"] == ";".join(each.labels)
        assert tuple(lines[place_]["labels"]) == each.labels == tuple(table["labels"][place_].as_py())
        assert lines[place_]["probabilities"] == pytest.approx(each.probabilities, abs=1e-6)
        for name, probability in lines[place_]["probabilities"].items():
            assert float(rows[place_][name]) == probability
            assert table[name][place_].as_py() == pytest.approx(probability, abs=1e-7)
    with (tmp_path / "out.skipped.csv").open(newline="") as file:
        skipped = list(csv.DictReader(file))
    assert [(row["file"], row["reason"]) for row in skipped] == [(each.where, each.what) for each in problems]
    assert files_in(tmp_path) == sorted([*(f"out{suffix}" for suffix in WRITERS), "out.skipped.csv"])


KILLED = """
import os, signal, sys
from pathlib import Path
from onepair.data.images.image_files import image_files
from onepair.inference.prediction import load
from onepair.inference.prediction import write_predictions

def kill(done):
    if done >= 16:
        os.kill(os.getpid(), signal.SIGKILL)

model, images, out = map(Path, sys.argv[1:])
write_predictions(load(model), image_files(images), out, on_progress=kill)
"""


@pytest.mark.parametrize("suffix", WRITERS)
def test_a_killed_process_leaves_nothing_that_looks_whole(place, images, tmp_path, suffix):
    model, out = place / "model.onnx", tmp_path / f"out{suffix}"
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(model), str(images), str(out)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    assert all(name.startswith(".out.") for name in files_in(tmp_path))
    assert write(load(model), images, out) == (COUNT - len(TORN), len(TORN))
    assert files_in(tmp_path) == [f"out{suffix}", "out.skipped.csv"][:: 1 if suffix < ".s" else -1]


def test_an_earlier_file_stays_until_there_is_a_new_one(place, images, tmp_path):
    model, out = load(place / "model.onnx"), tmp_path / "out.csv"
    write(model, images, out)
    before = out.read_bytes()
    with pytest.raises(StoppedError):
        write(model, images, out, stop=8)
    assert out.read_bytes() == before
    for number in TORN:
        (images / f"{number:02}.png").unlink()
    write(model, images, out)
    assert not (tmp_path / "out.skipped.csv").exists()  # which would be that of the earlier one


@pytest.mark.parametrize("suffix", WRITERS)
def test_names_that_are_no_text_and_names_with_commas(place, tmp_path, suffix):
    folder = tmp_path / "images"
    folder.mkdir()
    for name in (b"no-text-\xff.png", b'a,"b"\n.png', "é.png".encode()):
        Image.fromarray(SCENES.pixels[0]).save(folder / os.fsdecode(name))
    out = tmp_path / f"out{suffix}"
    assert write(load(place / "model.onnx"), folder, out).predicted == 3
    if suffix == ".csv":
        with out.open(newline="", encoding="utf-8", errors="surrogateescape") as file:
            assert [row["file"] for row in csv.DictReader(file)] == list(map(str, image_files(folder)))
    if suffix == ".parquet":
        assert pq.read_table(out)["file"].to_pylist()[0] == f'{folder}/a,"b"\n.png'


def test_nothing_is_written_where_there_is_nothing_to_predict(place, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="holds no images"):
        write(load(place / "model.onnx"), tmp_path / "empty", tmp_path / "out.csv")
    with pytest.raises(UserError, match=r"out\.txt: predictions are written as \.csv, \.jsonl, \.parquet"):
        write(load(place / "model.onnx"), tmp_path / "empty", tmp_path / "out.txt")
    assert files_in(tmp_path) == []


def test_a_class_named_as_a_column_has_a_column_of_its_own(place, images, tmp_path):
    model = load(place / "model.onnx")
    renamed = replace(model, classes=("file", "labels", *model.classes[2:]))
    for suffix in (".csv", ".parquet"):
        write(renamed, images, tmp_path / f"out{suffix}")
    expected = ["file", "labels", "file (class)", "labels (class)", *model.classes[2:]]
    assert pq.read_table(tmp_path / "out.parquet").column_names == expected
    assert (tmp_path / "out.csv").read_text().splitlines()[0].split(",") == expected
