import pytest

from onepair.data import DataError
from onepair.data.formats import research
from tests.data import layouts

LABELS = "CUB_200_2011/attributes/image_attribute_labels.txt"


def test_rows_are_in_the_order_of_images_with_splits_mixed(tmp_path):
    table = research.read_cub(layouts.cub(tmp_path))
    assert table.files == ("images/001.Albatross/b.jpg", "images/001.Albatross/a.jpg", "images/002.Tern/c.jpg")
    assert table.split.tolist() == ["test", "train", "train"]
    assert table.classes == ("has_bill_shape::dagger", "has_size::small")
    assert table.root == tmp_path / "CUB_200_2011"


def test_labels_are_is_present_whatever_follows_and_in_any_order(tmp_path):
    path = layouts.cub(tmp_path) / LABELS
    assert research.read_cub(tmp_path).labels.tolist() == [[0, 1], [1, 0], [0, 0]]
    path.write_text("\n".join(reversed(path.read_text().split("\n"))))
    assert research.read_cub(tmp_path).labels.tolist() == [[0, 1], [1, 0], [0, 0]]


@pytest.mark.parametrize("place", ["CUB_200_2011", "CUB_200_2011/attributes"])
def test_attribute_names_may_lie_in_the_folder(tmp_path, place):
    layouts.cub(tmp_path)
    (tmp_path / "attributes.txt").rename(tmp_path / place / "attributes.txt")
    assert research.read_cub(tmp_path / "CUB_200_2011").classes[1] == "has_size::small"


def test_detects_the_folder_or_the_one_above(tmp_path):
    assert not research.detect_cub(tmp_path)
    layouts.cub(tmp_path)
    assert research.detect_cub(tmp_path)
    assert research.detect_cub(tmp_path / "CUB_200_2011")
    with pytest.raises(DataError, match=r"no images\.txt"):
        research.read_cub(tmp_path / "CUB_200_2011" / "attributes")


@pytest.mark.parametrize(
    ("old", "new", "problem", "labels"),
    [
        ("1 2 1 3", "1 2 2 3", "line 2: holds '2'; is_present is 1 or 0", [[0, -1], [1, 0], [0, 0]]),
        ("1 2 1 3", "1 2 1.0 3", "line 2: holds '1.0'; is_present is 1 or 0", [[0, -1], [1, 0], [0, 0]]),
        ("1 2 1 3 27.7", "1 2", "line 2: holds ''; is_present is 1 or 0", [[0, -1], [1, 0], [0, 0]]),
        ("3 1 0 1 0\n", "", ": has no line for 1 of 2 attributes of image 3", [[0, 1], [1, 0], [-1, 0]]),
        ("3 2 0 1 0\n", "3 2 0 1 0\n3 2 1\n", "line 7: gives attribute 2 of image 3 again", [[0, 1], [1, 0], [0, 0]]),
        (
            "3 2 0 1 0\n",
            "3 2 0 1 0\n4 2 1\n",
            "line 7: holds '4 2 1'; expected an image from 1 to 3 and an attribute from 1 to 2",
            [[0, 1], [1, 0], [0, 0]],
        ),
        (
            "3 2 0 1 0\n",
            "3 2 0 1 0\n3 -1 1\n",
            "line 7: holds '3 -1 1'; expected an image from 1 to 3 and an attribute from 1 to 2",
            [[0, 1], [1, 0], [0, 0]],
        ),
    ],
)
def test_problems_name_the_line(tmp_path, old, new, problem, labels):
    path = layouts.cub(tmp_path) / LABELS
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    problems = []
    table = research.read_cub(tmp_path, report=problems.append)
    assert [str(each).removeprefix("image_attribute_labels.txt").removeprefix(", ") for each in problems] == [problem]
    assert table.labels.tolist() == labels
    with pytest.raises(DataError, match=r"image_attribute_labels\.txt"):
        research.read_cub(tmp_path)


@pytest.mark.parametrize(
    ("instead", "problem"),
    [
        ("3 1 0 1 0", "gives attribute 1 of image 3 again"),
        ("0 2 0 1 0", "holds '0 2 0 1 0'"),
        ("3 0 0 1 0", "holds '3 0 0 1 0'"),
    ],
)
def test_the_right_number_of_lines_can_still_miss_a_cell(tmp_path, instead, problem):
    path = layouts.cub(tmp_path) / LABELS
    path.write_text(path.read_text().replace("3 2 0 1 0", instead))
    problems = []
    assert research.read_cub(tmp_path, report=problems.append).labels.tolist() == [[0, 1], [1, 0], [0, -1]]
    first, second = map(str, problems)
    assert first.startswith(f"image_attribute_labels.txt, line 6: {problem}")
    assert second == "image_attribute_labels.txt: has no line for 1 of 2 attributes of image 3"


def test_a_bad_split_is_a_problem(tmp_path):
    layouts.cub(tmp_path)
    layouts.write(tmp_path / "CUB_200_2011" / "train_test_split.txt", "1 0\n2 yes\n3 1\n")
    with pytest.raises(DataError, match=r"train_test_split\.txt, line 2: holds 'yes'"):
        research.read_cub(tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("images.txt", "1 a.jpg\n3 b.jpg\n", r"images\.txt, line 2: holds '3 b\.jpg'; expected the number 2"),
        ("images.txt", "1\n", r"images\.txt, line 1: holds '1'"),
        ("images.txt", "\n", r"images\.txt: is empty"),
        ("train_test_split.txt", "1 0\n2 1\n", "has 2 lines for 3 images"),
        ("attributes/attributes.txt", "x\n", r"attributes\.txt, line 1"),
    ],
)
def test_files_that_do_not_fit_together_are_refused(tmp_path, name, text, message):
    layouts.cub(tmp_path)
    layouts.write(tmp_path / "CUB_200_2011" / name, text)
    with pytest.raises(DataError, match=message):
        research.read_cub(tmp_path)


@pytest.mark.parametrize("name", ["attributes.txt", LABELS, "CUB_200_2011/train_test_split.txt"])
def test_a_missing_file_is_named(tmp_path, name):
    (layouts.cub(tmp_path) / name).unlink()
    with pytest.raises(DataError, match=f"{name.split('/')[-1]}: there is no such file"):
        research.read_cub(tmp_path)
