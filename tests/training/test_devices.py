"""Everything that computes keeps its tensors on one device, and waits for it at most once in a step."""

import numpy as np
import pytest
import torch

from onepair.data.formats.read import read_dataset
from onepair.features import extract_features
from onepair.inference.engine_selector import EngineSelector, score_images
from onepair.inference.heat_maps import activation_maps, suggestion_maps
from onepair.inference.prediction import Model
from onepair.methods import METHODS
from onepair.models import Classifier, create_backbone
from onepair.probability.thresholds import fit_decisions
from onepair.training.loop import Trainer
from tests.elsewhere import DEVICE, Elsewhere, MixedDevicesError, other_device
from tests.training.test_run import SHORT
from tests.training.tiny import CLASSES, SIZE, train_tiny


@pytest.fixture
def classifier():
    torch.manual_seed(0)
    return Classifier(create_backbone("small-cnn", weights="none", image_size=SIZE), CLASSES).eval()


@pytest.fixture
def waits(monkeypatch):
    with other_device(monkeypatch) as waits:
        yield waits


def test_tensors_of_two_devices_do_not_mix(waits):
    away, here = torch.ones(2, 2).to(DEVICE), torch.ones(2, 2)
    assert (away + 1).device == DEVICE
    assert waits == []
    for mix in (torch.add, torch.matmul, torch.nn.functional.linear, lambda a, b: a[b[0].long()], torch.Tensor.add_):
        with pytest.raises(MixedDevicesError):
            mix(away, here)
        with pytest.raises(MixedDevicesError):
            mix(here, away)
    assert torch.equal((away * torch.tensor(3.0)).cpu(), 3 * here)
    assert waits == ["_to_copy"]
    assert away.sum().item() == 4
    assert waits == ["_to_copy", "_local_scalar_dense"]


def test_gradients_reach_the_other_device(waits):
    layer = torch.nn.Linear(3, 2).to(DEVICE)
    layer(torch.ones(4, 3).to(DEVICE)).sum().backward()
    assert isinstance(layer.weight.grad, Elsewhere)
    assert torch.equal(layer.weight.grad.cpu(), torch.full((2, 3), 4.0))


def extracted(table, backbone, rows, folder, device):
    engines = EngineSelector(backbone, devices=[device], cache=folder)
    return extract_features(
        table, backbone, backbone.preprocessing, engines, folder=folder, rows=rows, workers=0
    ).features


def test_scores_maps_and_features(images, classifier, tmp_path, monkeypatch):
    table, rows = read_dataset(str(images)), np.array([3, 3, 5])
    labels = np.array([0, 2, 1])
    scores = score_images(classifier, table, rows, workers=0)
    maps = suggestion_maps(classifier, table, rows, labels, workers=0)
    backbone, scaling = classifier.backbone, classifier.backbone.preprocessing
    with other_device(monkeypatch):
        np.testing.assert_array_equal(score_images(classifier, table, rows, workers=0), scores)
        assert classifier.head.weight.device.type == "cpu"  # where it was
        np.testing.assert_array_equal(suggestion_maps(classifier, table, rows, labels, workers=0), maps)
        classifier.to(DEVICE)
        np.testing.assert_array_equal(suggestion_maps(classifier, table, rows, labels, workers=0), maps)
        for pooled in (True, False):  # class activation maps, then Grad-CAM
            monkeypatch.setattr("onepair.inference.heat_maps._is_mean", lambda spatial, pooled=pooled: pooled)
            assert activation_maps(classifier, torch.rand(2, 3, SIZE, SIZE).to(DEVICE)).device == DEVICE
        features = extracted(table, backbone, rows, tmp_path / "elsewhere", DEVICE)
        decisions = fit_decisions(scores, table.labels[rows])
        engines = EngineSelector(classifier, devices=[DEVICE], cache=tmp_path / "graphs")
        model = Model(tmp_path, CLASSES, decisions, scaling, engines, classifier)
        np.testing.assert_array_equal(model.scores([table.path(row) for row in rows]), scores)
        weights = {name: tensor.cpu() for name, tensor in backbone.state_dict().items()}
    plain = create_backbone("small-cnn", weights="none", image_size=SIZE)
    plain.load_state_dict(weights)
    expected = extracted(table, plain, rows, tmp_path / "here", torch.device("cpu"))
    np.testing.assert_array_equal(features, expected)


@pytest.mark.parametrize(
    ("name", "mode"), [*((name, "linear") for name in METHODS), ("opml-sp", "finetune"), ("role", "linear-init")]
)
def test_every_method_trains_elsewhere_as_here_and_waits_once_a_step(images, tmp_path, monkeypatch, name, mode):
    settings = (
        f"method.name={name}",
        f"model.mode={mode}",
        "finetune.epochs=2",
        "linear.epochs=2",
        *SHORT.get(name, ()),
    )
    here = train_tiny(images, *settings, out=tmp_path / "here", cache=tmp_path / "cache")
    in_steps, train_epoch = [], Trainer.train_epoch

    with other_device(monkeypatch) as waits:

        def count(trainer, epoch):
            assert next(trainer.stage.model.parameters()).device == DEVICE
            before = len(waits)
            mean = train_epoch(trainer, epoch)
            in_steps.append(waits[before:])
            return mean

        monkeypatch.setattr(Trainer, "train_epoch", count)
        elsewhere = train_tiny(images, *settings, out=tmp_path / "elsewhere", cache=tmp_path / "own cache")
    assert elsewhere.weights == here.weights
    for waited in in_steps:
        assert len(waited) <= 4, waited  # batches in an epoch
