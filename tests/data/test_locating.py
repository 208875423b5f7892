from pathlib import Path

from onepair.data.locating import locate
from tests.data.layouts import write


def test_the_first_folder_with_the_names_as_they_are(tmp_path):
    write(tmp_path / "b" / "1.jpg", "")
    write(tmp_path / "c" / "1.jpg", "")
    names = ["gone.jpg", "1.jpg"]
    assert locate(names, [tmp_path / "a", tmp_path / "b", tmp_path / "c"]) == (tmp_path / "b", names)


def test_nothing_found_changes_nothing(tmp_path):
    assert locate(["x/1.jpg", "nul\0"], [tmp_path, Path()]) == (tmp_path, ["x/1.jpg", "nul\0"])


def test_longer_ends_of_a_name_come_before_shorter_ones(tmp_path):
    write(tmp_path / "1.jpg", "")
    write(tmp_path / "x" / "1.jpg", "")
    assert locate(["/far/away/x/1.jpg"], [tmp_path])[1] == ["x/1.jpg"]


def test_two_images_never_become_one(tmp_path):
    write(tmp_path / "1.jpg", "")
    write(tmp_path / "2.jpg", "")
    names = ["/far/x/1.jpg", "/far/y/1.jpg", "/far/y/2.jpg"]
    assert locate(names, [tmp_path])[1] == [*names[:2], "2.jpg"]


def test_a_url_that_is_none(tmp_path):
    assert locate(["http://[broken/1.jpg"], [tmp_path])[1] == ["http://[broken/1.jpg"]
