"""`onepair explain`: which images and labels are shown, and what is said of them."""

import numpy as np
import pytest
import torch
from PIL import Image

from onepair.data.formats.digits import CLASSES as DIGITS
from onepair.data.images.decode import decode
from onepair.inference.engine_selector import score_images
from onepair.inference.model_files import load_model, save_model
from onepair.models import Classifier, create_backbone
from onepair.report import explain_images as picture
from onepair.report.explain_images import MOST
from onepair.runs.task import prepare_task
from tests.decisions import plain
from tests.runs.pretended import pretend_finished
from tests.training.tiny import CLASSES, SIZE, TRAIN, tiny_config, write_images

THRESHOLDS = [-0.2, 0.0, 0.1, 0.3]


def write_run(folder, source, classes, *, size, thresholds):
    """A finished run without the training."""
    folder.mkdir()
    torch.manual_seed(0)
    classifier = Classifier(create_backbone("small-cnn", image_size=size), classes).eval()
    torch.nn.init.normal_(classifier.head.weight, std=4)
    save_model(folder, classifier, plain(thresholds))
    pretend_finished(folder, tiny_config(source))
    return classifier


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("explain")
    (folder / "images").mkdir()
    source = write_images(folder / "images")
    write_run(folder / "run", source, CLASSES, size=SIZE, thresholds=THRESHOLDS)
    write_run(folder / "moved", folder / "gone.csv", CLASSES, size=SIZE, thresholds=THRESHOLDS)
    write_run(folder / "scenes", "digits", DIGITS, size=32, thresholds=[100.0] * 10)
    write_run(folder / "many", "digits", DIGITS, size=32, thresholds=[-100.0] * 10)
    write_run(folder / "changed", source, ("red", "green"), size=SIZE, thresholds=[0.0, 0.0])
    environment = folder / "changed" / "environment.json"
    environment.write_text(environment.read_text().replace('"data": "', '"data": "not '))
    (folder / "links").mkdir()
    (folder / "links" / "00.png").symlink_to(folder / "images" / "00.png")
    Image.new("RGB", (30, 20), "red").save(folder / "other.png")
    return folder


@pytest.fixture
def explain(folder, in_process, monkeypatch):
    """The command in the folder of the runs: its exit code, what it drew, and what it said."""
    monkeypatch.chdir(folder)
    render = picture.render

    def run(*arguments):
        drawn = []
        monkeypatch.setattr(picture, "render", lambda images: drawn.extend(images) or render(images))
        code, _, errors = in_process("explain", *arguments)
        return code, drawn, errors

    return run


def scores_of(folder, task, row):
    return score_images(load_model(folder / "run")[0], task.table, np.array([row]))[0]


def words(task, row, column):
    """What a picture says of a label of a single-positive run with full labels."""
    true = task.table.labels[row, column] == 1
    if row not in task.train:
        return "true" if true else "labelled as absent"
    observed = task.observed[task.train.tolist().index(row), column] == 1
    return "observed" if observed else "true, not observed" if true else "labelled as absent"


def test_predicted_labels_with_all_that_is_known(folder, explain):
    task = prepare_task(tiny_config(folder / "images" / "labels.csv").data)
    rows = [int(task.train[0]), int(task.train[7]), int(task.validation[0]), TRAIN]
    code, drawn, said = explain("run", *(f"images/{row:02}.png" for row in rows), "--out", "a.png")
    assert code == 0, said
    with Image.open(folder / "a.png") as image:
        assert image.format == "PNG"
    assert len(drawn) == len(rows)
    for row, image in zip(rows, drawn, strict=True):
        scores = scores_of(folder, task, row)
        predicted = [CLASSES[each] for each in np.argsort(-scores) if scores[each] >= THRESHOLDS[each]]
        assert image.name == f"{row:02}.png"
        assert image.note.startswith({rows[2]: "validation · ", TRAIN: "test · "}.get(row, "train · "))
        assert image.note.partition(" · ")[2].split(", ") == [
            name for name, label in zip(CLASSES, task.table.labels[row], strict=True) if label == 1
        ]
        np.testing.assert_array_equal(image.pixels, decode(folder / "images" / image.name))
        assert [each.label for each in image.sightings] == (predicted or [CLASSES[scores.argmax()]])
        for each in image.sightings:
            column = CLASSES.index(each.label)
            assert each.probability == pytest.approx(1 / (1 + np.exp(-scores[column])), rel=1e-5)
            assert each.note == ("" if predicted else "not predicted · ") + words(task, row, column)
            assert each.evidence.shape == (4, 4)
    assert len({each.note for image in drawn for each in image.sightings}) > 2  # the rows show different cases


