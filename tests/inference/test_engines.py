"""Engines: all compute the same, none changes the network it was given, and which one is taken."""

import copy
import sys

import numpy as np
import pytest
import torch

from onepair.data.images.blocks import image_blocks, stream_scores
from onepair.inference import engine_selector as choice
from onepair.inference.engine import OnnxEngine, WithHead
from onepair.inference.engine_selector import EngineSelector, TorchEngine, backbone_in_onnx, score_images
from onepair.inference.model_files import load_model, read_description
from tests.saved import SCENES, save_model, tensors

TEST = SCENES.pixels[SCENES.rows("test")]
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    return load_model(save_model(tmp_path_factory.mktemp("run")))[0]


@pytest.fixture(scope="module")
def expected(classifier):
    with torch.inference_mode():
        return classifier(tensors(classifier, TEST)).numpy()


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def everything_is_much(monkeypatch):
    monkeypatch.setattr(choice, "MANY", 1)


@pytest.mark.parametrize("devices", [1, 3])
def test_torch_computes_the_network(classifier, expected, devices):
    engine = EngineSelector(classifier, devices=[CPU] * devices)(1)
    assert isinstance(engine, TorchEngine)
    assert engine.batch_size == 8 * devices
    for count in (1, 2, 7, len(TEST)):  # also less than one for each device
        np.testing.assert_allclose(engine(TEST[:count]), expected[:count], rtol=0, atol=1e-4)
        assert engine(TEST[:count]).dtype == np.float32


def test_onnx_runtime_computes_the_network(classifier, expected, cache, everything_is_much):
    engine = EngineSelector(classifier, devices=[CPU], cache=cache)(len(TEST))
    assert isinstance(engine, WithHead)
    np.testing.assert_allclose(engine(TEST), expected, rtol=0, atol=1e-4)
    alone = EngineSelector(classifier.backbone, devices=[CPU], cache=cache)(len(TEST))
    assert isinstance(alone, OnnxEngine)
    with torch.inference_mode():
        features = classifier.backbone(tensors(classifier, TEST)).numpy()
    np.testing.assert_allclose(alone(TEST), features, rtol=1e-3, atol=1e-5)


def test_a_graph_is_made_once(classifier, cache, monkeypatch):
    assert backbone_in_onnx(classifier.backbone, cache=cache) is not None
    monkeypatch.setattr(choice, "to_onnx", lambda *_, **__: pytest.fail("made again"))
    assert backbone_in_onnx(classifier.backbone, cache=cache) is not None


def test_what_decides_a_graph_decides_its_name(classifier, tmp_path, monkeypatch):
    monkeypatch.setattr(choice, "_checked_graph", lambda _: b"")
    other = copy.deepcopy(classifier.backbone)
    with torch.no_grad():
        next(other.parameters()).add_(1)
    for number, backbone in enumerate((classifier.backbone, other), start=1):
        backbone_in_onnx(backbone, cache=tmp_path)
        assert len(list((tmp_path / "graphs").iterdir())) == number


def refuse(*_, **__):
    raise torch.onnx.OnnxExporterError("a layer that there is no operator for")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("to_onnx", refuse),
        ("_TOLERANCE", -1.0),
        ("missing_packages", lambda: ["onnxscript"]),
        ("fits", lambda network: False),
    ],
)
def test_where_there_is_no_right_graph_torch_computes(
    classifier, expected, tmp_path, monkeypatch, everything_is_much, name, value
):
    monkeypatch.setattr(choice, name, value)
    for _ in range(2):  # the second time it is known
        engine = EngineSelector(classifier, devices=[CPU], cache=tmp_path)(1000)
        assert isinstance(engine, TorchEngine)
        np.testing.assert_allclose(engine(TEST), expected, rtol=0, atol=1e-4)


