"""Writing whole files or none, and locks that end with their process."""

import ast
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import onepair
from onepair.errors import BusyError, UserError, WriteError
from onepair.files import (
    cache_folder,
    locked,
    refuse_overwriting,
    replacing,
    signature,
    write_atomically,
    writing,
)
from onepair.remote import as_path

TAKE = """
import sys
from pathlib import Path
from onepair.files import locked
locked(Path(sys.argv[1])).__enter__()
"""
# Holds a lock while a forked child lives on until it is told to end: as the workers that read images.
HOLD_AND_FORK = """
import os, sys
from pathlib import Path
from onepair.files import locked
with locked(Path(sys.argv[1])):
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        sys.stdin.read()
        os._exit(0)
    os.wait()
"""


def test_replaces_the_content_and_leaves_nothing_else(tmp_path: Path) -> None:
    for content in (b"old", b"new"):
        write_atomically(tmp_path / "a.json", content)
        assert (tmp_path / "a.json").read_bytes() == content
    assert list(tmp_path.iterdir()) == [tmp_path / "a.json"]


def test_a_failure_keeps_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_atomically(tmp_path / "a.json", b"old")

    def full_disk(_: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="no space"):
        write_atomically(tmp_path / "a.json", b"new")
    assert (tmp_path / "a.json").read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [tmp_path / "a.json"]


def ended_process() -> int:
    """The number of a process that is no more."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_what_a_killed_writer_left_goes_with_the_next_write(tmp_path: Path) -> None:
    hardware = signature().partition("-")[0]
    gone, alive = f"{hardware}-{ended_process()}", f"{hardware}-{os.getppid()}"
    left = tmp_path / f".a.json-{gone}"
    others = [tmp_path / name for name in (f".a.json-{alive}", ".a.json-00000000-1", f".b.json-{gone}", ".a.json-old")]
    for file in (left, *others):
        file.write_text("half")
    write_atomically(tmp_path / "a.json", b"new")
    assert sorted(tmp_path.iterdir()) == sorted([*others, tmp_path / "a.json"])


def test_a_block_that_fails_replaces_nothing(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a.json", b"old")

    def fail() -> None:
        with replacing(tmp_path / "a.json") as file:
            file.write(b"ne")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert (tmp_path / "a.json").read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [tmp_path / "a.json"]


def test_a_refusal_is_told_once(tmp_path: Path) -> None:
    sentence = rf"^{tmp_path}/no/a.json: cannot be written \(No such file or directory\)$"
    with pytest.raises(WriteError, match=sentence), writing(tmp_path):
        write_atomically(tmp_path / "no" / "a.json", b"")


def test_no_output_goes_over_an_input(tmp_path: Path) -> None:
    table, link, hard = (tmp_path / name for name in ("labels.csv", "link.csv", "hard.csv"))
    table.write_text("file,cat\n")
    link.symlink_to(table)
    hard.hardlink_to(table)
    (tmp_path / "folder").mkdir()
    for output in (table, link, hard, tmp_path / "folder" / ".." / "labels.csv"):
        with pytest.raises(UserError, match=r"is what this is made from .* name another file"):
            refuse_overwriting(output, [tmp_path / "missing.npy", as_path("https://a.org/labels.csv"), table])
    refuse_overwriting(tmp_path / "new.csv", [table])
    refuse_overwriting(tmp_path / "folder", [table])


def test_no_home_is_told_in_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    with pytest.raises(UserError, match="set HOME or XDG_CACHE_HOME"):
        cache_folder()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "onepair"


def test_a_lock_is_held_once_and_given_back(tmp_path: Path) -> None:
    path = tmp_path / "run.lock"
    with locked(path), pytest.raises(BusyError, match=rf"run is in use by process {os.getpid()}"):
        locked(path).__enter__()
    with pytest.raises(KeyError), locked(path):
        raise KeyError
    with locked(path):
        pass


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_a_forked_child_that_outlives_its_killed_parent_does_not_hold_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "run.lock"
    command = [sys.executable, "-c", HOLD_AND_FORK, path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        with pytest.raises(BusyError, match=rf"run is in use by process {parent.pid}"):
            locked(path).__enter__()
        os.kill(parent.pid, signal.SIGKILL)
        assert parent.wait() == -signal.SIGKILL
        os.kill(child, 0)  # it lives
        with locked(path):
            assert path.read_text() == str(os.getpid())


def test_a_child_does_not_end_the_lock_of_its_parent(tmp_path: Path) -> None:
    path = tmp_path / "run.lock"
    with locked(path):
        child = os.fork() if hasattr(os, "fork") else 0
        if child == 0 and hasattr(os, "fork"):
            os._exit(0)
        if child:
            os.waitpid(child, 0)
        other = subprocess.run([sys.executable, "-c", TAKE, path], capture_output=True, text=True, check=False)
        assert "BusyError" in other.stderr


def test_nothing_needs_what_only_unix_has() -> None:
    """The package has to import on every system."""
    for file in Path(onepair.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {"fcntl", "pwd", "grp", "resource", "termios"} & {name.partition(".")[0] for name in names}, file


def test_a_system_whose_folders_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, *_: object) -> int:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "name", "nt")
    monkeypatch.setattr(os, "open", refuse)
    target = tmp_path / "a.json"
    write_atomically(target, b"new")
    monkeypatch.undo()
    assert target.read_bytes() == b"new"
