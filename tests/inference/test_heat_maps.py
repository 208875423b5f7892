"""Heat maps against slow references and captum; what they leave behind: nothing; and those of many images."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.nn import functional as F

from onepair.data.images import blocks as streaming
from onepair.data.images.batches import normalise, prepare
from onepair.data.images.decode import Preprocessing, decode
from onepair.data.label_table import LabelTable
from onepair.errors import NoMapsError
from onepair.inference import engine_selector as choice
from onepair.inference import heat_maps
from onepair.inference.heat_maps import activation_maps, evidence, suggestion_maps
from onepair.models import Backbone, Classifier, create_backbone

AVERAGED = ["small-cnn", "test_resnet", "test_efficientnet"]
DIFFERENTIATED = ["test_convnext", "test_vit", "test_vit2", "test_vit3"]  # norm after the pool; class token; …
SIZE = 96  # pixels, six patches across


@pytest.fixture(scope="module", params=AVERAGED)
def averaged(request):
    return make_classifier(request.param)


@pytest.fixture(scope="module", params=DIFFERENTIATED)
def differentiated(request):
    return make_classifier(request.param)


@pytest.fixture(scope="module")
def transformer():
    return make_classifier("vit_tiny_patch16_224", image_size=64)


def make_classifier(name, image_size=SIZE):
    torch.manual_seed(0)
    classifier = Classifier(create_backbone(name, weights="none", image_size=image_size), ["a", "b", "c", "d"]).eval()
    for module in classifier.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_var, 0.5, 2)
            nn.init.normal_(module.bias)
    nn.init.normal_(classifier.head.weight)
    nn.init.normal_(classifier.head.bias)
    return classifier


def some_images(size=SIZE, count=3):
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(1))


def logits_of_places(classifier, images):
    """What the linear layer makes of the features of one place after the other."""
    features = classifier.backbone.network.forward_features(images)
    found = torch.empty(len(images), len(classifier.classes), *features.shape[2:])
    for y in range(features.shape[2]):
        for x in range(features.shape[3]):
            found[:, :, y, x] = classifier.head(features[:, :, y, x])
    return found


def test_averaged_features_give_the_logits_of_each_place(averaged):
    images = some_images()
    found = activation_maps(averaged, images)
    torch.testing.assert_close(found, logits_of_places(averaged, images).detach(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found.mean((2, 3)), averaged(images).detach(), rtol=1e-4, atol=1e-5)
    assert not found.requires_grad
    assert found.std((2, 3)).min() > 1e-3


def test_other_features_give_maps_with_the_same_mean(differentiated):
    images = some_images()
    found = activation_maps(differentiated, images)
    torch.testing.assert_close(found.mean((2, 3)), differentiated(images).detach(), rtol=1e-4, atol=1e-4)
    assert not found.requires_grad
    assert found.std((2, 3)).min() > 1e-3


def test_gradients_of_averaged_features_give_the_same(averaged):
    images = some_images()
    spatial = averaged.backbone.spatial(images)
    differentiated = heat_maps._grad_cam(averaged.head, spatial, None)
    torch.testing.assert_close(differentiated, activation_maps(averaged, images), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("name", "layer"), [("test_resnet", "layer4"), ("test_convnext", "stages")])
def test_captum_agrees(name, layer):
    captum = pytest.importorskip("captum.attr", reason="needs captum")
    classifier, images = make_classifier(name), some_images()
    found = activation_maps(classifier, images)
    reference = captum.LayerGradCam(classifier, classifier.backbone.network.get_submodule(layer))
    for target in range(len(classifier.classes)):
        expected = reference.attribute(images, target=target).detach()[:, 0] * found[0, 0].numel()  # theirs is a mean
        moved = found[:, target] - found[:, target].mean((1, 2), keepdim=True)
        torch.testing.assert_close(moved, expected - expected.mean((1, 2), keepdim=True), rtol=1e-3, atol=1e-3)


def test_a_transformer_taken_apart_by_hand(transformer):
    images, network = some_images(64), transformer.backbone.network
    tokens = network.norm_pre(network.patch_drop(network._pos_embed(network.patch_embed(images))))
    before = network.blocks[:-1](tokens).detach().requires_grad_()
    logits = transformer.head(network.forward_head(network.norm(network.blocks[-1](before))))
    torch.testing.assert_close(logits, transformer(images))
    found = activation_maps(transformer, images)
    assert found.shape == (3, 4, 4, 4)
    for target in range(4):
        (slopes,) = torch.autograd.grad(logits[:, target].sum(), before, retain_graph=True)
        for image in range(3):
            weights = slopes[image, 1:].sum(0)
            expected = (before[image, 1:].detach() @ weights).reshape(4, 4)
            expected = expected - expected.mean() + logits[image, target].detach()
            torch.testing.assert_close(found[image, target], expected, rtol=1e-3, atol=1e-4)


def test_maps_of_a_transformer_move_with_the_patches(transformer):
    position = transformer.backbone.network.pos_embed
    kept = position.detach().clone()
    images = some_images(64)
    try:
        with torch.no_grad():
            position.zero_()
        plain, moved = (activation_maps(transformer, each) for each in (images, images.roll((16, 32), dims=(2, 3))))
        torch.testing.assert_close(moved, plain.roll((1, 2), dims=(2, 3)), rtol=1e-3, atol=1e-4)
    finally:
        position.data.copy_(kept)


@pytest.mark.parametrize("name", ["test_resnet", "test_vit"])
def test_some_classes_of_each_image(name):
    classifier, images = make_classifier(name), some_images()
    every = activation_maps(classifier, images)
    classes = torch.tensor([[3, 0], [1, 1], [2, 3]])
    found = activation_maps(classifier, images, classes)
    for image in range(3):
        torch.testing.assert_close(found[image], every[image, classes[image]])


def state_of(classifier):
    """All that a careless use of a model changes."""
    hooks = [getattr(part, name) for part in classifier.modules() for name in vars(part) if name.endswith("_hooks")]
    return {
        "hooks": sum(map(len, hooks)),
        "training": [part.training for part in classifier.modules()],
        "gradients": [None if each.grad is None else each.grad.clone() for each in classifier.parameters()],
        "learning": [each.requires_grad for each in classifier.parameters()],
        "values": [each.clone() for each in classifier.state_dict().values()],
        "grad mode": torch.is_grad_enabled(),
    }


@pytest.mark.parametrize("name", ["test_resnet", "test_convnext", "test_vit"])
def test_a_classifier_is_left_as_it_was(name):
    classifier, images = make_classifier(name), some_images()
    expected = activation_maps(classifier, images)
    classifier.head.train()
    next(classifier.backbone.network.children()).train()
    classifier.head.weight.grad = torch.ones_like(classifier.head.weight)
    next(classifier.parameters()).requires_grad_(False)
    with torch.no_grad():
        before = state_of(classifier)
        found = activation_maps(classifier, images)
        after = state_of(classifier)
    torch.testing.assert_close(found, expected)  # evaluated, whatever its mode
    torch.testing.assert_close(after, before)
    assert any(before["training"])
    assert not all(before["training"])


def test_nothing_is_left_behind_by_a_failure(monkeypatch):
    classifier = make_classifier("test_vit").train()
    before = state_of(classifier)

    def fail(*_):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(classifier.backbone.network.blocks[-1], "forward", fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        activation_maps(classifier, some_images())
    torch.testing.assert_close(state_of(classifier), before)


def test_features_without_places_are_refused():
    classifier = make_classifier("crossvit_tiny_240", image_size=None)
    with pytest.raises(NoMapsError, match="crossvit_tiny_240"):
        activation_maps(classifier, some_images(240, count=1))


def test_only_small_images_of_flexible_networks_are_enlarged():
    sizes = {"test_resnet": (160, 256), "test_vit": (160, 160), "small-cnn": (32, 32), "resnet18": (448, 448)}
    for name, (size, expected) in sizes.items():
        assert create_backbone(name, weights="none", image_size=size).map_size == expected, name


def test_evidence_by_hand():
    given = torch.full((1, 1, 4, 5), -1.0)
    given[0, 0, 1, 3] = 16.0
    found = evidence(given)[0, 0]
    expected = torch.zeros(4, 5)
    for y in range(4):
        for x in range(5):
            total = 0.0
            for j, down in enumerate((1, 2, 1)):
                for i, across in enumerate((1, 2, 1)):
                    total += down * across / 16 * given[0, 0, min(max(y + j - 1, 0), 3), min(max(x + i - 1, 0), 4)]
            expected[y, x] = max(total, 0.0)
    torch.testing.assert_close(found, expected / expected.max())
    assert found[1, 3] == 1


def test_weak_evidence_stays_dark():
    level = torch.tensor([-3.0, 0.0, 0.25, 1.0, 7.0]).view(1, 5, 1, 1).expand(1, 5, 3, 3)
    torch.testing.assert_close(evidence(level).amax((2, 3)), torch.tensor([[0, 0, 0.25, 1, 1]]))


class Blocks(nn.Module):
    """The mean colour of squares of eight pixels, averaged."""

    num_features = 3

    def forward_features(self, images):
        return F.avg_pool2d(images, 8)

    def forward_head(self, features):
        return features.mean((2, 3))

    def forward(self, images):
        return self.forward_head(self.forward_features(images))


@pytest.fixture(scope="module")
def coloured(tmp_path_factory):
    """Black images with a red square, a green and a blue one, and a classifier that knows the colours."""
    folder = tmp_path_factory.mktemp("coloured")
    places = np.array([[(0, 3), (2, 0), (3, 3)], [(1, 1), (0, 0), (2, 3)], [(3, 0), (3, 2), (0, 1)]])  # rows, columns
    for number, squares in enumerate(places):
        pixels = np.zeros((32, 64, 3), np.uint8)  # twice as wide as the classifier sees it
        for colour, (y, x) in enumerate(squares):
            pixels[8 * y : 8 * y + 8, 16 * x : 16 * x + 16, colour] = 255
        Image.fromarray(pixels).save(folder / f"{number}.png")
    table = LabelTable(
        files=tuple(f"{number}.png" for number in range(3)),
        classes=("red", "green", "blue"),
        labels=np.ones((3, 3), np.int8),
        split=np.full(3, "train"),
        root=folder,
    )
    preprocessing = Preprocessing(32, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
    classifier = Classifier(Backbone("blocks", Blocks(), preprocessing), table.classes)
    with torch.no_grad():
        classifier.head.weight.copy_(10 * torch.eye(3))
        classifier.head.bias.zero_()
    return classifier, table, places


def test_suggestions_show_where_things_are(coloured, monkeypatch):
    classifier, table, places = coloured
    monkeypatch.setattr(choice, "ON_CPU", 2)
    reads = []

    def counted(path, **options):
        reads.append(path.name)
        return decode(path, **options)

    monkeypatch.setattr(streaming, "decode", counted)
    rows, classes = np.array([2, 0, 2, 1, 0, 2, 0]), np.array([1, 0, 0, 2, 2, 1, 1])
    told = []
    found = suggestion_maps(
        classifier, table, rows, classes, workers=0, on_progress=lambda done, total: told.append((done, total))
    )
    assert (found.shape, found.dtype) == ((7, 4, 4), np.uint8)
    for row, column, map_ in zip(rows, classes, found, strict=True):
        assert tuple(np.unravel_index(map_.argmax(), (4, 4))) == tuple(places[row, column])
        assert map_.max() == 255
    assert sorted(reads) == ["0.png", "1.png", "2.png"]
    assert told == [(2, 3), (3, 3)]


@pytest.mark.parametrize(("name", "boost"), [("test_resnet", 1.0), ("test_resnet", 5.0), ("test_vit", 1.0)])
def test_suggestions_agree_with_maps_one_by_one(coloured, monkeypatch, tmp_path, name, boost):
    _, table, _ = coloured
    classifier = make_classifier(name)
    classifier.boost = boost
    classifier.classes = table.classes
    preprocessing = replace(classifier.backbone.preprocessing, size=classifier.backbone.map_size)
    rows, classes = np.array([1, 0, 0, 2, 1, 1]), np.array([2, 0, 1, 2, 0, 1])
    found = suggestion_maps(classifier, table, rows, classes, workers=0, cache=tmp_path)
    for row, column, map_ in zip(rows.tolist(), classes.tolist(), found, strict=True):
        image = normalise(prepare(decode(table.path(row)), preprocessing)[None], preprocessing)
        expected = 255 * evidence(activation_maps(classifier, image))[0, column]
        assert np.abs(map_ - expected.numpy()).max() <= 1


def test_no_suggestions(coloured):
    classifier, table, _ = coloured
    assert len(suggestion_maps(classifier, table, np.zeros(0, np.intp), np.zeros(0, np.intp))) == 0


def test_one_graph_for_many_images(coloured, tmp_path, monkeypatch):
    """ONNX Runtime computes what torch does, as for features."""
    _, table, _ = coloured
    classifier = make_classifier("test_resnet")
    rows, classes = np.array([1, 0, 0, 2]), np.array([2, 0, 1, 2])
    expected = suggestion_maps(classifier, table, rows, classes, workers=0)
    monkeypatch.setattr(choice, "MANY", 1)
    found = suggestion_maps(classifier, table, rows, classes, workers=0, cache=tmp_path)
    assert [file.stat().st_size > 0 for file in (tmp_path / "graphs").iterdir()] == [True]
    assert np.abs(found.astype(int) - expected).max() <= 1
