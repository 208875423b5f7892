"""FSDP spreads nearly all weights of a network, block by block."""

import pytest
from torch import nn

from onepair.models import Classifier, create_backbone
from onepair.training.distributed import sharded_parts


@pytest.mark.parametrize(
    ("name", "most", "fewest"),
    [
        ("resnet50", 0.15, 12),
        ("tf_efficientnet_lite0", 0.15, 12),
        ("vit_tiny_patch16_224", 0.15, 12),
        ("convnext_atto", 0.15, 12),
        ("small-cnn", 0.8, 3),  # one convolution has three quarters of all
    ],
)
def test_nearly_all_weights_are_in_blocks_that_are_small(name, most, fewest):
    classifier = Classifier(create_backbone(name, weights="none"), [str(i) for i in range(20)])
    parts = sharded_parts(classifier)
    members = [parameter for part in parts for parameter in part.parameters()]
    assert len({id(parameter) for parameter in members}) == len(members)  # none is in two parts
    size = sum(parameter.numel() for parameter in classifier.parameters())
    assert sum(parameter.numel() for parameter in members) > 0.97 * size
    assert max(sum(parameter.numel() for parameter in part.parameters()) for part in parts) < most * size
    assert len(parts) >= fewest
    assert not any(isinstance(part, nn.Sequential | nn.ModuleList) for part in parts)


def test_a_layer_alone_is_spread_as_a_whole():
    assert sharded_parts(nn.Linear(3, 2)) == []