def test_a_damaged_graph_is_done_without_and_made_anew(classifier, tmp_path):
    assert backbone_in_onnx(classifier.backbone, cache=tmp_path) is not None
    (file,) = (tmp_path / "graphs").iterdir()
    file.write_bytes(file.read_bytes()[:1000])
    assert backbone_in_onnx(classifier.backbone, cache=tmp_path) is None
    assert backbone_in_onnx(classifier.backbone, cache=tmp_path) is not None


def test_few_images_need_no_graph(classifier, tmp_path, monkeypatch):
    monkeypatch.setattr(choice, "backbone_in_onnx", lambda *_, **__: pytest.fail("made a graph"))
    assert isinstance(EngineSelector(classifier, devices=[CPU], cache=tmp_path)(choice.MANY - 1), TorchEngine)


@pytest.mark.parametrize(
    ("device", "expected"),
    [("cpu", []), ("cuda:1", [{"accelerator": "cuda", "devices": [1], "precision": "bf16-mixed"}])],
)
def test_precision_is_that_of_the_run_where_there_is_a_gpu(classifier, monkeypatch, device, expected):
    asked = []

    class Pretended:
        def __init__(self, **options):
            asked.append(options)

        def setup_module(self, module):
            return module

    monkeypatch.setattr("lightning_fabric.Fabric", Pretended)
    assert len(TorchEngine(classifier, None, devices=[torch.device(device)], precision="bf16-mixed").copies) == 1
    assert asked == expected


@pytest.mark.parametrize("training", [False, True])
def test_the_network_given_stays_as_it_is(classifier, training, monkeypatch, cache):
    """Its weights, the mode of every part, and where it is."""
    own = copy.deepcopy(classifier)
    own.backbone.train(training)
    state = copy.deepcopy(own.state_dict())
    pointers = [parameter.data_ptr() for parameter in own.parameters()]
    modes = [part.training for part in own.modules()]
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setattr(choice, "MANY", 30)
    for rows in (5, 20, 40):
        score_images(own, SCENES, SCENES.rows("test")[:rows], workers=0)
    assert [part.training for part in own.modules()] == modes
    assert [parameter.data_ptr() for parameter in own.parameters()] == pointers
    assert all(parameter.requires_grad for parameter in own.parameters())
    for name, tensor in own.state_dict().items():
        assert torch.equal(tensor, state[name])


def test_scores_of_a_table_are_those_of_its_images(classifier, expected):
    rows = SCENES.rows("test")
    order = np.random.default_rng(0).permutation(len(rows))
    for workers in (0, 2):
        found = score_images(classifier, SCENES, rows[order], workers=workers)
        np.testing.assert_allclose(found, expected[order], rtol=0, atol=1e-4)


def test_one_scorer_for_images_and_for_features(classifier, expected):
    images = EngineSelector(classifier, devices=[CPU])(1)
    blocks = image_blocks(TEST, classifier.backbone.preprocessing, batch_size=7, workers=0)
    from_images = [scored.scores for scored in stream_scores(images, blocks)]
    with torch.inference_mode():
        features = classifier.backbone(tensors(classifier, TEST)).half().numpy()
    features.flags.writeable = False
    head = TorchEngine(classifier.head, None, devices=[CPU, CPU])
    from_features = [head(features[start : start + 7]) for start in range(0, len(features), 7)]
    np.testing.assert_allclose(np.concatenate(from_images), expected, rtol=0, atol=1e-4)
    np.testing.assert_allclose(np.concatenate(from_features), expected, rtol=1e-2, atol=1e-2)


def test_a_model_keeps_the_precision_of_its_run(tmp_path, classifier):
    from onepair.inference.model_files import save_model as save
    from tests.decisions import plain

    save(tmp_path, classifier, plain([0.0] * len(classifier.classes)), precision="bf16-mixed")
    assert read_description(tmp_path).precision == "bf16-mixed"


def test_scoring_does_not_need_onnx(classifier, expected, monkeypatch, tmp_path, everything_is_much):
    for name in choice.PACKAGES:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(choice, "missing_packages", lambda: list(choice.PACKAGES))
    found = EngineSelector(classifier, devices=[CPU], cache=tmp_path)(5000)(TEST)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)
