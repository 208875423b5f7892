"""The shipped configurations are valid, complete, and what their names say."""

from pathlib import Path

import pytest

from onepair.methods import METHODS, create_method
from onepair.runs.config import read_config, resolve_config

FILES = sorted((Path(__file__).parent.parent / "configs").glob("*.toml"))
DATASETS = ("coco2014", "cub", "nuswide", "voc2012")


def test_there_is_one_for_every_dataset_and_method():
    assert {file.stem for file in FILES} == {f"{dataset}_{name}" for dataset in DATASETS for name in METHODS}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_it_makes_the_method_it_is_named_after(file):
    config = resolve_config(read_config(file))
    info = METHODS[file.stem.partition("_")[2]]
    assert config.method.name == info.name
    create_method(info.name, **config.method.options, **({"epochs": config.epochs} if info.needs_epochs else {}))
    assert (config.model.backbone, config.model.image_size) == ("resnet50.tv_in1k", 448)
    assert config.data.observe == "single-positive"
    header = file.read_text().partition("\n\n")[0]
    assert f"--config configs/{file.name}" in header
    assert "Expected: test mAP" in header


def test_linear_mode_and_another_backbone_bring_their_own_settings():
    file = next(file for file in FILES if file.stem == "voc2012_opml-sp")
    fine = resolve_config(read_config(file))
    linear = resolve_config(read_config(file), {"model": {"mode": "linear", "backbone": "tf_efficientnet_lite0"}})
    assert (fine.optimiser.name, fine.optimiser.lr, fine.batch_size) == ("sgd", 1e-4, 8)
    assert (linear.optimiser.name, linear.optimiser.lr, linear.batch_size) == ("adam", 3e-4, 16)
    assert linear.model.image_size is None
    assert linear.method == fine.method
