"""One way to use a model, with torch or without: which images it takes, what it says of them, and what it refuses."""

import json
import subprocess
import sys
from typing import NamedTuple

import numpy as np
import onnx
import pytest
from PIL import Image

import onepair
from onepair.data.images.batches import table_of_files
from onepair.errors import DataError, UserError
from onepair.inference.engine import OnnxEngine
from onepair.inference.engine_selector import score_images
from onepair.inference.export import export_onnx
from onepair.inference.prediction import Model, Prediction, load
from tests.saved import SCENES, save_model

TEST = SCENES.pixels[SCENES.rows("test")]
COUNT = len(TEST)  # more than a batch


class Place(NamedTuple):
    models: dict[str, Model]
    folder: object  # holds run/, its ONNX files, and images/


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("place")
    run = save_model(folder / "run")
    (folder / "images" / "deep").mkdir(parents=True)
    for number, pixels in enumerate(TEST):
        Image.fromarray(pixels).save(folder / "images" / ("deep" if number % 2 else "") / f"{number:02}.png")
    (folder / "images" / "notes.txt").write_text("no image")
    export_onnx(run, folder / "model.onnx")
    export_onnx(run, folder / "float.onnx", float_input=True)
    models = {"run": load(run), "onnx": load(str(folder / "model.onnx")), "float": load(folder / "float.onnx")}
    return Place(models, folder)


@pytest.fixture(params=["run", "onnx", "float"])
def model(request, place):
    return place.models[request.param]


def test_a_run_is_scored_as_ever(place):
    model = place.models["run"]
    table = table_of_files([place.folder / "images"], model.classes)
    expected = score_images(model.classifier, table, np.arange(COUNT), workers=0)
    np.testing.assert_array_equal(model.scores(place.folder / "images"), expected)


def test_onnx_files_score_as_the_run_does(place):
    expected = place.models["run"].scores(TEST)
    for name in ("onnx", "float"):
        model = place.models[name]
        assert isinstance(model.engines(1), OnnxEngine)
        assert (model.classes, model.preprocessing) == (SCENES.classes, place.models["run"].preprocessing)
        assert model.decisions.to_dict() == place.models["run"].decisions.to_dict()
        np.testing.assert_allclose(model.scores(TEST), expected, rtol=0, atol=1e-4)


def test_images_of_every_kind(model, place):
    """Files, folders and arrays, alone or in any mixture, in their order."""
    images = place.folder / "images"
    expected = model.scores(TEST)
    first = images / "00.png"

    def agree(given, rows):
        np.testing.assert_allclose(model.scores(given), expected[rows], rtol=0, atol=1e-5)

    agree(list(TEST), slice(None))
    agree((each for each in TEST), slice(None))
    agree(TEST[3], [3])
    agree(first, [0])
    agree(str(first), [0])
    agree([images / "deep" / "05.png", TEST[7], str(images / "deep")], [5, 7, *range(1, COUNT, 2)])
    agree(images, [*range(0, COUNT, 2), *range(1, COUNT, 2)])  # by name: "00.png" before "deep/01.png"
    assert model.scores([]).shape == (0, len(model.classes))
    assert model.predict([]) == []


def test_predictions_are_the_decisions_on_the_scores(model, place):
    files = [str(place.folder / "images" / "02.png"), TEST[3]]
    predictions = model.predict(files)
    scores = model.scores(files)
    chosen = [tuple(np.array(model.classes)[row]) for row in model.decisions.labels(scores)]
    assert [each.labels for each in predictions] == chosen
    assert any(chosen)
    assert [each.file for each in predictions] == [files[0], None]
    for each, expected in zip(predictions, model.decisions.probabilities(scores), strict=True):
        assert isinstance(each, Prediction)
        assert list(each.probabilities) == list(model.classes)
        np.testing.assert_array_equal(list(each.probabilities.values()), expected)


def test_images_are_scaled_to_the_size_of_the_network(model):
    large = np.asarray(Image.fromarray(TEST[0]).resize((90, 70)))
    small = np.asarray(Image.fromarray(large).resize((32, 32), Image.Resampling.BICUBIC))
    np.testing.assert_array_equal(model.scores(large), model.scores(small))


