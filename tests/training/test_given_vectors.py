"""Training on given vectors is training on fixed features, wherever those came from."""

import numpy as np
import pytest

from onepair.data.features import extract_features
from onepair.inference.choice import Engines
from onepair.models import GivenVectors, create_backbone
from onepair.runs.config import ConfigError
from onepair.runs.finished import FinishedRun
from onepair.runs.folder import RunError
from onepair.training import run as running
from tests.training.tiny import SIZE, tiny_config

GIVEN = ("model.backbone=vectors", "model.image_size=none")


class DrawnAfterANetwork(GivenVectors):
    """The head's weights are drawn after those of the network that the vectors came from."""

    def __init__(self, width):
        create_backbone("small-cnn", weights="none", image_size=SIZE)
        super().__init__(width)


def test_vectors_by_name_give_what_the_cache_of_features_gives(train, images, cache, tmp_path, monkeypatch):
    from_images = train(out="from images")
    run = FinishedRun(from_images.folder.path)
    backbone, table = run.classifier.backbone, run.table
    features = extract_features(
        table, backbone, backbone.preprocessing, Engines(backbone), folder=cache / "features"
    ).features
    np.savez(tmp_path / "v.npz", X=features[::-1], files=np.array(table.files[::-1]))
    np.save(tmp_path / "v.npy", features)
    monkeypatch.setattr(running, "GivenVectors", DrawnAfterANetwork)
    for name in ("v.npz", "v.npy"):
        given = train(*GIVEN, f"data.features='{tmp_path / name}'", out=f"from {name}")
        for split in ("validation", "test"):
            np.testing.assert_array_equal(given.folder.scores(split), from_images.folder.scores(split))
        assert given.results == from_images.results


def test_a_run_does_not_go_on_with_other_vectors(train, tmp_path):
    random = np.random.default_rng(0)
    np.save(tmp_path / "v.npy", random.normal(size=(46, 5)))
    settings = (*GIVEN, f"data.features='{tmp_path / 'v.npy'}'")
    done = train(*settings)
    assert FinishedRun(done.folder.path).task.given["shape"] == [46, 5]
    (done.folder.path / "results.json").unlink()
    np.save(tmp_path / "v.npy", random.normal(size=(46, 5)))
    with pytest.raises(RunError, match="the vectors are not those"):
        train(*settings)


def test_vectors_and_the_backbone_of_that_name_go_together(images):
    with pytest.raises(ConfigError, match=r"takes those that data\.features names"):
        tiny_config(images, *GIVEN)
    with pytest.raises(ConfigError, match="would make others; leave one of them out"):
        tiny_config(images, "data.features=v.npy")
