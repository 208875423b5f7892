import json

import pytest

from onepair.data import DataError, read_dataset
from onepair.data.formats import coco
from tests.data import layouts


def test_2014_sorts_ids_as_strings_and_leaves_out_images_without_annotations(tmp_path):
    table = coco.read(layouts.coco_2014(tmp_path))
    assert table.files == (
        "train2014/COCO_train2014_000000000010.jpg",
        "train2014/COCO_train2014_000000000025.jpg",
        "train2014/COCO_train2014_000000000009.jpg",
        "val2014/COCO_val2014_000000000005.jpg",
    )
    assert table.split.tolist() == ["train", "train", "train", "test"]
    assert table.root == tmp_path


def test_classes_are_in_the_order_of_the_json_and_unlisted_is_negative(tmp_path):
    table = coco.read(layouts.coco_2014(tmp_path))
    assert table.classes == ("dog", "cat")
    assert table.labels.tolist() == [[1, 1], [0, 1], [1, 0], [1, 0]]


def test_2014_images_may_lie_in_images(tmp_path):
    (tmp_path / "images" / "train2014").mkdir(parents=True)
    table = coco.read(layouts.coco_2014(tmp_path))
    assert table.files[0] == "images/train2014/COCO_train2014_000000000010.jpg"
    assert table.files[-1] == "val2014/COCO_val2014_000000000005.jpg"


def test_2014_needs_both_splits_with_the_same_categories(tmp_path):
    layouts.coco_2014(tmp_path)
    source = tmp_path / "annotations" / "instances_val2014.json"
    source.write_text(source.read_text().replace('"cat"', '"bat"'))
    with pytest.raises(DataError, match="categories are not those of the file before it"):
        coco.read(tmp_path)
    source.unlink()
    with pytest.raises(DataError, match=r"instances_val2014\.json: there is no such file"):
        coco.read(tmp_path)


def test_a_json_file_keeps_its_order_and_its_empty_images(tmp_path):
    table = coco.read(layouts.coco_file(tmp_path))
    assert [file[-6:] for file in table.files] == ["10.jpg", "09.jpg", "30.jpg"]
    assert table.labels.tolist() == [[-1, 1], [1, -1], [-1, -1]]
    assert set(table.split.tolist()) == {"train"}


def test_what_a_json_file_does_not_list_is_unknown_unless_said_otherwise(tmp_path):
    path = layouts.coco_file(tmp_path)
    assert coco.read(path, unlisted="negative").labels.tolist() == [[0, 1], [1, 0], [0, 0]]
    assert (coco.read(layouts.coco_2014(tmp_path), unlisted="unknown").labels != -1).all()  # it is labelled completely


def test_categories_that_an_image_is_said_not_to_show_are_negative(tmp_path):
    path = layouts.coco_file(tmp_path)
    document = json.loads(path.read_text())
    document["images"][0] |= {"neg_category_ids": [18, 99, None], "split": "val"}
    document["images"][1] |= {"neg_category_ids": [18], "split": "else"}  # there is an annotation, too
    path.write_text(json.dumps(document))
    table = coco.read(path)
    assert table.labels.tolist() == [[0, 1], [1, -1], [-1, -1]]
    assert table.split.tolist() == ["validation", "train", "train"]


def test_images_of_a_json_file_lie_beside_it_or_in_images_or_where_said(tmp_path):
    path = layouts.coco_file(tmp_path)
    first = coco.read(path).files[0]
    assert coco.read(path).root == tmp_path
    layouts.write(tmp_path / "images" / first, "")
    assert coco.read(path).root == tmp_path / "images"
    layouts.write(tmp_path / first, "")
    assert coco.read(path).root == tmp_path
    assert coco.read(path, images=tmp_path / "elsewhere").root == tmp_path / "elsewhere"


@pytest.mark.parametrize("folder", ["images/default", "../images", "../images/default", ".."])
def test_images_where_annotation_programs_put_them(tmp_path, folder):
    source = layouts.coco_file(tmp_path / "annotations")
    first = coco.read(source).files[0]
    layouts.write(tmp_path / "annotations" / folder / first, "")
    assert coco.read(source).path(0).exists()


def test_names_with_the_folders_of_another_machine_are_found_by_their_end(tmp_path):
    source = layouts.coco_file(tmp_path)
    document = json.loads(source.read_text())
    for image, name in zip(
        document["images"], ("C:\\photos\\a.jpg", "/data/upload/1/b.jpg", "gone/c.jpg"), strict=True
    ):
        image["file_name"] = name
    source.write_text(json.dumps(document))
    for name in ("photos/a.jpg", "b.jpg"):
        layouts.write(tmp_path / "images" / name, "")
    assert coco.read(source).files == ("photos/a.jpg", "b.jpg", "gone/c.jpg")


