"""No output takes the place of what it is made from: every output option against every kind of input."""

import os

import numpy as np
import pytest
import typer

from onepair.cli.main import app
from onepair.models import create_backbone, save_weights
from onepair.review.answers import Store
from onepair.runs.project import Project, ProjectRecord
from tests.training.tiny import train_tiny, write_images

RUN, OTHER, PROJECT, TABLE = "labels.onepair/runs/1", "labels.onepair/runs/2", "labels.onepair", "photos/labels.csv"
NETWORK = ("--backbone", "small-cnn", "--weights", "net.safetensors")
OUTPUTS = {  # the command and the option, or none for an argument; the words around them; the suffix that they ask for
    "answers export out": (("--project", PROJECT), ".csv"),
    "audit --sheet": ((RUN,), ".csv"),
    "check --fix": ((TABLE,), ".csv"),
    "compare --out": ((RUN, OTHER), ".html"),
    "explain --out": ((RUN, "0"), ".png"),
    "export --out": ((RUN,), ".onnx"),
    "features --out": ((TABLE, *NETWORK), ".npy"),
    "find --out": ((RUN,), ".csv"),
    "labels --out": ((RUN,), ".csv"),
    "predict --out": ((RUN, "photos"), ".csv"),
    "report --out": ((RUN,), ".html"),
}
FORMS = {"same": ".csv", "csv": ".csv", "parquet": ".parquet", "coco": ".json", "label-studio": ".json"}
TRIED = {
    **OUTPUTS,
    **{f"labels --out as {form}": ((RUN, "--as", form), suffix) for form, suffix in FORMS.items()},
    "labels --out as fiftyone": ((RUN, "--as", "fiftyone"), ".json"),
}
FOLDERS = {f"{name} --out" for name in ("demo", "reproduce", "start", "train", "tune")}
READ = {"run", "runs", "model", "source", "folder", "--config", "--cache", "--answers", "--calibrate", "--project"}
INPUTS = {
    "table": TABLE,
    "image": "photos/03.png",
    "weights": "net.safetensors",
    "settings": f"{RUN}/config.toml",
    "model": f"{RUN}/model.safetensors",
    "answers": f"{PROJECT}/answers.sqlite",
    "project": f"{PROJECT}/project.json",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("outputs")
    (folder / "photos").mkdir()
    weights = folder / INPUTS["weights"]
    save_weights(weights, create_backbone("small-cnn", weights=None).network.state_dict())
    source = write_images(folder / "photos")
    for name in (RUN, OTHER):
        settings = (f"model.weights='{weights}'", "data.observe=given", f"seed={name[-1]}", "linear.epochs=1")
        train_tiny(source, *settings, out=folder / name, cache=folder / "cache")
    project = Project(folder / PROJECT)
    project.write(ProjectRecord(source=project.named(str(source)), run="1"))
    Store(project.answers)
    return folder


@pytest.fixture
def onepair(folder, in_process, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    return in_process


def written_by(commands, before=()):
    """Every option and argument of commands, and of families of them, that names what is written."""
    for name, command in commands.items():
        if hasattr(command, "commands"):
            yield from written_by(command.commands, (*before, name))
            continue
        for option in command.params:
            kind = getattr(option, "type_descriptor", None)
            if kind is not None and "Path" in str(kind.annotation) and option.opts[0] not in READ:
                yield " ".join((*before, name, option.opts[0]))


def test_every_output_is_tried():
    assert set(written_by(typer.main.get_command(app).commands)) == OUTPUTS.keys() | FOLDERS


@pytest.mark.parametrize("link", [os.link, os.symlink], ids=["hard link", "symbolic link"])
@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("name", TRIED)
def test_no_output_takes_the_place_of_an_input(name, kind, link, folder, onepair):
    words, suffix = TRIED[name]
    command = name.partition(" as ")[0].removesuffix(" out").split()
    if RUN not in words and PROJECT not in words and kind not in ("table", "image", "weights"):
        pytest.skip(f"{name} reads no run")
    if name == "check --fix" and kind == "weights":
        pytest.skip("check reads no weights")
    original = folder / INPUTS[kind]
    before, out = original.read_bytes(), folder / f"out{suffix}"
    link(original, out)
    option = [part for part in command if part.startswith("--")]
    try:
        result = onepair(*(part for part in command if part not in option), *words, *option, out.name)
        assert (result.returncode, result.stderr.count("\n")) == (2, 1), result.stderr
        assert "is what this is made from" in result.stderr
        assert original.read_bytes() == before
        assert out.samefile(original)
    finally:
        out.unlink()


@pytest.mark.parametrize("link", [os.link, os.symlink], ids=["hard link", "symbolic link"])
@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("form", ["xmp", "jpeg"])
def test_no_keywords_take_the_place_of_an_input(form, kind, link, folder, onepair, tmp_path):
    original = folder / INPUTS[kind]
    before = original.read_bytes()
    link(original, tmp_path / ("05.png.xmp" if form == "xmp" else "05.png"))
    result = onepair("labels", RUN, "--as", form, "--out", tmp_path)
    assert "Traceback" not in result.stderr
    assert original.read_bytes() == before


@pytest.mark.parametrize("name", ["find --out", "predict --out", "audit --sheet"])
def test_the_table_by_its_own_name(name, folder, onepair):
    command, option = name.split()
    result = onepair(command, *OUTPUTS[name][0], option, TABLE)
    assert result.returncode == 2
    assert result.stderr.startswith("onepair: photos/labels.csv: is what this is made from (")


def test_vectors_of_a_run_and_of_a_prediction(folder, onepair, tmp_path):
    vectors = tmp_path / "vectors.npy"
    np.save(vectors, np.random.default_rng(0).standard_normal((46, 8)).astype(np.float32))
    table = (folder / TABLE).read_text()
    (tmp_path / "labels.csv").write_text(table)
    run = tmp_path / "run"
    trained = onepair("train", tmp_path / "labels.csv", "--features", vectors, "--out", run)
    assert trained.returncode == 0, trained.stderr
    os.link(vectors, tmp_path / "out.csv")
    commands = ("find", run), ("predict", run, vectors), ("audit", run), ("labels", run), ("compare", run, run)
    for arguments in commands:
        option = "--sheet" if arguments[0] == "audit" else "--out"
        result = onepair(*arguments, option, tmp_path / "out.csv")
        assert result.returncode == 2
        assert "is what this is made from" in result.stderr
    fixed = onepair("check", tmp_path / "labels.csv", "--features", vectors, "--fix", tmp_path / "out.csv")
    assert "is what this is made from" in fixed.stderr


def test_answers_of_an_audit_are_an_input(folder, onepair):
    (folder / RUN / "audit").mkdir(exist_ok=True)
    answers = folder / RUN / "audit" / "answers.csv"
    answers.write_text("file,red\n03.png,1\n")
    result = onepair("find", RUN, "--out", answers)
    assert result.returncode == 2
    assert answers.read_text().startswith("file,red")


def test_a_folder_of_data_is_no_folder_for_a_run(folder, onepair):
    before = sorted(path.name for path in (folder / "photos").iterdir())
    for out in ("photos", TABLE):
        for command in ("train", "tune"):
            result = onepair(command, TABLE, "--backbone", "small-cnn", "--weights", "none", "--out", out)
            assert result.returncode == 2, result.stderr
    assert sorted(path.name for path in (folder / "photos").iterdir()) == before


def test_an_earlier_output_is_written_again(folder, onepair):
    for _ in range(2):
        result = onepair("audit", RUN, "--sheet", "sheet.csv", "--images", "2")
        assert result.returncode == 0, result.stderr
