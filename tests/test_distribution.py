"""What is sent to PyPI: the same bytes from the same tree, and sources that are enough to build and to test."""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv", "__pycache__", ".*_cache", ".hypothesis", "build", "dist", "runs", "site"
)


def build(tree: Path, out: Path, *, kind: str, umask: int = 0o022) -> Path:
    """A distribution of the tree, by the tool that pyproject.toml names and without a network."""
    environment = {key: value for key, value in os.environ.items() if key != "SOURCE_DATE_EPOCH"}
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(out), "--target", kind]
    subprocess.run(command, check=True, cwd=tree, env=environment, capture_output=True, umask=umask)
    (made,) = out.iterdir()
    return made


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    return Path(shutil.copytree(ROOT, tmp_path_factory.mktemp("tree") / "onepair", ignore=LEFT_OUT))


@pytest.fixture(scope="module")
def source(tree, tmp_path_factory):
    return build(tree, tmp_path_factory.mktemp("sdist"), kind="sdist")


@pytest.fixture(scope="module")
def wheel(tree, tmp_path_factory):
    return build(tree, tmp_path_factory.mktemp("wheel"), kind="wheel")


def test_the_same_tree_gives_the_same_bytes_elsewhere_and_later(tree, source, wheel, tmp_path):
    other = Path(shutil.copytree(tree, tmp_path / "another name", copy_function=shutil.copy))  # with other times
    assert digest(build(other, tmp_path / "sdist", kind="sdist", umask=0o027)) == digest(source)
    assert digest(build(other, tmp_path / "wheel", kind="wheel", umask=0o027)) == digest(wheel)


def test_the_source_distribution_has_all_files_and_gives_the_same_wheel(tree, source, wheel, tmp_path):
    with tarfile.open(source) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    files = {path.relative_to(tree) for path in tree.rglob("*") if path.is_file()}
    assert {path.relative_to(unpacked) for path in unpacked.rglob("*") if path.is_file()} == files | {Path("PKG-INFO")}
    assert digest(build(unpacked, tmp_path / "wheel", kind="wheel")) == digest(wheel)


def test_the_wheel_has_the_package_and_nothing_else(tree, wheel):
    package = {path.relative_to(tree / "src").as_posix() for path in (tree / "src").rglob("*") if path.is_file()}
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert package <= names
    assert all(".dist-info/" in name for name in names - package)
