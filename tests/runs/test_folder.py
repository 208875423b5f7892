"""A run's folder: who may use it, and what is left when the disk refuses."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from onepair.errors import BusyError, RunError, WriteError
from onepair.files import locked
from onepair.runs.config import Config, FinetuneConfig, LinearConfig, MethodConfig
from onepair.runs.folder import Results, RunFolder

CONFIG = Config()
HOLD = """
import sys
from pathlib import Path
from onepair.files import locked
with locked(Path(sys.argv[1])):
    print(flush=True)
    sys.stdin.read()
"""


def files(path):
    return sorted(entry.name for entry in path.rglob("*"))


def test_a_new_folder_holds_the_configuration(tmp_path):
    folder = RunFolder(tmp_path / "a" / "b")
    with folder.opened(CONFIG):
        assert folder.config() == CONFIG
        assert not folder.finished
    with folder.opened(CONFIG):
        pass


def test_a_changed_configuration_is_refused_by_its_keys(tmp_path):
    folder = RunFolder(tmp_path / "run")
    with folder.opened(CONFIG):
        (folder.path / "linear-last.safetensors").touch()
    with pytest.raises(RunError, match=r"run: .*another configuration \(finetune\.epochs is 3, was 10\)"):
        folder.opened(Config(finetune=FinetuneConfig(epochs=3))).__enter__()
    many = Config(seed=1, linear=LinearConfig(2, 2), finetune=FinetuneConfig(3), method=MethodConfig("bce"))
    with pytest.raises(RunError, match=r"linear\.batch_size is 2, was 16; .* and 2 more"):
        folder.opened(many).__enter__()
    assert folder.config() == CONFIG


def test_a_run_that_never_began_holds_nothing_hostage(tmp_path):
    folder = RunFolder(tmp_path / "run")
    with folder.opened(CONFIG):
        folder.write_environment(data="a", weights="b", processes=1)
    other = Config(finetune=FinetuneConfig(epochs=3))
    with folder.opened(other):
        folder.write_environment(data="c", weights="d", processes=1)
    assert folder.config() == other
    assert folder.environment()["data"] == "c"


def test_a_run_is_put_aside_and_nothing_is_lost(tmp_path):
    folder = RunFolder(tmp_path / "run")
    assert folder.put_aside() is None
    for number in (1, 2):
        with folder.opened(CONFIG):
            (folder.path / "linear-last.safetensors").write_text(str(number))
        aside = folder.put_aside()
        assert aside == tmp_path / f"run-before-{number}"
        assert (aside / "linear-last.safetensors").read_text() == str(number)
        assert not folder.path.exists()


def test_files_of_strangers_are_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("two years of work")
    with pytest.raises(RunError, match="holds files but no run"):
        RunFolder(tmp_path).opened(CONFIG).__enter__()
    assert files(tmp_path) == ["thesis.txt"]


def test_hidden_leftovers_of_a_killed_start_do_not_block_the_next(tmp_path):
    (tmp_path / ".lock").touch()
    (tmp_path / ".config.toml-4711").write_text("epochs = ")
    with RunFolder(tmp_path).opened(CONFIG):
        pass


def test_a_configuration_of_an_earlier_version_is_named(tmp_path):
    (tmp_path / "config.toml").write_text("epochs = 3\n")
    with pytest.raises(RunError, match=r"config\.toml: there is no setting epochs; did you mean linear\.epochs"):
        RunFolder(tmp_path).opened(CONFIG).__enter__()


def test_a_damaged_configuration_is_named(tmp_path):
    (tmp_path / "config.toml").write_text("epochs = ")
    with pytest.raises(ValueError, match=r"config\.toml: is not TOML"):
        RunFolder(tmp_path).opened(CONFIG).__enter__()


@pytest.mark.parametrize("path", ["file", "file/run"])
def test_a_file_in_the_way(tmp_path, path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(WriteError, match=r"file.*: cannot be written \(Not a directory\)"):
        RunFolder(tmp_path / path).opened(CONFIG).__enter__()
    assert (tmp_path / "file").read_text() == "mine"


def test_a_read_only_disk(tmp_path, monkeypatch):
    def refuse(path, *_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr("pathlib.Path.mkdir", refuse)
    with pytest.raises(WriteError, match=r"run: cannot be written \(Read-only file system\)"):
        RunFolder(tmp_path / "run").opened(CONFIG).__enter__()


def no_space(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_at_the_start_leaves_no_configuration(tmp_path, monkeypatch):
    folder = RunFolder(tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", no_space)
        with pytest.raises(WriteError, match=r"config.toml: cannot be written \(No space left on device\)"):
            folder.opened(CONFIG).__enter__()
    assert files(folder.path) == [".lock"]
    with folder.opened(CONFIG):
        pass


def test_a_full_disk_later_leaves_the_files_as_they_were(tmp_path, monkeypatch):
    folder = RunFolder(tmp_path / "run")
    with folder.opened(CONFIG):
        folder.start_metrics([{"epoch": 1}])
    before = files(folder.path)
    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(WriteError, match="No space left"), folder.opened(CONFIG):
        folder.start_metrics([{"epoch": 1}, {"epoch": 2}])
    assert files(folder.path) == before
    assert folder.metrics() == [{"epoch": 1}]


def test_one_process_at_a_time(tmp_path):
    folder = RunFolder(tmp_path)
    with folder.opened(CONFIG):
        pass
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, tmp_path / ".lock"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        other.stdout.readline()
        with pytest.raises(BusyError, match=rf"{tmp_path}.*in use by process {other.pid}"):
            folder.opened(CONFIG).__enter__()
        other.stdin.close()
    with folder.opened(CONFIG):
        pass


def test_metrics_start_with_what_is_known_and_grow_by_lines(tmp_path):
    folder = RunFolder(tmp_path)
    folder.start_metrics([{"epoch": 1}])
    folder.add_metrics({"epoch": 2})
    assert folder.metrics() == [{"epoch": 1}, {"epoch": 2}]
    folder.start_metrics([])
    assert folder.metrics() == []


def test_scores_come_back(tmp_path):
    scores = np.arange(6, dtype=np.float32).reshape(2, 3)
    RunFolder(tmp_path).write_scores("test", scores)
    np.testing.assert_array_equal(RunFolder(tmp_path).scores("test"), scores)


def test_results_make_a_run_finished(tmp_path):
    folder = RunFolder(tmp_path)
    with pytest.raises(RunError, match="holds no finished run"):
        folder.results()
    results = Results(
        method="bce",
        best_epoch=2,
        selected_on="Äpfel",
        validation_map=0.5,
        test_class_ap={"Äpfel": 0.1, "Birnen": None},
    )
    folder.write_results(results)
    assert folder.finished
    assert folder.results() == results
    assert "test_map" not in json.loads((tmp_path / "results.json").read_text())


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is not JSON"),
        (b"\xff\xfe", "is not UTF-8 text"),
        (b"[" * 100_000, "is not JSON"),
        (b"[1]", "is damaged, it: input should be"),
        (b'{"method": "bce"}', "is damaged, selected_on: field required"),
        (
            b'{"method": "bce", "best_epoch": 1, "selected_on": "", "validation_map": "high"}',
            "is damaged, validation_map: input should be a valid number",
        ),
    ],
)
def test_damaged_results_are_a_sentence(tmp_path, content, sentence):
    (tmp_path / "results.json").write_bytes(content)
    with pytest.raises(RunError, match=r"results\.json: ") as caught:
        RunFolder(tmp_path).results()
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    "content", [b"", b"\x93NUMPY", b"\x93NUMPY\x01\x00\x10\x00{'descr': (((((  \n", b"no array at all"]
)
def test_damaged_scores_are_a_sentence(tmp_path, content):
    (tmp_path / "scores_test.npy").write_bytes(content)
    with pytest.raises(RunError, match=r"scores_test.npy: .*delete it to compute"):
        RunFolder(tmp_path).scores("test")


@pytest.mark.parametrize("scores", [np.full((2, 2), np.inf, np.float32), np.zeros(3, np.float32), np.array([["a"]])])
def test_scores_that_are_none_are_a_sentence(tmp_path, scores):
    np.save(tmp_path / "scores_test.npy", scores)
    with pytest.raises(RunError, match=r"scores_test.npy: holds (no finite scores|another kind of array)"):
        RunFolder(tmp_path).scores("test")
    assert RunFolder(tmp_path).scores("validation") is None


def test_json_that_others_could_not_read_is_not_written(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        RunFolder(tmp_path).write_json("results.json", {"test_map": float("nan")})
    assert files(tmp_path) == []


def test_other_data_or_weights_are_refused(tmp_path):
    folder = RunFolder(tmp_path)
    folder.write_environment(data="a", weights="b", processes=1)
    folder.write_environment(data="a", weights="b", processes=2)
    environment = json.loads((tmp_path / "environment.json").read_text())
    assert (environment["data"], environment["weights"], environment["processes"]) == ("a", "b", 2)
    assert {"onepair", "torch", "numpy"} <= environment["versions"].keys()
    for changed in ("data", "weights"):
        with pytest.raises(RunError, match=f"the {changed} are not those that the run began with"):
            folder.write_environment(**{"data": "a", "weights": "b", "processes": 1, changed: "c"})


def test_a_folder_is_put_aside_while_it_is_held(tmp_path, monkeypatch):
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    held, rename = [], Path.rename

    def spy(path, target):
        with pytest.raises(BusyError), locked(path / ".lock"):
            pass
        held.append(target)
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", spy)
    assert folder.put_aside() == held[0] == tmp_path / "run-before-1"
