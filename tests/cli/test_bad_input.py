"""What once was a traceback, a hang or a flood of memory, and is a sentence. `tests/campaigns` looks for more."""

import json
import os
import shutil

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from PIL import ImageFile

from onepair.data import text_files as sources
from tests.data.bombs import BOMBS
from tests.training.tiny import SETTINGS, train_tiny, write_images


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sound")
    (folder / "images").mkdir()
    source = write_images(folder / "images")
    train_tiny(source, out=folder / "run", cache=folder / "cache")
    return folder


@pytest.fixture
def place(sound, tmp_path, monkeypatch):
    """A copy of the run, to spoil, beside the images."""
    shutil.copytree(sound / "run", tmp_path / "run")
    (tmp_path / "images").symlink_to(sound / "images")
    (tmp_path / "text.txt").write_text("no weights\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(result):
    """The sentence that a command ended with."""
    assert result.returncode == 2, result
    assert "Traceback" not in result.stderr
    return " ".join(result.stderr.replace("│", " ").split())


WORDS = {
    "features images/labels.csv --backbone small-cnn --cache text.txt": "text.txt",
    "features images/labels.csv --backbone resnet10t --weights text.txt --cache cache": "holds no readable weights",
    "features images/labels.csv --backbone small-cnn --image-size -5": "greater than or equal to 1",
    "features images/labels.csv --backbone small-cnn --image-size 1000000000 --cache cache": "from 1 to 4,096 pixels",
    "find run --folds 1000000000 --workers 0": "cannot be cut into 1000000000 folds",
    f"predict run {'x' * 5000}": "File name too long",
    f"evaluate {'x' * 5000}": "File name too long",
    f"explain run {'x' * 5000}": "File name too long",
}


@pytest.mark.parametrize("words", WORDS)
def test_words_that_make_no_sense(place, in_process, words):
    assert WORDS[words] in refused(in_process(*words.split()))


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b.png"])
@pytest.mark.parametrize("command", ["check {}", "check {} --decode", "features {} --backbone small-cnn --cache cache"])
def test_names_that_no_file_system_takes(place, in_process, command, name):
    """They are files that are missing: left out, and named."""
    (place / "labels.csv").write_text(f"file,split,cat,dog\n{name},train,1,0\n", "utf-8")
    result = in_process(*command.format("labels.csv").split())
    assert result.returncode in (0, 1, 2)
    assert name[:50] in " ".join(result.stdout.split()) + result.stderr


def change(path, **changes):
    stored = json.loads(path.read_text())
    path.write_text(json.dumps({key: value for key, value in {**stored, **changes}.items() if value is not ...}))


SPOILED = {
    "evaluate": {
        "a shape": lambda run: np.save(run / "scores_test.npy", np.zeros((3, 4), np.float32)),
        "infinities": lambda run: np.save(run / "scores_test.npy", np.full((9, 4), np.inf, np.float32)),
        "objects": lambda run: np.save(run / "scores_test.npy", np.array([[{}] * 4] * 9)),
        "classes": lambda run: change(run / "model.json", classes=...),
        "other classes": lambda run: change(run / "model.json", classes=["red"]),
        "preprocessing": lambda run: change(run / "model.json", preprocessing=7),
        "decisions": lambda run: change(run / "model.json", decisions={"thresholds": "high"}),
        "results": lambda run: change(run / "results.json", selected_on=...),
        "a folder": lambda run: ((run / "results.json").unlink(), (run / "results.json").mkdir()),
    },
    "decide": {
        "truncated": lambda run: os.truncate(run / "scores_validation.npy", 90),
        "a header": lambda run: (run / "scores_validation.npy").write_bytes(b"\x93NUMPY\x01\x00\x08\x00{'descr'"),
        "infinities": lambda run: np.save(run / "scores_validation.npy", np.full((8, 4), np.nan, np.float32)),
    },
    "compare": {
        "results": lambda run: change(run / "results.json", validation_map="high"),
        "no results": lambda run: change(run / "results.json", validation_map=...),
    },
}


@pytest.mark.parametrize(("command", "what"), [(command, what) for command, each in SPOILED.items() for what in each])
def test_a_run_whose_files_were_spoiled(sound, place, in_process, command, what):
    SPOILED[command][what](place / "run")
    others = [sound / "run"] if command == "compare" else []
    assert "run" in refused(in_process(command, "run", *others))


def test_a_split_without_rows(place, in_process):
    (place / "labels.csv").write_text("file,split,red,green\nimages/00.png,train,1,0\n")
    assert "has no test images" in refused(in_process("evaluate", "run", "--data", "labels.csv"))


def test_a_label_file_that_is_too_large_is_not_read(place, in_process):
    (place / "labels.csv").touch()
    os.truncate(place / "labels.csv", 1 << 30)  # which takes no room on the disk
    assert "is larger than 1,000 MB" in refused(in_process("check", "labels.csv"))


TRAIN = " ".join(f"--set {setting}" for setting in SETTINGS)


@pytest.mark.parametrize(
    "words",
    [
        "check hostile/labels.csv --decode",
        "features hostile/labels.csv --backbone small-cnn --image-size 16 --cache cache --threads 0",
        f"train hostile/labels.csv {TRAIN} --cache cache --workers 0 --out new",
        f"train hostile/labels.csv {TRAIN} --mode finetune --cache cache --workers 0 --out new",
        "predict run hostile --out out.csv",
    ],
    ids=["check", "features", "train linear", "train finetune", "predict"],
)
@pytest.mark.filterwarnings("ignore:Image size")
def test_no_command_decodes_an_image_beyond_the_limit(sound, place, in_process, monkeypatch, words):
    shutil.copytree(sound / "images", place / "hostile")
    (place / "hostile" / "00.png").write_bytes(BOMBS["png"](60_000, 60_000))
    load, decoded = ImageFile.ImageFile.load, []
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda image: (decoded.append(image.size), load(image))[1])
    result = in_process(*words.split())
    assert (60_000, 60_000) not in decoded
    assert decoded
    assert result.returncode in (0, 1, 2)
    assert "00.png" in result.stdout + result.stderr
    assert "Traceback" not in result.stderr