def test_labels_asked_for_come_in_that_order(explain):
    code, (image,), _ = explain("run", "5", "--labels", "blue, red", "--out", "b.png")
    assert code == 0
    assert [each.label for each in image.sightings] == ["blue", "red"]
    assert not np.array_equal(image.sightings[0].evidence, image.sightings[1].evidence)


def test_an_image_is_known_by_what_it_is_not_by_its_name(folder, explain):
    (folder / "copy").mkdir(exist_ok=True)
    Image.open(folder / "images" / "00.png").save(folder / "copy" / "00.png")
    code, (row, link, copy, other), _ = explain("run", 0, "links/00.png", "copy/00.png", "other.png")
    assert code == 0
    assert (folder / "explanation.png").exists()
    assert row.note == link.note != ""
    assert copy.note == other.note == ""
    assert [each.label for each in copy.sightings] == [each.label for each in row.sightings]
    assert all(each.note in ("", "not predicted") for each in (*copy.sightings, *other.sightings))


def test_embedded_images_by_their_row(explain):
    code, (scene,), said = explain("scenes", "17", "--out", "c.png")
    assert code == 0, said
    assert scene.name == "00017.png"
    assert scene.pixels.shape == (32, 32, 3)
    (only,) = scene.sightings  # no label is above its threshold
    assert only.note.startswith("not predicted")


def test_of_many_labels_the_likeliest_are_shown(explain):
    _, (scene,), _ = explain("many", "3500", "--out", "c.png")
    assert scene.note.startswith("test · ")
    probabilities = [each.probability for each in scene.sightings]
    assert len(probabilities) == MOST
    assert probabilities == sorted(probabilities, reverse=True)


def test_images_are_explained_without_their_dataset(explain):
    code, (image,), said = explain("moved", "images/00.png", "--out", "d.png")
    assert code == 0
    assert "gone.csv" in said
    assert image.note == ""
    code, (image,), said = explain("changed", "images/00.png", "--out", "d.png")
    assert code == 0
    assert "labels.csv has changed since it was trained" in said
    assert {each.label for each in image.sightings} <= {"red", "green"}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("run", "other.png", "--labels", "red,gren"), "the run has no label 'gren'; did you mean green?"),
        (("run", "other.png", "--labels", "§"), "the run has no label '§'; there are red, green, blue, striped\n"),
        (("run", "46"), "there is no row 46; the run's dataset has rows 0 to 45"),
        (("run", "gone.png"), "gone.png: cannot be read as an image"),
        (("run", "images/labels.csv"), "labels.csv: is not an image"),
        (("run", "other.png", "--out", "a.jpg"), "a.jpg: the picture is written as .png"),
        (("run", "other.png", "--out", "nowhere/a.png"), "nowhere"),
        (("images", "other.png"), "images: holds no finished run"),
        (("changed", "3"), "labels.csv has changed since it was trained"),
        (("moved", "3"), "gone.csv: there is no such file"),
    ],
)
def test_mistakes_end_in_a_sentence(explain, arguments, sentence):
    code, _, said = explain(*arguments)
    assert code == 2
    assert said.startswith("onepair: ")
    assert sentence in said
    assert said.count("\n") == 1
