"""Writing whole files or none; locks are tested where they are used, with the feature cache."""

import os
from pathlib import Path

import pytest

from onepair.files import write_atomically


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
