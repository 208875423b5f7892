"""Heat maps against slow references and captum; what they leave behind: nothing."""

import pytest
import torch
from torch import nn

from onepair.errors import NoMapsError
from onepair.models import Classifier, create_backbone, maps
from onepair.models.maps import activation_maps, evidence

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
    differentiated = maps._grad_cam(averaged.head, spatial, None)
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
