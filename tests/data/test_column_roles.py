"""Which columns of a table are classes, and what is said of the others."""

from pathlib import Path

import pytest
from PIL import Image

from onepair.data import DataError, read_dataset
from onepair.data.tables import read_table as table
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


def test_beside_a_list_other_columns_are_left_out(tmp_path):
    result, found = read(tmp_path, "file,labels,date,outside", "a,dog;cat,2024,1", "b,cat,2025,0")
    assert result.classes == ("cat", "dog")
    assert [str(problem) for problem in found] == [
        "labels.csv, column date: is not the list of labels; left out",
        "labels.csv, column outside: holds labels beside the list of them; left out; --label-columns names those to "
        "take instead",
    ]


def test_a_column_that_says_different_things_of_one_image_is_not_left_out_in_silence(tmp_path):
    rows = ("file,label,seen", "a,dog,1", "a,cat,0")
    with pytest.raises(DataError, match="a list of labels and a column seen of labels"):
        read(tmp_path, *rows)
    assert read(tmp_path, *rows, label_columns=["label"])[0].labels.tolist() == [[1, 1]]


def test_a_value_says_whether_the_label_of_its_row_is_there(tmp_path):
    rows = ("a,dog,1", "a,cat,0", "b,cat,", "b,dog,1", "b,dog,1")
    for header in ("file,label,value", "ImageID,LabelName,Confidence"):
        result, _ = read(tmp_path, header, *rows)
        assert result.classes == ("cat", "dog")
        assert result.labels.tolist() == [[0, 1], [-1, 1]]
    result, found = read(tmp_path, "file,labels,confidence", "a,dog;cat,1", "b,cat,0")
    assert result.labels.tolist() == [[1, 1], [1, -1]]
    assert [str(each) for each in found] == [
        "labels.csv, column confidence: says nothing of rows with several labels; left out"
    ]


@pytest.mark.parametrize(
    "rows",
    [
        ("file,label,value", "a,dog,0", "a,cat,1", "a,dog,1", "a,dog,0", "b,dog,1"),
        ("file,labels,negatives", "a,cat;dog,dog", "b,dog,"),
    ],
)
@pytest.mark.parametrize("unlisted", ["unknown", "negative"])
def test_a_label_that_is_said_to_be_there_and_not_to_be_there_is_unknown(tmp_path, rows, unlisted):
    result, found = read(tmp_path, *rows, unlisted=unlisted)
    assert result.labels.tolist() == [[1, -1], [-1 if unlisted == "unknown" else 0, 1]]
    assert [str(each) for each in found if not each.remark] == [
        "labels.csv, line 2: says both that dog is there and that it is not"
    ]


@pytest.mark.parametrize("name", ["label", "class", "labels"])
def test_numbers_of_classes_are_their_names(tmp_path, name):
    result, found = read(tmp_path, f"file,{name}", *(f"{row},{row % 3}" for row in range(30)))
    assert result.classes == ("0", "1", "2")
    assert result.labels.tolist()[:3] == [[1, -1, -1], [-1, 1, -1], [-1, -1, 1]]
    assert not found


def test_a_typing_error_among_ones_and_zeros_makes_no_classes_of_them(tmp_path):
    result, found = read(tmp_path, "file,label", *(f"{row},{row % 2}" for row in range(30)), "30,2")
    assert result.classes == ("label",)
    assert [each.kind for each in found if not each.remark] == ["bad value"]


@pytest.mark.parametrize("words", [("train", "eval", "test"), ("Training", "Validierung", "Test")])
def test_a_column_of_splits_with_a_word_for_none_is_one(tmp_path, words):
    rows = [f"{row},{words[row % 3]},{row % 2}" for row in range(9)]
    result, found = read(tmp_path, "file,subset,dog", *rows)
    assert result.split.tolist() == ["train", "test"] * 3
    assert [each.kind for each in found if not each.remark] == ["bad split"] * 3


def test_a_class_that_is_called_like_an_image(tmp_path):
    result, _ = read(tmp_path, "file,logo.png,dog", "a,1,", "b,0,1")
    assert result.classes == ("logo.png", "dog")


def test_a_file_has_one_name_however_it_is_written(tmp_path):
    (tmp_path / "img").mkdir()
    Image.new("RGB", (4, 4)).save(tmp_path / "img" / "a.png")
    rows = ("img/a.png,1,", "./img/a.png,,1", "img//a.png,0,0", "img/./a.png,1,1")
    result, found = read(tmp_path, "file,dog,cat", *rows)
    assert result.files == ("img/a.png",)
    assert [str(each) for each in found if not each.remark] == [
        "labels.csv: lists img/a.png 4 times (lines 2, 3, 4 and 5)"
    ]


