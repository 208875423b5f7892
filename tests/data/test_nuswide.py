import numpy as np
import pytest

from onepair.data import DataError
from onepair.data.formats import research
from tests.data import layouts


def test_published_arrays_keep_their_order(tmp_path):
    table = research.read_nuswide(layouts.nuswide_published(tmp_path))
    assert table.files == ("Flickr/b/2.jpg", "Flickr/a/1.jpg", "Flickr/c/3.jpg", "Flickr/d/4.jpg")
    assert table.split.tolist() == ["train", "train", "train", "test"]
    assert table.labels.tolist() == [[1, 0, 0], [0, 1, 1], [0, 0, 0], [0, 0, 1]]
    assert table.classes == ("concept_0", "concept_1", "concept_2")


@pytest.mark.parametrize("place", ["Concepts81.txt", "ConceptsList/Concepts81.txt"])
def test_published_arrays_take_the_names_of_concepts_that_are_there(tmp_path, place):
    layouts.nuswide_published(tmp_path)
    layouts.write(tmp_path / place, "sky\nsea\nsun\n")
    assert research.read_nuswide(tmp_path).classes == ("sky", "sea", "sun")
    layouts.write(tmp_path / place, "sky\nsea\n")
    with pytest.raises(DataError, match=r"2 concepts, but label arrays with \[3\] columns"):
        research.read_nuswide(tmp_path)


def test_official_lists_keep_their_order_and_their_backslashes_become_slashes(tmp_path):
    table = research.read_nuswide(layouts.nuswide_official(tmp_path))
    assert table.files == ("Flickr/zoo/0002_2.jpg", "Flickr/actor/0001_1.jpg", "Flickr/sea/0003_3.jpg")
    assert table.split.tolist() == ["train", "train", "test"]
    assert table.classes == ("sky", "airport")
    assert table.labels.tolist() == [[1, 1], [0, 1], [0, 1]]


def test_published_arrays_count_where_both_are_there(tmp_path):
    layouts.nuswide_official(tmp_path)
    layouts.write(tmp_path / "ConceptsList" / "Concepts81.txt", "a\nb\nc\n")
    assert len(research.read_nuswide(layouts.nuswide_published(tmp_path))) == 4


def test_detects_both_layouts(tmp_path):
    assert not research.detect_nuswide(tmp_path)
    (tmp_path / "a").mkdir()
    assert research.detect_nuswide(layouts.nuswide_published(tmp_path / "a"))
    assert research.detect_nuswide(layouts.nuswide_official(tmp_path / "b"))


def test_bad_values_of_arrays_name_row_and_column_and_become_unknown(tmp_path):
    layouts.nuswide_published(tmp_path)
    np.save(tmp_path / "formatted_train_labels.npy", [[1, 0, -1], [0, np.nan, 1], [0, 0, 2]])
    problems = []
    table = research.read_nuswide(tmp_path, report=problems.append)
    assert [str(problem) for problem in problems] == [
        "formatted_train_labels.npy, row 0, column 2: holds -1.0; a label in this file is 1 or 0",
        "formatted_train_labels.npy, row 1, column 1: holds nan; a label in this file is 1 or 0",
        "formatted_train_labels.npy, row 2, column 2: holds 2.0; a label in this file is 1 or 0",
    ]
    assert table.labels.tolist() == [[1, 0, -1], [0, -1, 1], [0, 0, -1], [0, 0, 1]]


def test_bad_values_of_lists_name_file_and_line_and_become_unknown(tmp_path):
    layouts.nuswide_official(tmp_path)
    layouts.write(tmp_path / "Groundtruth" / "TrainTestLabels" / "Labels_sky_Train.txt", "1\nyes\n")
    problems = []
    table = research.read_nuswide(tmp_path, report=problems.append)
    assert [str(each) for each in problems] == [
        "Labels_sky_Train.txt, line 2: holds 'yes'; a label in this file is 1 or 0"
    ]
    assert table.labels[:, 0].tolist() == [1, -1, 0]


class Explosive:
    def __reduce__(self):
        return pytest.fail, ("a pickle was opened",)


@pytest.mark.parametrize("name", ["images", "labels"])
def test_an_array_of_objects_is_refused_without_opening_it(tmp_path, name):
    layouts.nuswide_published(tmp_path)
    np.save(tmp_path / f"formatted_train_{name}.npy", np.array([Explosive()], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match="Python objects are not read"):
        research.read_nuswide(tmp_path)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("images", np.array([["a", "b", "c"]]), "expected the names of images"),
        ("images", np.array([1, 2, 3]), "expected the names of images"),
        ("images", np.array(["a"]), "has 3 rows for 1 image"),
        ("labels", np.zeros(3), "expected labels"),
        ("labels", np.zeros((3, 0)), "expected labels"),
        ("labels", np.array([["1"]] * 3), "expected labels"),
        ("labels", np.zeros((3, 2)), r"label arrays with \[2, 3\] columns"),
    ],
)
def test_arrays_of_another_shape_or_type_are_refused(tmp_path, name, array, message):
    layouts.nuswide_published(tmp_path)
    np.save(tmp_path / f"formatted_train_{name}.npy", array)
    with pytest.raises(DataError, match=message):
        research.read_nuswide(tmp_path)


def test_a_header_that_promises_more_than_the_file_has_is_refused(tmp_path):
    path = layouts.nuswide_published(tmp_path) / "formatted_val_labels.npy"
    path.write_bytes(path.read_bytes().replace(b"(1, 3), }" + b" " * 10, b"(10000000000, 3), }"))
    with pytest.raises(DataError, match="cannot be read"):
        research.read_nuswide(tmp_path)


def test_missing_and_short_files_are_named(tmp_path):
    layouts.nuswide_official(tmp_path)
    path = tmp_path / "Groundtruth" / "TrainTestLabels" / "Labels_airport_Test.txt"
    path.write_text("")
    with pytest.raises(DataError, match=r"Labels_airport_Test\.txt: has 0 lines for 1 image"):
        research.read_nuswide(tmp_path)
    path.unlink()
    with pytest.raises(DataError, match=r"Labels_airport_Test\.txt: there is no such file"):
        research.read_nuswide(tmp_path)
    (tmp_path / "ConceptsList" / "Concepts81.txt").unlink()
    with pytest.raises(DataError, match=r"no concepts in ConceptsList/Concepts81\.txt"):
        research.read_nuswide(tmp_path)
