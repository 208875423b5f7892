import pytest

from onepair.data import DataError, read_dataset
from onepair.data.formats import image_folders as folders
from tests.data import layouts


def tree(folder, *files):
    for file in files:
        layouts.write(folder / file, "")
    return folder


def test_a_folder_per_class(tmp_path):
    table = folders.read_folders(
        tree(tmp_path, "dog/2.jpg", "dog/deep/1.PNG", "cat/1.jpg", "cat/notes.txt", ".cache/3.jpg")
    )
    assert table.classes == ("cat", "dog")
    assert table.files == ("cat/1.jpg", "dog/2.jpg", "dog/deep/1.PNG")
    assert table.labels.tolist() == [[1, -1], [-1, 1], [-1, 1]]
    assert set(table.split.tolist()) == {"train"}
    assert table.path(2).exists()


def test_splits_above_the_classes(tmp_path):
    files = ("train/dog/1.jpg", "train/cat/2.jpg", "val/dog/3.jpg", "test/bird/4.jpg")
    table = folders.read_folders(tree(tmp_path, *files), unlisted="negative")
    assert table.classes == ("bird", "cat", "dog")
    assert table.files == ("train/cat/2.jpg", "train/dog/1.jpg", "val/dog/3.jpg", "test/bird/4.jpg")
    assert table.split.tolist() == ["train", "train", "validation", "test"]
    assert table.labels.tolist() == [[0, 1, 0], [0, 0, 1], [0, 0, 1], [1, 0, 0]]


def test_a_class_may_be_named_like_a_split(tmp_path):
    table = folders.read_folders(tree(tmp_path, "train/1.jpg", "bus/1.jpg"))
    assert table.classes == ("bus", "train")


@pytest.mark.parametrize(
    ("files", "found"),
    [
        (("a/1.jpg", "b/1.jpg"), True),
        (("train/a/1.jpg", "test/b/1.jpg"), True),
        (("train/1.jpg", "val/2.jpg"), False),
        (("train2017/1.jpg", "val2017/2.jpg"), False),
        (("images/1.jpg",), False),
        (("a/1.txt", "b/1.txt"), False),
        (("a/1.jpg", "b/1.jpg", "labels.csv"), False),
        (("1.jpg", "2.jpg"), False),
        ((), False),
    ],
)
def test_detects_two_folders_of_images_without_labels_beside_them(tmp_path, files, found):
    assert folders.detect_folders(tree(tmp_path, *files)) == found


def test_other_layouts_come_first(tmp_path):
    tree(layouts.coco_2014(tmp_path), "train2014/1.jpg", "val2014/2.jpg")
    assert read_dataset(tmp_path).classes == ("dog", "cat")


def test_a_folder_with_a_table_in_it_gets_a_hint(tmp_path):
    tree(tmp_path, "images/1.jpg", "labels.csv")
    with pytest.raises(DataError, match=r"is a folder with labels\.csv; give the label file"):
        read_dataset(tmp_path)


def test_what_holds_no_folders_is_refused(tmp_path):
    for path in (tmp_path, tmp_path / "missing", tree(tmp_path, "1.jpg") / "1.jpg"):
        with pytest.raises(DataError, match="holds no folder with images"):
            folders.read_folders(path)


def test_beside_folders_of_classes_it_says_both_ways(tmp_path):
    tree(tmp_path, "a/1.jpg", "b/1.jpg", "notes.csv")
    with pytest.raises(DataError, match="give the label file, or say --format folders"):
        read_dataset(tmp_path)


@pytest.mark.parametrize("file", ["1.jpg", "deep/er/1.jpg", "train/1.jpg"])
def test_images_without_labels_get_a_hint(tmp_path, file):
    with pytest.raises(DataError, match=f"holds images and no labels; .* the lines file,labels and {file},dog;sofa"):
        read_dataset(tree(tmp_path, file))


@pytest.mark.parametrize(
    ("name", "said"), [("x.ods", "is a spreadsheet; save it as .xlsx or CSV"), ("x.pdf", "no file of labels")]
)
def test_files_that_hold_no_labels_get_a_hint(tmp_path, name, said):
    with pytest.raises(DataError, match=said):
        read_dataset(tree(tmp_path, name) / name)
