from pathlib import Path

from onepair.data.tables.read_table import locate
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


def test_names_without_a_suffix_or_with_another_one(tmp_path):
    for name in ("1.JPG", "2.png", "deep/er/3.jpg", "4.txt"):
        write(tmp_path / name, "")
    assert locate(["1", "2.jpg", "3", "4"], [tmp_path])[1] == ["1.JPG", "2.png", "deep/er/3.jpg", "4"]


def test_in_folders_below_the_end_that_has_more_in_common_wins_and_a_tie_wins_nothing(tmp_path):
    for name in ("images/train/1.jpg", "images/val/1.jpg", "a/2.jpg", "b/2.jpg", "c/3.jpg", "c/3.png"):
        write(tmp_path / name, "")
    names = ["train/1.jpg", "2.jpg", "3.png"]
    assert locate(names, [tmp_path])[1] == ["images/train/1.jpg", "2.jpg", "c/3.png"]


def test_a_name_of_many_rows_is_one_image(tmp_path):
    write(tmp_path / "1.jpg", "")
    assert locate(["/far/1.jpg", "/far/1.jpg"], [tmp_path])[1] == ["1.jpg", "1.jpg"]


def test_names_that_are_right_beside_others_that_are_not(tmp_path):
    for name in ("1.jpg", "2.jpg"):
        write(tmp_path / name, "")
    assert locate(["1.jpg", "/far/2.jpg", "gone.jpg"], [tmp_path])[1] == ["1.jpg", "2.jpg", "gone.jpg"]


def test_too_many_files_are_not_looked_through(tmp_path, monkeypatch):
    write(tmp_path / "deep" / "1.jpg", "")
    monkeypatch.setattr("onepair.data.tables.read_table.MOST", 1)
    assert locate(["1.jpg"], [tmp_path])[1] == ["1.jpg"]


def test_an_accent_may_be_a_character_of_its_own(tmp_path):
    one, two = "caf\u00e9", "cafe\u0301"
    for name in (f"{one}/1.jpg", f"{two}/2.jpg", f"deep/{two} 3.png"):
        write(tmp_path / name, "")
    names = [f"{two}/1.jpg", f"/far/{one}/2.jpg", f"{one} 3.jpg"]
    assert locate(names, [tmp_path])[1] == [f"{one}/1.jpg", f"{two}/2.jpg", f"deep/{two} 3.png"]
