"""The ONNX file computes what torch and the decisions do, says all there is to know, and is never written wrong."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnxruntime import quantization
from PIL import Image

import onepair
from onepair.data.images.decode import scale
from onepair.errors import UserError
from onepair.inference import export
from onepair.inference.export import export_onnx
from onepair.inference.model_files import load_model, read_description
from onepair.probability.calibration import Isotonic, Platt
from tests.saved import SCENES, save_model, tensors

TEST = SCENES.pixels[SCENES.rows("test")]
KINDS = {  # by backbone, calibration, and whether the input is float
    "small": ("small-cnn", "platt", False),
    "small, float": ("small-cnn", "isotonic", True),
    "transformer": ("test_vit", "isotonic", False),
}


@pytest.fixture(scope="module", params=KINDS)
def exported(request, tmp_path_factory):
    """The folder of a model and its ONNX file."""
    backbone, calibration, float_input = KINDS[request.param]
    run = save_model(tmp_path_factory.mktemp("run"), backbone=backbone, calibration=calibration)
    found = export_onnx(run, run / "model.onnx", float_input=float_input)
    return run, found, float_input


@pytest.mark.parametrize("batch", [1, 7])
def test_file_computes_what_torch_and_the_decisions_do(exported, batch):
    run, _, float_input = exported
    classifier, decisions = load_model(run)
    session = onnxruntime.InferenceSession(run / "model.onnx")
    with torch.inference_mode():
        inputs = tensors(classifier, TEST)
        expected = torch.cat([classifier(each) for each in inputs.split(batch)]).numpy()
    squares = np.stack([scale(each, classifier.backbone.preprocessing) for each in TEST])
    images = inputs.contiguous().numpy() if float_input else squares
    parts = [session.run(None, {"images": images[i : i + batch]}) for i in range(0, len(images), batch)]
    logits, probabilities, labels = map(np.concatenate, zip(*parts, strict=True))
    assert expected.std(0).min() > 0.5  # the network tells scenes apart
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-4 * max(1, np.abs(expected).max()))
    np.testing.assert_allclose(probabilities, decisions.probabilities(logits), rtol=0, atol=1e-5)
    np.testing.assert_array_equal(labels, decisions.labels(logits))
    assert labels.dtype == bool
    assert labels[:, :-1].any()
    assert not labels[:, -1].any()  # its threshold is infinite


def test_file_says_what_it_is(exported):
    run, found, float_input = exported
    model = onnx.load(run / "model.onnx")
    described = json.loads({each.key: each.value for each in model.metadata_props}["onepair"])
    kept = read_description(run)
    assert described == {**json.loads(json.dumps(kept.to_dict())), "input": "float32" if float_input else "uint8"}
    assert described["version"] == onepair.__version__
    size = kept.preprocessing.size
    shape = f"float32 (batch, 3, {size}, {size})" if float_input else f"uint8 (batch, {size}, {size}, 3)"
    assert found.inputs == [f"images: {shape}"]
    assert found.outputs == [
        "logits: float32 (batch, 10)",
        "probabilities: float32 (batch, 10)",
        "labels: bool (batch, 10)",
    ]
    assert found.size == (run / "model.onnx").stat().st_size
    assert 0 <= found.difference < 1e-3


def test_file_is_whole_and_tells_nothing_of_the_machine(exported):
    run, _, _ = exported
    assert sorted(each.name for each in run.iterdir()) == ["model.json", "model.onnx", "model.safetensors"]
    content = (run / "model.onnx").read_bytes()
    for place in (sys.prefix, str(Path(onepair.__file__).parent), "site-packages", str(run)):
        assert place.encode() not in content


@pytest.mark.parametrize("classes", [1, 3])
def test_calibrators_in_torch(classes):
    random = np.random.default_rng(0)
    corners = [np.sort(random.normal(size=number).astype(np.float32)).astype(float) for number in (1, 2, 9)[:classes]]
    levels = [np.sort(random.random(len(each))) for each in corners]
    curve = Isotonic(tuple(corners), tuple(levels))
    assert export._Curve(curve).start.shape[1] >= 1  # ONNX Runtime cannot sum nothing
    line = Platt(random.normal(size=classes), random.normal(size=classes))
    at = np.concatenate([np.linspace(-1e4, 1e4, 9), np.linspace(-3, 3, 500), *corners])
    scores = np.repeat(at.astype(np.float32)[:, None], classes, axis=1)
    for calibrator, module in ((curve, export._Curve(curve)), (line, export._Line(line))):
        found = module(torch.from_numpy(scores)).numpy()
        np.testing.assert_allclose(found, calibrator(scores), rtol=0, atol=1e-5)


def test_thresholds_in_half_the_digits_decide_the_same():
    random = np.random.default_rng(0)
    logits = random.normal(size=1000).astype(np.float32)
    for shift in (-1e-9, 0.0, 1e-9, np.inf):
        thresholds = logits.astype(float) + shift
        rounded = export._rounded_up(thresholds)
        assert rounded.dtype == np.float32
        np.testing.assert_array_equal(logits >= rounded, logits >= thresholds)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("saved"))


def refuse(*_, **__):
    raise torch.onnx.OnnxExporterError("a layer that there is no operator for")


@pytest.mark.parametrize(
    ("out", "change", "sentence"),
    [
        ("model.pb", {}, "model.pb: the name of an ONNX file ends in .onnx"),
        ("gone/model.onnx", {}, "model.onnx: there is no folder"),
        ("model.onnx", {"missing_packages": lambda: ["onnxscript"]}, "needs onnxscript; install"),
        ("model.onnx", {"fits": lambda network: False}, "more than the 2 GB"),
        ("model.onnx", {"_TOLERANCE": -1.0}, "the file's logits would differ from torch's by"),
        ("model.onnx", {"torch.onnx.export": refuse}, "small-cnn cannot be exported by torch"),
    ],
)
def test_what_cannot_be_exported_ends_in_a_sentence(run, tmp_path, monkeypatch, out, change, sentence):
    for name, value in change.items():
        monkeypatch.setattr(f"onepair.inference.export.{name}", value)
    with pytest.raises(UserError, match=re.escape(sentence)):
        export_onnx(run, tmp_path / out)
    assert not list(tmp_path.iterdir())


def test_a_folder_without_a_model(tmp_path):
    with pytest.raises(UserError, match="holds no model"):
        export_onnx(tmp_path, tmp_path / "model.onnx")


def test_python_of_the_page(run, tmp_path, monkeypatch, capsys):
    """The page's program needs a model and photos, so it is run here."""
    page = Path(__file__).parents[2] / "docs" / "how-to" / "deploy.md"
    (program,) = re.findall(r"^```py\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "mine").symlink_to(run)
    Image.fromarray(TEST[0]).save(tmp_path / "photo.jpg")
    (tmp_path / "photos").mkdir()
    Image.fromarray(TEST[1]).save(tmp_path / "photos" / "other.png")
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(compile(program, page.name, "exec"), names)  # noqa: S102 (our own document)
    (expected,) = onepair.load(run).predict(TEST[1])
    assert capsys.readouterr().out.split() == ["photos/other.png", *expected.labels]


@pytest.mark.parametrize("calibrated", [True, False])
def test_int8_keeps_the_labels(exported, tmp_path, calibrated):
    run, found, float_input = exported
    model, file = onepair.load(run), tmp_path / "small.onnx"
    calibration = list(TEST[:16]) if calibrated else None
    small = model.export(file, float_input=float_input, quantize="int8", calibration=calibration)
    assert small.size < 0.7 * found.size  # the weights of this network are hardly more than the rest of the file
    assert small.size == file.stat().st_size
    assert small.quantised.images == (16 if calibrated else 32)
    assert small.quantised.per_second > 0
    if calibrated and "vit" in model.classifier.backbone.name:
        return  # random attention does not outlive its rounding
    assert small.quantised.agreement > 0.9
    images = list(TEST)
    assert np.corrcoef(onepair.load(file).scores(images).ravel(), model.scores(images).ravel())[0, 1] > 0.7


class Reader(quantization.CalibrationDataReader):
    """Gives some images to calibrate by."""

    def __init__(self, images):
        self.batches = iter([{"images": images}])

    def get_next(self):
        return next(self.batches, None)


def test_file_can_be_quantised(exported, tmp_path):
    run, _, float_input = exported
    classifier, _ = load_model(run)
    squares = np.stack([scale(each, classifier.backbone.preprocessing) for each in TEST])
    images = tensors(classifier, TEST).contiguous().numpy() if float_input else squares
    file = run / "model.onnx"
    quantization.quantize_dynamic(file, tmp_path / "dynamic.onnx")
    quantization.quantize_static(file, tmp_path / "static.onnx", Reader(images))
    expected = onnxruntime.InferenceSession(file).run(["logits"], {"images": images})[0]
    static = -1 if "vit" in classifier.backbone.name else 0.7  # random attention does not outlive its rounding
    for name, least in (("dynamic", 0.7), ("static", static)):
        (found,) = onnxruntime.InferenceSession(tmp_path / f"{name}.onnx").run(["logits"], {"images": images})
        assert np.isfinite(found).all(), name
        assert np.corrcoef(found.ravel(), expected.ravel())[0, 1] > least, name