TABLES = {
    "wide.csv": lambda rows: "file,cat\n" + "".join(f"{row}.png,1\n" for row in range(rows)),
    "lists.csv": lambda rows: "file,labels\n" + "".join(f"{row}.png,cat\n" for row in range(rows)),
    "old.csv": lambda rows: "file,cat\r" + "".join(f"{row}.png,1\r" for row in range(rows)),
    "lists.jsonl": lambda rows: "".join(f'{{"file": "{row}.png", "labels": ["cat"]}}\n' for row in range(rows)),
}


@pytest.mark.parametrize("name", [*TABLES, "wide.parquet", "lists.parquet"])
def test_a_table_of_too_many_rows_is_not_taken_apart(tmp_path, in_process, monkeypatch, name):
    """A table of 30 million rows took more memory than there was, after many minutes."""
    monkeypatch.setattr(sources, "MOST_ROWS", 100)
    file = tmp_path / name
    if file.suffix == ".parquet":
        names = pyarrow.array([f"{row}.png" for row in range(102)])
        labels = [["cat"]] * 102 if name.startswith("lists") else [1] * 102
        column = "labels" if name.startswith("lists") else "cat"
        pyarrow.parquet.write_table(pyarrow.table({"file": names, column: labels}), file)
    else:
        file.write_text(TABLES[name](102), newline="")
    said = refused(in_process("check", str(file)))
    assert f"{name}: has 10" in said
    assert "a table may have 100; cut it into several" in said


def test_a_small_file_may_claim_many_rows(tmp_path, in_process):
    """The names of 11 million rows in a few hundred kilobytes."""
    names = pyarrow.DictionaryArray.from_arrays(np.zeros(11_000_000, np.int8), ["a.png"])
    pyarrow.parquet.write_table(pyarrow.table({"file": names, "cat": names.indices}), tmp_path / "labels.parquet")
    assert (tmp_path / "labels.parquet").stat().st_size < 100_000
    assert "has 11,000,000 rows" in refused(in_process("check", str(tmp_path / "labels.parquet")))


@pytest.mark.parametrize("options", [[], ["--json"], ["--fix", "clean.csv"]], ids=["text", "json", "fix"])
def test_names_that_are_no_text_are_refused(place, in_process, options):
    (place / "odd.jsonl").write_text('{"file": "images/00.png", "labels": ["red \\ud800"]}\n')
    assert "red \\ud800' is not UTF-8; rename it" in refused(in_process("check", "odd.jsonl", *options))
