"""The images in folders: all of them, in one order, however many."""

import os
import tarfile
from pathlib import Path

import pytest

from onepair.data.images.decode import SUFFIXES, decode
from onepair.data.images.image_files import image_files
from onepair.data.images.tar import TarPath
from onepair.errors import DataError

pytestmark = pytest.mark.usefixtures("alone")

NAMES = ["b.png", "a.JPG", "a-b/1.png", "a/2.gif", "a/10.webp", "a/deep/er/3.tif", "z.jpeg", "line\nbreak.png", "é.bmp"]


@pytest.fixture
def tree(tmp_path):
    for name in [*NAMES, "notes.txt", "a/notes", "png", "jpg.txt"]:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    (tmp_path / os.fsdecode(b"no-text-\xff.png")).touch()
    (tmp_path / "folder.png").mkdir()
    return tmp_path


def plainly(folder: Path) -> list[Path]:
    """All at once."""
    return sorted(file for file in folder.rglob("*") if file.suffix.lower() in SUFFIXES and not file.is_dir())


def test_files_come_in_the_order_of_their_names(tree):
    assert len(plainly(tree)) == len(NAMES) + 1
    assert list(image_files(tree)) == plainly(tree)


def test_folders_are_read_only_when_it_is_their_turn(tree):
    files = image_files(tree)
    first = next(files)
    (tree / "a-b" / "0.png").touch()
    assert [first, *files] == plainly(tree)


def test_a_file_is_itself_whatever_it_is_called(tmp_path):
    assert list(image_files(tmp_path / "gone.txt")) == [tmp_path / "gone.txt"]


def test_a_tar_is_a_folder_and_what_is_in_it_a_file(tree):
    with tarfile.open(tree / "0.tar", "w") as archive:
        for name in ("b.png", "notes.txt", "a/2.gif"):
            archive.add(tree / name, name)
    assert [str(each) for each in image_files(tree / "0.tar")] == [f"{tree}/0.tar/b.png", f"{tree}/0.tar/a/2.gif"]
    (file,) = image_files(tree / "0.tar" / "a" / "2.gif")
    assert isinstance(file, TarPath)
    assert tree / "0.tar" not in list(image_files(tree))


def test_links_to_folders_are_not_followed(tree):
    (tree / "loop").symlink_to(tree)
    (tree / "link.png").symlink_to(tree / "b.png")
    assert tree / "link.png" in list(image_files(tree))
    assert len(list(image_files(tree))) == len(NAMES) + 2


def test_a_link_to_itself_is_one_image_that_cannot_be_read(tree):
    (tree / "itself.png").symlink_to(tree / "itself.png")
    (tree / "self").symlink_to(tree / "self")
    files = list(image_files(tree))
    assert len(files) == len(NAMES) + 2
    with pytest.raises(DataError, match=r"itself\.png: cannot be read as an image: Too many levels of symbolic links"):
        decode(tree / "itself.png")


def test_a_folder_without_images_has_a_sentence(tmp_path):
    (tmp_path / "notes.txt").touch()
    with pytest.raises(DataError, match="holds no images to predict"):
        list(image_files(tmp_path))
