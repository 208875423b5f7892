import json

import pytest

from onepair.data import DataError, read_dataset
from onepair.data.formats import label_studio as labelstudio
from tests.data import layouts


def export(folder, *tasks):
    return layouts.write(folder / "tasks.json", json.dumps(tasks))


def test_choices_and_what_nobody_chose(tmp_path):
    path = layouts.label_studio(tmp_path)
    table = labelstudio.read(path)
    assert table.files == ("a.jpg", "b.jpg", "c.jpg", "d.jpg")
    assert table.classes == ("cat", "dog")
    assert table.labels.tolist() == [[1, 1], [1, -1], [-1, -1], [-1, -1]]


def test_unlisted_is_negative_only_where_somebody_looked(tmp_path):
    table = labelstudio.read(layouts.label_studio(tmp_path), unlisted="negative")
    assert table.labels.tolist() == [[1, 1], [1, 0], [0, 0], [-1, -1]]


def test_labelled_regions_several_annotators_and_skipped_tasks(tmp_path):
    regions = [
        {"type": "rectanglelabels", "value": {"rectanglelabels": ["dog"], "x": 1}},
        {"type": "brushlabels", "value": {"brushlabels": ["cat "]}},
        {"type": "textarea", "value": {"text": ["nice"]}},
    ]
    both = {"data": {"image": "a.jpg"}, "annotations": [{"result": regions[:1]}, {"result": regions[1:]}]}
    skipped = {"data": {"image": "b.jpg"}, "annotations": [{"result": regions, "was_cancelled": True}]}
    predicted = {"data": {"image": "c.jpg"}, "annotations": [], "predictions": [{"result": regions}]}
    table = labelstudio.read(export(tmp_path, both, skipped, predicted), unlisted="negative")
    assert table.classes == ("cat", "dog")
    assert table.labels.tolist() == [[1, 1], [-1, -1], [-1, -1]]


def test_images_are_found_under_the_names_of_uploads_and_of_local_files(tmp_path):
    names = ("/data/upload/1/0a1b2c3d-my%20cat.jpg", "/data/local-files/?d=pets/dog.jpg", "s3://bucket/x/bird.jpg")
    path = export(tmp_path, *(layouts.task(name, "pet") for name in names))
    for file in ("my cat.jpg", "pets/dog.jpg", "bird.jpg"):
        layouts.write(tmp_path / "images" / file, "")
    table = labelstudio.read(path)
    assert table.files == ("my cat.jpg", "pets/dog.jpg", "bird.jpg")
    assert table.root == tmp_path / "images"


def test_the_image_may_have_another_key_and_the_split_is_data(tmp_path):
    task = layouts.task("", "cat", photo="a.jpg", caption="a cat", split="val")
    table = labelstudio.read(export(tmp_path, task))
    assert (table.files, table.split.tolist()) == (("a.jpg",), ["validation"])


def test_problems_name_the_task(tmp_path):
    bad = layouts.task("b.jpg", "cat")
    bad["annotations"][0]["result"][0]["value"] = {"choices": "cat"}
    path = export(tmp_path, layouts.task("a.jpg", "cat"), 5, {"data": {}}, bad, layouts.task("a.jpg", "dog"))
    problems = []
    table = labelstudio.read(path, report=problems.append)
    assert [str(problem) for problem in problems] == [
        "tasks.json, task 2: names no image in its data",
        "tasks.json, task 3: names no image in its data",
        "tasks.json, task 4: has choices without a list of names",
        "tasks.json, task 5: is about a.jpg again, after tasks.json, task 1",
    ]
    assert table.labels.tolist() == [[1], [-1]]
    with pytest.raises(DataError, match="task 2: names no image"):
        labelstudio.read(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "holds no list of tasks"),
        ("[", "is not JSON"),
        ('[{"image": "a.jpg", "choice": "cat"}]', "is JSON-MIN"),
        ('[{"data": {"image": "a.jpg"}}]', "none of its 1 tasks names a class"),
    ],
)
def test_refuses_what_is_no_export(tmp_path, text, message):
    path = layouts.write(tmp_path / "tasks.json", text)
    assert labelstudio.detect(path)
    with pytest.raises(DataError, match=message):
        read_dataset(path)
