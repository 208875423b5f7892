"""Predictions as files: what they hold, and that no crash, change or torn image spoils them."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from PIL import Image

from onepair.data.images.walk import image_files
from onepair.errors import BusyError, UserError
from onepair.inference import prediction_files
from onepair.inference.export import export_onnx
from onepair.inference.prediction import load
from onepair.inference.prediction_files import FORMS, write_predictions
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


def write(model, images, out, *, stop=None, said=None):
    def on_progress(done):
        if stop is not None and done >= stop:
            raise StoppedError

    return write_predictions(
        model,
        lambda: image_files(images),
        out,
        say=(said if said is not None else []).append,
        on_progress=on_progress,
    )


@pytest.fixture(params=FORMS)
def suffix(request):
    return request.param


def files_in(folder):
    return sorted(file.name for file in folder.iterdir() if file.is_file())


@pytest.mark.parametrize("run", ["run", "other"])  # by lines, by curves
def test_of_many_classes_only_what_is_predicted_is_written(place, images, tmp_path, monkeypatch, run):
    model = load(place / run)
    every = {each.file: each for each in model.stream(images, report=[].append)}
    written = {}
    for case in ("asked for", "by default"):
        monkeypatch.setattr(prediction_files, "MANY_CLASSES", 1000 if case == "asked for" else 3)
        for suffix in FORMS:
            write_predictions(
                model,
                lambda: image_files(images),
                tmp_path / f"out{suffix}",
                predicted_alone=True if case == "asked for" else None,
            )
        written[case] = [(tmp_path / f"out{suffix}").read_bytes() for suffix in (".csv", ".jsonl", ".json")]
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


def test_a_file_holds_what_the_model_says(place, images, tmp_path):
    model = load(place / "run")
    problems = []
    expected = list(model.stream(images, report=problems.append))
    for suffix in FORMS:
        found = write(model, images, tmp_path / f"out{suffix}")
        assert found == (COUNT - len(TORN), len(TORN), 0, "torch")
    names = [each.file for each in expected]
    with (tmp_path / "out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert json.loads((tmp_path / "out.json").read_text()) == lines
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
    assert files_in(tmp_path) == sorted([*(f"out{suffix}" for suffix in FORMS), "out.skipped.csv"])


@pytest.mark.parametrize("model", ["run", "model.onnx"])
@pytest.mark.parametrize("stop", [1, 9, 25, COUNT])
def test_a_stopped_attempt_is_gone_on_with_byte_for_byte(place, images, tmp_path, monkeypatch, suffix, model, stop):
    monkeypatch.setattr(prediction_files, "SECONDS_PER_COMMIT", 0.0)
    model = load(place / model)
    whole, cut = tmp_path / "whole" / f"out{suffix}", tmp_path / "cut" / f"out{suffix}"
    for out in (whole, cut):
        out.parent.mkdir()
    write(model, images, whole)
    with pytest.raises(StoppedError):
        write(model, images, cut, stop=stop)
    assert not cut.exists()
    with (cut.parent / f"{cut.name}.part").open("a") as part:
        part.write("half a li")  # what a killed process had written after its last commit
    said = []
    found = write(model, images, cut, said=said)
    assert said == []
    assert found.before >= min(stop, 32) // 8 * 8
    assert (found.predicted, found.unreadable) == (COUNT - len(TORN), len(TORN))
    assert files_in(cut.parent) == files_in(whole.parent) == sorted([whole.name, "out.skipped.csv"])
    for name in files_in(whole.parent):
        assert (cut.parent / name).read_bytes() == (whole.parent / name).read_bytes()


KILLED = """
import sys
from pathlib import Path
from onepair.data.images.walk import image_files
from onepair.inference import prediction_files
from onepair.inference.prediction import load

prediction_files.SECONDS_PER_COMMIT = 0.0
def wait_to_be_killed(done):
    if done >= 16:
        print(done, flush=True)
        sys.stdin.read()
model, images, out = map(Path, sys.argv[1:])
prediction_files.write_predictions(load(model), lambda: image_files(images), out, on_progress=wait_to_be_killed)
"""


def test_a_killed_process_is_gone_on_with_byte_for_byte(place, images, tmp_path):
    model, out = place / "model.onnx", tmp_path / "out.csv"
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(model), str(images), str(out)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert int(process.stdout.readline()) >= 16
    with pytest.raises(BusyError, match=rf"out\.csv is in use by process {process.pid}"):
        write(load(model), images, out)
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()
    assert write(load(model), images, out).before == 16
    write(load(model), images, tmp_path / "whole.csv")
    assert out.read_bytes() == (tmp_path / "whole.csv").read_bytes()


@pytest.mark.parametrize("step", ["skipped", "part", "marker"])
def test_a_crash_while_files_are_put_in_place(place, images, tmp_path, monkeypatch, step):
    model, out = load(place / "model.onnx"), tmp_path / "out.csv"
    write(model, images, tmp_path / "whole.csv")
    replace, unlink = Path.replace, Path.unlink

    def failing_replace(self, target):
        if (step, target) in (("skipped", tmp_path / "out.skipped.csv"), ("part", out)):
            raise StoppedError
        return replace(self, target)

    def failing_unlink(self, missing_ok=False):
        if step == "marker" and self.suffix == ".progress" and self.exists():
            raise StoppedError
        return unlink(self, missing_ok=missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", failing_replace)
        patch.setattr(Path, "unlink", failing_unlink)
        with pytest.raises(StoppedError):
            write(model, images, out)
    assert write(model, images, out).before == COUNT
    for name in ("out", "whole"):
        assert (tmp_path / f"{name}.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()
        assert (tmp_path / f"{name}.skipped.csv").exists()
    assert len(files_in(tmp_path)) == 4


def add(folder):
    Image.new("RGB", (9, 9)).save(folder / "000.png")


def remove(folder):
    (folder / "01.png").unlink()


def edit(folder):
    Image.new("RGB", (9, 9)).save(folder / "01.png")


@pytest.mark.parametrize("change", [add, remove, edit])
def test_other_images_are_not_mixed(place, images, tmp_path, monkeypatch, change):
    monkeypatch.setattr(prediction_files, "SECONDS_PER_COMMIT", 0.0)
    model, out = load(place / "model.onnx"), tmp_path / "out.csv"
    with pytest.raises(StoppedError):
        write(model, images, out, stop=16)
    change(images)
    said = []
    assert write(model, images, out, said=said).before == 0
    assert said == [f"{out}.part: its images have changed since; starting anew"]
    write(model, images, tmp_path / "whole.csv")
    assert out.read_bytes() == (tmp_path / "whole.csv").read_bytes()


def test_other_models_are_not_mixed(place, images, tmp_path, monkeypatch):
    monkeypatch.setattr(prediction_files, "SECONDS_PER_COMMIT", 0.0)
    out = tmp_path / "out.csv"
    with pytest.raises(StoppedError):
        write(load(place / "run"), images, out, stop=16)
    said = []
    other = load(place / "other")
    assert write(other, images, out, said=said).before == 0
    assert said == [f"{out}.part: is of another model, or of other columns; starting anew"]
    write(other, images, tmp_path / "whole.csv")
    assert out.read_bytes() == (tmp_path / "whole.csv").read_bytes()


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
    with pytest.raises(UserError, match=r"out\.txt: predictions are written as \.csv, \.jsonl, \.json, \.parquet"):
        write(load(place / "model.onnx"), tmp_path / "empty", tmp_path / "out.txt")
    assert files_in(tmp_path) == []
