"""Networks cut in two: both parts together compute what the whole does."""

import pytest
import torch

from onepair.errors import ConfigError
from onepair.models import Classifier, create_backbone
from onepair.models.backbone import TrainableSuffix, split_at

# One of each kind: convolutions, residuals, tokens, channels last, dense connections, and our own.
STAGES = [
    ("tf_efficientnet_lite0", "blocks.5"),
    ("tf_efficientnet_lite0", "conv_head"),
    ("test_resnet", "layer4"),
    ("test_vit", "blocks.4"),
    ("test_convnext", "stages.2"),
    ("test_efficientnet", "blocks.3.0"),
    ("small-cnn", "6"),
]


def classifier_of(name):
    return Classifier(create_backbone(name, weights="none", image_size=None if name == "test_vit" else 64), "abc")


@pytest.mark.parametrize(("name", "stage"), STAGES)
def test_both_parts_compute_what_the_whole_does(name, stage):
    torch.manual_seed(0)
    classifier = classifier_of(name).eval()
    cut = split_at(classifier.backbone, stage)
    size = classifier.backbone.preprocessing.size
    images = torch.randn(3, 3, size, size)
    activations = cut.backbone(images)
    assert activations.shape == (3, cut.backbone.feature_dim)
    torch.testing.assert_close(TrainableSuffix(classifier, cut)(activations), classifier(images), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("name", "stage"), STAGES)
def test_what_lies_before_the_stage_does_not_learn(name, stage):
    torch.manual_seed(0)
    classifier = classifier_of(name)
    cut = split_at(classifier.backbone, stage)
    part = TrainableSuffix(classifier, cut).train()
    size = classifier.backbone.preprocessing.size
    part(cut.backbone(torch.randn(3, 3, size, size)).detach()).square().sum().backward()
    learns = {name for name, weight in classifier.backbone.network.named_parameters() if weight.grad is not None}
    allowed = {name for name, weight in classifier.backbone.network.named_parameters() if weight.requires_grad}
    assert learns == allowed
    assert any(name.startswith(f"{stage}.") for name in learns)
    everything = [name for name, _ in classifier.backbone.network.named_parameters()]
    first = next(place for place, name in enumerate(everything) if name.startswith(f"{stage}."))
    assert learns == set(everything[first:])


def test_the_part_before_a_stage_is_known_by_its_own_weights():
    backbone = create_backbone("small-cnn")
    before = split_at(backbone, "6").backbone.weights_id()
    with torch.no_grad():
        backbone.network[9].weight += 1
    assert split_at(backbone, "6").backbone.weights_id() == before
    with torch.no_grad():
        backbone.network[3].weight += 1
    assert split_at(backbone, "6").backbone.weights_id() != before


def test_places_lie_beside_each_other_as_fast_convolutions_want_them():
    backbone = create_backbone("small-cnn")
    cut = split_at(backbone, "6")
    taken = []
    backbone.network[6].register_forward_pre_hook(lambda _, inputs: taken.append(inputs[0]))
    TrainableSuffix(Classifier(backbone, "ab"), cut)(cut.backbone(torch.randn(2, 3, 32, 32)))
    assert taken[0].is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("name", "stage", "sentence"),
    [
        ("test_resnet", "layer9", r"test_resnet cannot be trained from 'layer9'; did you mean layer4\?"),
        ("test_resnet", "head", "there are conv1, .*, maxpool, layer1"),
        ("test_resnet", "layer4.0.conv2", "past which other information goes; name a whole stage"),
        ("small-cnn", "", "there are 0, 1, 2"),
    ],
)
def test_where_a_network_cannot_be_cut(name, stage, sentence):
    with pytest.raises(ConfigError, match=sentence):
        split_at(classifier_of(name).backbone, stage)


def test_a_cut_leaves_the_network_as_it_was():
    backbone = create_backbone("small-cnn").train()
    before = backbone.weights_id()
    split_at(backbone, "3")
    assert backbone.network.training
    assert backbone.weights_id() == before
    assert not backbone.network[3]._forward_hooks
