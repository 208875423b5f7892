"""Which columns of a table are classes, and what is said of the others."""

import pytest
from PIL import Image

from onepair.data import DataError, read_dataset, table
from tests.data import layouts


def read(folder, *rows, **options):
    """The table, and what is reported of it."""
    found = []
    path = layouts.write(folder / "labels.csv", layouts.lines(*rows))
    return table.read(path, report=found.append, **options), found


def test_columns_of_other_values_are_left_out_with_a_remark(tmp_path):
    rows = ("id,file,width,dog,date,cat,comment", "7,a.jpg,640,1,2024-01-01,,blurred", "8,b.jpg,640,0,,yes,")
    result, found = read(tmp_path, *rows)
    assert result.classes == ("dog", "cat")
    assert all(problem.remark for problem in found)
    assert [str(problem) for problem in found][1:] == [
        "labels.csv, column width: holds values that are no labels, as '640' in line 2; left out",
        "labels.csv, column date: holds values that are no labels, as '2024-01-01' in line 2; left out",
        "labels.csv, column comment: holds values that are no labels, as 'blurred' in line 2; left out",
    ]
    assert table.read(tmp_path / "labels.csv").classes == ("dog", "cat")  # and nobody stops at it


def test_a_class_with_a_few_bad_cells_stays_a_class(tmp_path):
    result, found = read(tmp_path, "file,dog", "a,1", "b,0", "c,maybe", "d,")
    assert result.classes == ("dog",)
    assert [(problem.kind, problem.remark) for problem in found] == [("bad value", False)]


def test_the_index_that_pandas_writes_is_no_class(tmp_path):
    result, found = read(tmp_path, ",file,dog", "0,a,1", "1,b,0")
    assert result.classes == ("dog",)
    assert [str(problem) for problem in found] == ["labels.csv, column 1: has no name; left out"]


def test_columns_that_are_named_are_the_classes_whatever_they_hold(tmp_path):
    rows = ("file,dog,cat,count", "a,1,1,1", "b,0,0,1")
    result, found = read(tmp_path, *rows, label_columns=["cat", "dog"])
    assert (result.classes, found) == (("cat", "dog"), [])
    with pytest.raises(DataError, match=r"labels\.csv: has no column dgo; did you mean dog\?"):
        read(tmp_path, *rows, label_columns=["dgo"])


def test_a_named_column_of_names_is_a_list(tmp_path):
    rows = ("file,species,label", "a,fox;owl,1", "b,owl,0")
    result, _ = read(tmp_path, *rows, label_columns=["species"])
    assert result.classes == ("fox", "owl")
    assert read(tmp_path, *rows)[0].classes == ("label",)


def test_beside_a_list_other_columns_are_left_out_but_labels_are_ambiguous(tmp_path):
    result, found = read(tmp_path, "file,labels,date", "a,dog;cat,2024", "b,cat,2025")
    assert result.classes == ("cat", "dog")
    assert [str(problem) for problem in found] == ["labels.csv, column date: is not the list of labels; left out"]
    with pytest.raises(DataError, match="a list of labels and a column value of labels"):
        read(tmp_path, "file,label,value", "a,dog,1", "a,cat,0")
    assert read(tmp_path, "file,label,value", "a,dog,1", "b,cat,0", label_columns=["label"])[0].classes == (
        "cat",
        "dog",
    )


def test_options_for_tables_are_refused_elsewhere(tmp_path):
    with pytest.raises(DataError, match="is read as coco, which takes no label_columns"):
        read_dataset(layouts.coco_file(tmp_path), label_columns=["cat"])


# Rows


def test_rows_of_one_file_are_merged_where_each_has_one_label(tmp_path):
    result, found = read(
        tmp_path, "file,label,split", "a,dog,train", "b,cat,test", "a,cat,train", "a,dog,train", "b,,test"
    )
    assert result.files == ("a", "b")
    assert result.labels.tolist() == [[1, 1], [1, -1]]
    assert result.split.tolist() == ["train", "test"]
    (remark,) = found
    assert remark.remark
    assert str(remark) == "labels.csv: has several rows for 2 images; each has all the labels of its rows"


