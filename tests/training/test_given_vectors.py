"""Training on given vectors is training on fixed features, wherever those came from."""

import numpy as np
import pytest

from onepair.errors import ConfigError, RunError
from onepair.runs.finished import FinishedRun
from tests.training.tiny import CLASSES, SOLVED, TEST, TRAIN, labels_of, tiny_config

GIVEN = ("model.backbone=vectors", "model.image_size=none", SOLVED)


@pytest.fixture
def trained_on(train, tmp_path):
    """A run on vectors (46, D), one for each image, kept in any form."""

    def run(vectors, *settings, name="v.npy", **named):
        path = tmp_path / name
        np.savez(path, X=vectors, **named) if named else np.save(path, vectors)
        settings = (*GIVEN, f"data.features='{path}'", *settings)
        return FinishedRun(train(*settings, out=f"from {name}").folder.path)

    return run


@pytest.fixture
def vectors():
    """Of which a linear classifier can tell the classes, and which nothing else is remarkable about."""
    random = np.random.default_rng(0)
    labels = np.maximum(labels_of(TRAIN + TEST), 0)
    return labels @ random.normal(size=(len(CLASSES), 12)) + 0.3 * random.normal(size=(len(labels), 12))


def test_vectors_by_name_give_what_those_in_order_give(trained_on, vectors):
    one = trained_on(vectors)
    other = trained_on(vectors[::-1], name="v.npz", files=np.array(one.table.files[::-1]))
    for split in ("validation", "test"):
        np.testing.assert_array_equal(one.scores(split), other.scores(split))
    assert one.results == other.results


@pytest.mark.parametrize(("factor", "offset"), [(0.01, 0), (1000, 0), (1, 300), (20, -5000)])
def test_neither_size_nor_place_of_vectors_matters(trained_on, vectors, factor, offset):
    one, other = trained_on(vectors), trained_on(factor * vectors + offset, name="moved.npy")
    assert one.results.test_map > 0.9
    assert other.results.test_map == pytest.approx(one.results.test_map, abs=0.03)
    np.testing.assert_allclose(one.scores("test"), other.scores("test"), atol=0.5)


def test_vectors_of_zeros_but_for_a_few_are_learned_from(trained_on, vectors):
    sparse = np.where(np.random.default_rng(1).random(vectors.shape) < 0.4, vectors, 0)
    assert trained_on(sparse).results.test_map > 0.6


def test_the_model_that_is_kept_is_that_of_vectors_as_they_are(trained_on, vectors):
    run = trained_on(vectors + 50)
    head = run.classifier.head
    rows = run.table.vectors.take(run.rows("test"))
    by_hand = rows @ head.weight.detach().numpy().T + head.bias.detach().numpy()
    np.testing.assert_allclose(by_hand, run.scores("test"), atol=2e-3)


def test_a_run_does_not_go_on_with_other_vectors(train, tmp_path):
    random = np.random.default_rng(0)
    np.save(tmp_path / "v.npy", random.normal(size=(46, 5)))
    settings = (*GIVEN[:2], f"data.features='{tmp_path / 'v.npy'}'")  # by epochs, of which a checkpoint is kept
    done = train(*settings)
    assert FinishedRun(done.folder.path).task.input_fingerprint["shape"] == [46, 5]
    (done.folder.path / "results.json").unlink()
    np.save(tmp_path / "v.npy", random.normal(size=(46, 5)))
    with pytest.raises(RunError, match="the vectors are not those"):
        train(*settings)


def test_vectors_and_the_backbone_of_that_name_go_together(images):
    with pytest.raises(ConfigError, match=r"takes those that data\.features names"):
        tiny_config(images, *GIVEN)
    with pytest.raises(ConfigError, match="would make others; leave one of them out"):
        tiny_config(images, "data.features=v.npy")