def test_ones_and_zeros_of_what_is_no_class_by_its_name(tmp_path):
    result, found = read(tmp_path, "file,dog,is_public,Rating,cat", "a,1,0,1,", "b,,1,1,1", "c,0,1,2,")
    assert result.classes == ("dog", "cat")
    assert [str(problem) for problem in found] == [
        "labels.csv, column is_public: is no class by its name, unless --label-columns takes it; left out",
        "labels.csv, column Rating: is no class by its name, unless --label-columns takes it; left out",
    ]
    assert read(tmp_path, "file,dog,rating", "a,1,0", label_columns=["dog", "rating"])[0].classes == ("dog", "rating")
    after_review = read(tmp_path, "file,split,asked,dog,rating", "a,train,dog,1,0", "b,train,,,1")[0]
    assert after_review.classes == ("dog", "rating")  # which only a person can have said


def test_a_column_that_is_full_where_others_are_not_is_doubted(tmp_path):
    rows = [f"{row},{1 if row % 3 else ''},{0 if row % 2 else ''},{'' if row else 1},{row % 2}" for row in range(20)]
    result, found = read(tmp_path, "file,dog,cat,cow,consent", *rows)
    assert result.classes == ("dog", "cat", "cow", "consent")
    assert [str(problem) for problem in found] == [
        "labels.csv, column consent: holds 1 or 0 in every row; taken for a class; if it is none: "
        "--label-columns dog,cat,cow"
    ]
    assert read(tmp_path, "file,dog,cat", *(f"{row},{row % 2},0" for row in range(20)))[1] == []
    (remark,) = read(tmp_path, "file,dog,cat", *(f"{row},{row % 2},1" for row in range(20)))[1]
    assert str(remark).startswith("labels.csv, column cat: holds 1 in every row; taken for a class")
    assert read(tmp_path, "file,dog,cat", *(f"{row},1,1" for row in range(20)))[1] == []  # nothing stands out


@pytest.mark.parametrize("cell", ["0.93", "93%", "peut-être"])
def test_what_is_no_label_is_said_with_what_one_is(tmp_path, cell):
    with pytest.raises(
        DataError, match=rf"column dog holds values that are no labels, as '{cell}' in line 2; a label is 1"
    ):
        read(tmp_path, "file,dog,cat", *(f"{row},{cell},{cell}" for row in range(20)))


def test_of_two_lists_one_is_to_be_named(tmp_path):
    with pytest.raises(DataError, match=r"has columns label and tags; .* as --label-columns label"):
        read(tmp_path, "file,label,tags", "1,dog,dog;cat", "2,cat,cat")


@pytest.mark.parametrize("name", ["tags", "Label names", "class", "keywords", "category", "what is in it"])
def test_what_a_column_of_lists_may_be_called(tmp_path, name):
    result, found = read(tmp_path, f"file,{name},width", "a,dog;cat,640", "b,cat,480")
    assert result.classes == ("cat", "dog")
    taken = ["labels.csv, column what is in it: holds words; taken for the column labels"]
    assert [str(problem) for problem in found][:-1] == (taken if name == "what is in it" else [])


@pytest.mark.parametrize("name", ["fname", "Image ID", "url", "Datei", "Aufnahme", "what"])
def test_what_a_column_of_files_may_be_called(tmp_path, name):
    result, found = read(tmp_path, f"dog,{name}", "1,a.jpg", "0,b.JPEG")
    assert (result.classes, result.files) == (("dog",), ("a.jpg", "b.JPEG"))
    taken = [f"labels.csv, column {name}: taken for the column file"]
    assert [str(problem) for problem in found] == (taken if name in ("Aufnahme", "what") else [])


def test_a_column_of_descriptions_is_no_list_of_labels(tmp_path):
    with pytest.raises(DataError, match="has no columns of classes and no column named labels"):
        read(tmp_path, "file,text", "a,a dog on a sofa", "b,two cats", "c,nothing")


def test_a_column_of_one_word_has_no_labels_beside_one_of_many(tmp_path):
    assert read(tmp_path, "file,Wer,Was", "a,Ann,dog;cat", "b,Ann,cat", "c,Ann,dog")[0].classes == ("cat", "dog")


def test_which_of_two_columns_of_words_has_the_labels_is_asked(tmp_path):
    lines = ("file,Was,Wer", "a,dog;cat,Ann", "b,cat,Ann", "c,dog,Bob")
    with pytest.raises(DataError, match=r"Was, Wer hold words; .* --label-columns Was"):
        read(tmp_path, *lines)


