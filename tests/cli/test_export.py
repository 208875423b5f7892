"""`onepair export`, and `onepair predict` on what it writes, as a user runs them."""

import csv
import json
import subprocess
import sys

import pytest
from PIL import Image

from tests.cli.command import onepair as in_own_process
from tests.saved import SCENES, save_model

RULE = "labels by thresholds for best F1; onepair decide chooses others"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with run/, run/model.onnx, images/, and what the export printed in printed.txt."""
    place = tmp_path_factory.mktemp("cli")
    save_model(place / "run")
    (place / "images").mkdir()
    for row in SCENES.rows("test")[:12]:
        Image.fromarray(SCENES.pixels[row]).save(place / "images" / f"{row:03}.png")
    result = in_own_process("export", "run", cwd=place)
    assert (result.returncode, result.stderr) == (0, "")
    (place / "printed.txt").write_text(result.stdout)
    return place


@pytest.fixture
def onepair(folder, in_process, monkeypatch):
    """The command in that folder: its exit code, and what it printed to stderr."""
    monkeypatch.chdir(folder)

    def run(*arguments):
        code, _, errors = in_process(*arguments)
        return code, errors

    return run


def test_export_says_what_it_wrote(folder):
    printed = (folder / "printed.txt").read_text().splitlines()
    assert printed[0].startswith("run/model.onnx: 0.")
    assert printed[1:5] == [
        "  in   images: uint8 (batch, 32, 32, 3)",
        "  out  logits: float32 (batch, 10)",
        "  out  probabilities: float32 (batch, 10)",
        "  out  labels: bool (batch, 10)",
    ]
    assert float(printed[5].removeprefix("its logits differ from torch's by at most ")) < 1e-4
    assert printed[6:] == ["use it: onepair predict run/model.onnx images/"]


def test_run_and_file_predict_the_same(folder, onepair):
    for model, out in (("run", "run.jsonl"), ("run/model.onnx", "file.jsonl")):
        assert onepair("predict", model, "images", "--out", out) == (0, f"12 images predicted, in {out}\n{RULE}\n")
    run, file = (
        [json.loads(line) for line in (folder / name).read_text().splitlines()] for name in ("run.jsonl", "file.jsonl")
    )
    assert [(each["file"], each["labels"]) for each in file] == [(each["file"], each["labels"]) for each in run]
    assert any(each["labels"] for each in run)
    for one, other in zip(file, run, strict=True):
        assert one["probabilities"] == pytest.approx(other["probabilities"], abs=1e-4)


def test_unreadable_images_are_told_and_do_not_end_the_work(folder, in_process, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "torn").mkdir(exist_ok=True)
    for number in range(3):
        (folder / "torn" / f"{number}.png").write_bytes(b"torn")
    code, _, errors = in_process("predict", "run/model.onnx", "torn", "images", "--out", "mixed.csv")
    assert code == 0
    left_out, (predicted, rule, unreadable) = errors.splitlines()[:3], errors.splitlines()[3:]
    assert [line.split(": ")[:2] for line in left_out] == [["left out", f"torn/{number}.png"] for number in range(3)]
    assert (predicted, rule) == ("12 images predicted, in mixed.csv", RULE)
    assert unreadable == "3 images could not be read; they are in mixed.skipped.csv"
    with (folder / "mixed.skipped.csv").open() as file:
        assert [row["file"] for row in csv.DictReader(file)] == [f"torn/{number}.png" for number in range(3)]

    code, printed, errors = in_process("predict", "run/model.onnx", "torn/0.png", "images")
    assert code == 0
    assert printed == (folder / "mixed.csv").read_text()
    assert errors.splitlines()[-1] == "1 image could not be read"


def test_predict_with_a_file_does_not_import_torch(folder):
    code = (
        "import sys; from onepair.cli.main import main\n"
        "sys.argv = ['onepair', 'predict', 'run/model.onnx', 'images']\n"
        "try: main()\nexcept SystemExit as exit: print(exit.code, 'torch' in sys.modules, file=sys.stderr)"
    )
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    assert result.stderr.splitlines() == [RULE, "0 False"]
    rows = list(csv.DictReader(result.stdout.splitlines()))
    assert [row["file"] for row in rows] == [f"images/{row:03}.png" for row in SCENES.rows("test")[:12]]
    assert list(rows[0]) == ["file", "labels", *SCENES.classes]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("export", "images"), "images: holds no model"),
        (("export", "run", "--out", "a.bin"), "a.bin: the name of an ONNX file ends in .onnx"),
        (("predict", "gone.onnx", "images"), "gone.onnx: no such file"),
        (("predict", "run/model.onnx", "run"), "run: holds no images to predict"),
        (("predict", "run/model.onnx", "gone.png"), "gone.png: cannot be read, there is no such file"),
        (("predict", "run/model.onnx", "images", "--out", "gone/a.csv"), "cannot be written"),
    ],
)
def test_mistakes_end_in_a_sentence(onepair, arguments, sentence):
    code, errors = onepair(*arguments)
    assert code == 2
    assert errors.startswith("onepair: ")
    assert sentence in errors
    assert len(errors.splitlines()) == 1