def test_a_file_per_subset(tmp_path):
    for subset, image in (("train", 1), ("val", 2), ("default", 3)):
        text = layouts.instances(subset, [(image, 18)], [image])
        layouts.write(tmp_path / "annotations" / f"instances_{subset}.json", text)
    layouts.write(tmp_path / "images" / "val" / "COCO_val_000000000002.jpg", "")
    table = coco.read(tmp_path)
    assert table.split.tolist() == ["train", "train", "validation"]
    assert table.labels.tolist() == [[1, -1]] * 3
    assert table.path(2).exists()
    source = tmp_path / "annotations" / "instances_val.json"
    source.write_text(source.read_text().replace('"cat"', '"bat"'))
    with pytest.raises(DataError, match=r"instances_val\.json: its categories are not those of the file before it"):
        coco.read(tmp_path)


def test_detects_json_files_and_the_2014_folder(tmp_path):
    assert not coco.detect(tmp_path)
    assert not coco.detect(tmp_path / "missing.json")
    assert coco.detect(layouts.coco_file(tmp_path))
    assert coco.detect(layouts.coco_2014(tmp_path))


def test_problems_name_the_entry(tmp_path):
    path = layouts.coco_file(tmp_path)
    document = json.loads(path.read_text())
    document["categories"] += [{"id": 3, "name": "dog"}, {"id": 4}]
    document["images"] += [{"id": 9, "file_name": "again.jpg"}, {"id": 40, "file_name": ""}, 5]
    document["annotations"] += [
        {"image_id": 30, "category_id": 3},
        {"image_id": 31, "category_id": 1},
        {"image_id": 30, "category_id": 99},
        {"image_id": [30], "category_id": 1},
    ]
    path.write_text(json.dumps(document))
    problems = []
    table = coco.read(path, report=problems.append)
    assert [str(problem) for problem in problems] == [
        "birds.json, categories[2]: names category 'dog', id 3, again",
        "birds.json, categories[3]: needs id and name, each a number or a text",
        "birds.json, images[3]: gives image 9 again",
        "birds.json, images[4]: needs id and file_name, each a number or a text",
        "birds.json, images[5]: needs id and file_name, each a number or a text",
        "birds.json, annotations[3]: is about image 31, which the file does not list",
        "birds.json, annotations[4]: is about category 99, which the file does not list",
        "birds.json, annotations[5]: needs image_id and category_id, each a number or a text",
    ]
    assert table.labels.tolist() == [[-1, 1], [1, -1], [1, -1]]
    with pytest.raises(DataError, match=r"categories\[2\]"):
        coco.read(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: is not JSON"),
        ('{"images": [],\n oops', "line 2: is not JSON"),
        ("[" * 100_000, "is not JSON that can be read"),
        ("9" * 5000, "is not JSON that can be read"),
        ("[1, 2]", "has no list 'categories'"),
        ('{"images": [], "categories": [], "annotations": {}}', "has no list 'annotations'"),
        ('{"images": [], "categories": [], "annotations": []}', "lists no categories"),
        ('{"images": [], "categories": [{"id": 1, "name": "cat"}], "annotations": []}', "lists no image"),
    ],
)
def test_refuses_what_is_no_instance_file(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        coco.read(layouts.write(tmp_path / "bad.json", text))


@pytest.mark.parametrize(
    ("annotations", "image"),
    [
        ("annotations/instances_{}2017.json", "{}2017/{}.jpg"),
        ("annotations/instances_{}.json", "images/{}/{}.jpg"),
        ("{}/_annotations.coco.json", "{}/{}.jpg"),
    ],
)
def test_subsets_as_other_programs_name_them(tmp_path, annotations, image):
    for subset, number in (("train", 1), ("val", 2)):
        document = {
            "images": [{"id": number, "file_name": f"{number}.jpg"}],
            "categories": [{"id": 5, "name": "cat"}, {"id": 6, "name": "dog"}],
            "annotations": [{"image_id": number, "category_id": 5}],
        }
        layouts.write(tmp_path / annotations.format(subset), json.dumps(document))
        layouts.write(tmp_path / image.format(subset, number), "")
    table = read_dataset(tmp_path)
    assert (table.classes, table.split.tolist()) == (("cat", "dog"), ["train", "validation"])
    assert table.labels.tolist() == [[1, -1], [1, -1]]
    assert all(table.path(row).is_file() for row in range(2))