def test_an_id_is_a_file_where_nothing_else_is(tmp_path):
    Image.new("RGB", (2, 2)).save(tmp_path / "7.png")
    assert read(tmp_path, "id,dog", "7,1")[0].files == ("7.png",)
    assert read(tmp_path, "id,photo,dog", "7,7.png,1")[0].files == ("7.png",)
    assert read(tmp_path, "id,labels", "7,dog;cat", "8,cat;cow")[0].files == ("7.png", "8")


def test_images_in_a_folder_beside_that_of_the_table(tmp_path, monkeypatch):
    (tmp_path / "images").mkdir()
    Image.new("RGB", (2, 2)).save(tmp_path / "images" / "a.png")
    (tmp_path / "labels").mkdir()
    result, found = read(tmp_path / "labels", "file,dog", "a.png,1")
    assert result.path(0) == tmp_path / "images" / "a.png"
    assert [str(problem) for problem in found] == [f"labels.csv: the images are in {tmp_path / 'images'}"]
    monkeypatch.chdir(tmp_path / "labels")
    assert table.read(Path("labels.csv")).path(0) == tmp_path / "images" / "a.png"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "labels.csv").write_text("file,dog\na.png,1\n")
    assert table.read(Path("labels.csv")).files == ("images/a.png",)


def test_of_a_file_and_a_url_the_file_is_taken(tmp_path):
    assert read(tmp_path, "url,file name,dog", "http://x.org/1.jpg,a.jpg,1")[0].files == ("a.jpg",)


def test_columns_that_pandas_named_are_not_named(tmp_path):
    assert read(tmp_path, "Unnamed: 0,file,dog,Unnamed: 3", "0,a,1,", "1,b,0,")[0].classes == ("dog",)


def test_titles_and_blank_lines_above_the_header(tmp_path):
    result, found = read(tmp_path, "", "My photos;;", "file;dog;cat", "a.jpg;1;vielleicht", "b.jpg;0;1", "c.jpg;1;0")
    assert result.classes == ("dog", "cat")
    assert found[0].where == "labels.csv, line 4, column cat"


def test_is_valid_names_the_validation_images(tmp_path):
    result, found = read(tmp_path, "fname,labels,is_valid", "a,chair,True", "b,horse,False")
    assert result.split.tolist() == ["validation", "train"]
    assert found[0].remark
    assert read(tmp_path, "file,split,dog,is_valid", "a,test,1,1", "b,train,1,0")[0].split.tolist() == ["test", "train"]


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


@pytest.mark.parametrize(
    "cell", ["('dog', 'cat')", "{'dog', 'cat'}", "[dog, cat]", "dog;cat;", '"dog, cat, "', "dog\ncat"]
)
def test_further_ways_to_write_a_list(tmp_path, cell):
    assert read(tmp_path, "file;labels", f'a;"{cell.replace(chr(34), "")}"')[0].classes == ("cat", "dog")


def test_words_with_spaces_between_them_are_one_name(tmp_path):
    names = ("polar bear", "brown bear", "black bear", "black cat", "cat", "arctic fox", "snow leopard")
    result, found = read(tmp_path, "file,labels", *(f"{row},{cell}" for row, cell in enumerate(names)))
    assert (set(result.classes), found) == (set(names), [])


def test_the_declared_separator_counts_as_a_line(tmp_path):
    _, found = read(tmp_path, "sep=;", "file;cat", "a;1", "b;vielleicht")
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
    result, _ = read(tmp_path, "file,dog,cat,Complete", "a,1,,1", "b,1,,", "c,vielleicht,,1", "d,0,0,")
    assert result.labels.tolist() == [[1, 0], [1, -1], [-1, 0], [0, 0]]


def test_a_split_may_be_complete(tmp_path):
    path = layouts.write(tmp_path / "labels.csv", layouts.lines("file,labels,split", "a,dog,train", "b,cat,val"))
    assert read_dataset(path, complete_splits=["validation"]).labels.tolist() == [[-1, 1], [1, 0]]
    assert read_dataset(path, complete_splits=["val", "train"]).labels.tolist() == [[0, 1], [1, 0]]
    for name in ("test", "eval"):
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
    assert [problem.kind for problem in read(tmp_path, "file,dog,cat", "a,1,0", "b,-1,1")[1]] == ["-1 is unknown"]
    assert read(tmp_path, "file,dog,cat", "a,1,0", "b,,1")[1] == []
