"""Digests of files: those of their bytes, whatever was remembered."""

import hashlib
import os

import numpy as np
import pytest

from onepair.data.images import image_files as room
from onepair.data.images.image_files import digests_of
from onepair.errors import DataError

LONG_AGO = 10**18


@pytest.fixture
def files(tmp_path):
    (tmp_path / "files").mkdir()
    for number in range(5):
        file = tmp_path / "files" / f"{number}.jpg"
        file.write_bytes(bytes([number]) * 100)
        os.utime(file, ns=(LONG_AGO, LONG_AGO))
    return sorted((tmp_path / "files").iterdir())


def plainly(file):
    return hashlib.blake2b(file.read_bytes(), digest_size=16).digest()


@pytest.fixture
def read(monkeypatch):
    """Which files were read."""
    names = []
    digest = room._digest

    def noting(image, state, known):
        if known is None:
            names.append(image.name)
        return digest(image, state, known)

    monkeypatch.setattr(room, "_digest", noting)
    return names


def test_files_are_read_once(files, tmp_path, read, monkeypatch):
    monkeypatch.setattr(room, "_AT_ONCE", 2)
    for _ in range(2):
        assert list(digests_of(files, memory=tmp_path / "memory")) == list(map(plainly, files))
    assert sorted(read) == [file.name for file in files]


@pytest.mark.parametrize("how", ["size", "time"])
def test_changed_files_are_read_again(files, tmp_path, how):
    list(digests_of(files, memory=tmp_path / "memory"))
    files[2].write_bytes(b"x" * (101 if how == "size" else 100))
    later = LONG_AGO + (how == "time")
    os.utime(files[2], ns=(later, later))
    assert list(digests_of(files, memory=tmp_path / "memory")) == list(map(plainly, files))


def test_a_file_that_may_change_again_at_the_same_time_is_not_remembered(files, tmp_path):
    """Clocks of file systems are coarse: two changes of one moment leave one time."""
    files[0].write_bytes(b"a" * 100)
    now = files[0].stat().st_mtime_ns
    list(digests_of(files, memory=tmp_path / "memory"))
    files[0].write_bytes(b"b" * 100)
    os.utime(files[0], ns=(now, now))
    assert next(digests_of(files, memory=tmp_path / "memory")) == plainly(files[0])


def test_a_memory_that_cannot_be_used_is_done_without(files, tmp_path):
    (tmp_path / "torn").write_bytes(b"no database" * 1000)
    for memory in (tmp_path / "torn", tmp_path / "torn" / "below", tmp_path / "files"):
        assert list(digests_of(files, memory=memory)) == list(map(plainly, files))


def test_what_cannot_be_read_is_told_in_its_place(files, tmp_path):
    files[3].unlink()
    found = list(digests_of(files, memory=tmp_path / "memory"))
    assert isinstance(found[3], DataError)
    assert str(found[3]) == f"{files[3]}: No such file or directory"
    assert found[4] == plainly(files[4])


def test_pixels_are_told_apart_by_shape_too(tmp_path):
    flat, tall = np.zeros((2, 8, 3), np.uint8), np.zeros((8, 2, 3), np.uint8)
    first, second, third = digests_of([flat, tall, flat.copy()], memory=tmp_path / "memory")
    assert first == third != second