def test_a_file_that_is_listed_twice_is_a_problem(tmp_path):
    result, found = read(tmp_path, "file,cat", "a,1", "b,1", "a,0", "b,", "a,1")
    assert result.labels.tolist() == [[1], [1]]
    assert [str(problem) for problem in found] == [
        "labels.csv: lists a 3 times (lines 2, 4 and 6)",
        "labels.csv: lists b twice (lines 3 and 5)",
    ]
    _, found = read(tmp_path, "file,labels", "a,dog;cat", "a,bird")
    assert [str(problem) for problem in found] == ["labels.csv: lists a twice (lines 2 and 3)"]


def test_a_list_that_needs_quotes(tmp_path):
    result, found = read(tmp_path, "file,labels", "a,dog,cat", "b,dog")
    assert result.files == ("b",)
    assert str(found[0]) == "labels.csv, line 2: has 3 cells for 2 columns; a cell with ',' in it needs quotes"


def test_the_declared_separator_counts_as_a_line(tmp_path):
    _, found = read(tmp_path, "sep=;", "file;cat", "a;1", "b;ja")
    assert found[0].where == "labels.csv, line 4, column cat"


@pytest.mark.parametrize("written", ["sub\\a.png", " sub/a.png ", "./sub/a.png"])
def test_files_are_found_behind_backslashes_and_spaces(tmp_path, written):
    (tmp_path / "sub").mkdir()
    Image.new("RGB", (2, 2)).save(tmp_path / "sub" / "a.png")
    result, _ = read(tmp_path, "file,cat", f"{written},1", "gone\\b.png,1", f"{tmp_path / 'sub' / 'a.png'},1")
    assert result.path(0).is_file()
    assert result.files[1] == "gone\\b.png"
    assert result.path(2).is_file()


# What rows say beside their labels


def test_in_a_complete_row_what_is_not_listed_is_negative(tmp_path):
    result, found = read(tmp_path, "file,labels,complete", "a,dog;cat,", "b,dog,true", "c,,yes", "d,,0", "e,dog,often")
    assert result.labels.tolist() == [[1, 1], [0, 1], [0, 0], [-1, -1], [-1, 1]]
    assert [str(problem) for problem in found] == [
        "labels.csv, line 6, column complete: holds 'often'; a row is complete, true, or not, false"
    ]
    result, _ = read(tmp_path, "file,dog,cat,Complete", "a,1,,1", "b,1,,", "c,ja,,1", "d,0,0,")
    assert result.labels.tolist() == [[1, 0], [1, -1], [-1, 0], [0, 0]]


def test_a_split_may_be_complete(tmp_path):
    path = layouts.write(tmp_path / "labels.csv", layouts.lines("file,labels,split", "a,dog,train", "b,cat,val"))
    assert read_dataset(path, complete_splits=["validation"]).labels.tolist() == [[-1, 1], [1, 0]]
    assert read_dataset(path, complete_splits=["val", "train"]).labels.tolist() == [[0, 1], [1, 0]]
    for name in ("test", "holdout"):
        with pytest.raises(DataError, match=f"has no split {name} that could be complete; there are train, validation"):
            read_dataset(path, complete_splits=[name])


def test_what_was_asked_for(tmp_path):
    result, found = read(tmp_path, "file,asked,dog,cat", "a,dog;cat,1,0", "b,,1,", "c,bird;cat,0,1")
    assert result.asked.tolist() == [[True, True], [False, False], [False, True]]
    assert [str(problem) for problem in found] == [
        "labels.csv, line 4, column asked: holds 'bird;cat'; it lists names of classes"
    ]
    assert read(tmp_path, "file,dog", "a,1")[0].asked is None


def test_minus_one_is_unknown_with_a_remark_where_negative_may_be_meant(tmp_path):
    result, found = read(tmp_path, "file,dog,cat", "a,1,", "b,-1,1")
    assert result.labels.tolist() == [[1, -1], [-1, 1]]
    assert [(problem.where, problem.remark) for problem in found] == [("labels.csv, line 3, column dog", True)]
    assert read(tmp_path, "file,dog,cat", "a,1,0", "b,-1,1")[1] == []