def test_a_stream_gives_the_same_one_by_one(model, place):
    files = [place.folder / "images", TEST[0]]
    asked = []

    def images():
        for file in files:
            asked.append(file)
            yield file

    stream = model.stream(images())
    first = next(stream)
    assert isinstance(first, Prediction)
    expected = model.predict(files)
    assert [first.file, *(each.file for each in stream)] == [each.file for each in expected]
    for one, other in zip(model.stream(files), expected, strict=True):
        assert one.labels == other.labels
        assert one.probabilities == pytest.approx(other.probabilities, abs=1e-5)


def test_a_stream_reads_no_more_arrays_than_the_next_few(model):
    asked = []

    def images():
        for number in range(1000):
            asked.append(number)
            yield TEST[number % COUNT]

    stream = model.stream(images())
    next(stream)
    assert len(asked) <= 2 * model.engines(1).batch_size + 1
    stream.close()


def test_a_stream_goes_on_where_one_cannot_be_read(model, place, tmp_path):
    (tmp_path / "torn.png").write_bytes(b"torn")
    files = [place.folder / "images" / "00.png", tmp_path / "torn.png", place.folder / "images" / "02.png"]
    problems = []
    assert [each.file for each in model.stream(files, report=problems.append)] == [str(files[0]), str(files[2])]
    assert [problem.where for problem in problems] == [str(files[1])]
    with pytest.raises(DataError, match=r"torn\.png: is not an image"):
        list(model.stream(files))


def test_torch_is_not_imported_for_an_onnx_file(place):
    code = (
        "import sys, onepair\n"
        "predictions = onepair.load('model.onnx').predict('images')\n"
        "print(len(predictions), 'torch' in sys.modules, 'lightning_fabric' in sys.modules)"
    )
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=True, cwd=place.folder)
    assert result.stdout.split() == [str(COUNT), "False", "False"]


@pytest.mark.parametrize("wrong", [TEST[0].astype(float), TEST[0, :, :, 0], TEST[0, :, :, :2], [TEST[0] / 255]])
def test_other_arrays_are_refused(model, wrong):
    with pytest.raises(DataError, match=r"uint8 \(H, W, 3\), not"):
        model.predict(wrong)


def test_images_that_cannot_be_read_are_named(model, place, tmp_path):
    (tmp_path / "torn.png").write_bytes((place.folder / "images" / "00.png").read_bytes()[:60])
    with pytest.raises(DataError, match=r"torn\.png: cannot be read"):
        model.predict(tmp_path)
    with pytest.raises(DataError, match=r"gone\.jpg: cannot be read as an image: No such file"):
        model.predict([place.folder / "images", tmp_path / "gone.jpg"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="empty: holds no images to predict"):
        model.predict(tmp_path / "empty")


def changed(file, **metadata):
    """The ONNX file with other metadata."""
    model = onnx.load(file)
    onnx.helper.set_model_props(model, metadata)
    return model.SerializeToString()


def test_files_that_hold_no_model_of_ours(place, tmp_path, monkeypatch):
    whole = place.folder / "model.onnx"
    later = json.dumps({"format": 9, "version": "9.0", "input": "uint8"})
    for name, content, sentence in [
        ("garbage.onnx", b"garbage", "is not an ONNX file that can be read"),
        ("torn.onnx", whole.read_bytes()[:5000], "is not an ONNX file that can be read"),
        ("strange.onnx", changed(whole, author="someone"), "does not say what its labels are"),
        ("empty.onnx", changed(whole, onepair="{}"), "does not say what its labels are"),
        ("later.onnx", changed(whole, onepair=later), "was written by another version of onepair, 9.0"),
        ("model.pt", b"", "give the folder of a run, or an .onnx file"),
    ]:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match=f"{name}: .*{sentence}"):
            load(tmp_path / name)
    for name, sentence in [("gone.onnx", "no such file"), ("gone", "holds no model"), (".", "holds no model")]:
        with pytest.raises(UserError, match=sentence):
            onepair.load(tmp_path / name)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(UserError, match=r"model\.onnx: needs ONNX Runtime; install it with: pip install"):
        load(whole)
