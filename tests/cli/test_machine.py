"""What is on this machine: versions, runs, and the cache."""

import subprocess
import sys

import pytest


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    folder = tmp_path / "xdg" / "onepair"
    (folder / "features").mkdir(parents=True)
    (folder / "features" / "a.features").write_bytes(bytes(2_000_000))
    (folder / "contents.sqlite").write_bytes(bytes(1_000_000))
    (folder / "mine.txt").write_text("not of onepair")
    return folder


def test_doctor_names_versions_extras_and_networks(in_process, cache):
    shown = in_process("doctor").stdout
    for word in ("onepair", "torch 2", "review", "core", "3.0 MB in "):
        assert word in shown


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a GPU may be there")
@pytest.mark.parametrize("words", [["doctor"], ["runs", "list"], ["cache", "size"]], ids=" ".join)
def test_nothing_that_only_looks_imports_torch(words, tmp_path):
    code = "import sys; from onepair.cli.main import main\ntry: main()\nfinally: assert 'torch' not in sys.modules"
    found = subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PATH": "", "HOME": str(tmp_path), "PYTHONPATH": ":".join(sys.path)},
    )
    assert "AssertionError" not in found.stderr


def test_the_cache_shows_its_parts_and_gives_them_back(in_process, cache):
    shown = in_process("cache", "size").stdout
    assert "2.0 MB" in shown
    assert "3.0 MB in " in shown
    assert in_process("cache", "clean", "pictures").returncode == 2
    assert in_process("cache", "clean", "features", "--yes").stdout == "2.0 MB freed\n"
    assert sorted(each.name for each in cache.iterdir()) == ["contents.sqlite", "mine.txt"]
    assert in_process("cache", "clean", "-y").stdout == "1.0 MB freed\n"
    assert [each.name for each in cache.iterdir()] == ["mine.txt"]


def test_runs_are_listed_and_say_what_comes_next(in_process, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    empty = in_process("runs", "list")
    assert (empty.returncode, empty.stdout) == (2, "")
    assert "there are no runs here" in empty.stderr
    tiny = ("--preset", "digits", "--backbone", "small-cnn", "--method", "bce", "--epochs", 1, "--out", "runs/one")
    assert in_process("train", "digits", *tiny).returncode == 0
    shown = " ".join(in_process("runs", "list").stdout.split())
    assert "runs/one bce small-cnn finished" in shown
    assert in_process("runs", "status", "runs/one").stdout.endswith("next: onepair find runs/one\n")
    (tmp_path / "runs" / "one" / "results.json").unlink()
    assert "stopped, 1 epoch" in " ".join(in_process("runs", "list").stdout.split())
    assert "next: onepair train --config" in in_process("runs", "status", "runs/one").stdout
    written = in_process("report", "runs/one")
    assert written.returncode == 2
    assert "holds no finished run" in written.stderr
