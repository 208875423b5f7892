"""A boosted classifier: its slow definition, its maps, its files and its engines."""

import pytest
import torch

from onepair.inference.engine import MANY
from onepair.inference.engine_selector import EngineSelector
from onepair.inference.heat_maps import activation_maps
from onepair.inference.model_files import load_model, save_model
from onepair.models import Classifier, create_backbone
from onepair.models.frozen_prefix import TrainableSuffix, split_at
from tests.decisions import plain

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
