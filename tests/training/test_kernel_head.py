"""A kernel head on fixed features: trained, stored, found with, explained and exported as a linear one is."""

import numpy as np
import pytest
import torch

from onepair.errors import ConfigError
from onepair.finding.find import find_labels
from onepair.inference.engine import open_session
from onepair.inference.export import export_onnx
from onepair.inference.heat_maps import activation_maps
from onepair.models.backbone import KernelHead
from onepair.runs.finished import FinishedRun
from onepair.training.hardware import Hardware
from tests.training.tiny import CLASSES, SIZE, SOLVED, TEST, TRAIN, Listener, tiny_config

KERNEL = (SOLVED, "linear.head=kernel", "method.name=opml-plus")


@pytest.fixture
def run(train):
    return FinishedRun(train(*KERNEL).folder.path)


def test_a_stored_model_scores_as_the_one_that_was_trained(run):
    assert isinstance(run.classifier.head, KernelHead)
    assert run.classifier.head.weight.shape == (len(CLASSES), TRAIN)
    for split, size in (("train", TRAIN), ("test", TEST)):
        kept = run.scores(split)
        assert kept.shape == (size, len(CLASSES))
        (run.path / f"scores_{split}.npy").unlink()
        np.testing.assert_allclose(run.scores(split, workers=0), kept, atol=0.02)  # features are kept in half precision


def test_finding_and_heat_maps(run, cache):
    hardware = Hardware(accelerator="cpu", devices=1, workers=0, cache=cache)
    assert find_labels(run, hardware=hardware, callbacks=[Listener()]).folds == 5
    images = torch.randn(2, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(0))
    maps = activation_maps(run.classifier, images)
    with torch.no_grad():
        torch.testing.assert_close(maps.mean((2, 3)), run.classifier(images), atol=1e-4, rtol=1e-4)


def test_onnx_computes_what_torch_does(run, tmp_path):
    exported = export_onnx(run.path, tmp_path / "model.onnx", float_input=True)
    assert exported.difference < 1e-4
    images = np.random.default_rng(0).normal(size=(5, 3, SIZE, SIZE)).astype(np.float32)
    (logits,) = open_session((tmp_path / "model.onnx").read_bytes()).run(["logits"], {"images": images})
    with torch.inference_mode():
        np.testing.assert_allclose(logits, run.classifier(torch.from_numpy(images)).numpy(), atol=1e-4)


@pytest.mark.parametrize("settings", [("linear.head=kernel",), (*KERNEL, "model.mode=linear-init")], ids=str)
def test_it_is_refused_where_nothing_is_solved_for(settings):
    with pytest.raises(ConfigError, match=r"linear\.head kernel is solved for on fixed features, in mode linear alone"):
        tiny_config("", *settings)
