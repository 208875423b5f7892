"""The linear stage as it comes: neither size nor place of features matters, and weights are held near 0."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from onepair.data.features import extract_features
from onepair.inference.choice import Engines
from onepair.inference.inputs import FeatureSource, Shard
from onepair.runs.checkpoint import load_state
from onepair.runs.finished import FinishedRun
from onepair.runs.stages import LinearConfig, LinearOptimiserConfig
from onepair.training.on_features import begin_on_features, on_plain_features
from tests.training.tiny import CLASSES, TEST, TRAIN, labels_of

AS_IT_COMES = (
    "linear.scaled=true",
    "linear.penalty=0.3",
    "linear.optimiser.schedule=cosine",
    "linear.optimiser.lr=0.0003",
    "linear.optimiser.weight_decay=0.0",
)


@pytest.fixture
def run_on(train, tmp_path):
    """A run on vectors (46, D) with all labels given, by the defaults of the stage but for what is set."""

    def run(vectors, *settings, out="run"):
        np.save(tmp_path / f"{out}.npy", vectors)
        given = ("model.backbone=vectors", "model.image_size=none", f"data.features='{tmp_path / f'{out}.npy'}'")
        done = train(*given, *AS_IT_COMES, "data.observe=given", *settings, out=out)
        return FinishedRun(done.folder.path)

    return run


@pytest.fixture
def vectors():
    return np.random.default_rng(0).normal(size=(46, 6)) * [1, 2, 3, 0.5, 1, 1] + 4


def solution(features, labels, penalty):
    """The one that the penalty asks for: of the sum over rows of all labels' cross entropies, plus v λ / 2 ‖W‖²."""
    features, labels = torch.from_numpy(features).double(), torch.from_numpy(labels).double()
    weight = torch.zeros(labels.shape[1], features.shape[1], dtype=torch.float64, requires_grad=True)
    bias = torch.zeros(labels.shape[1], dtype=torch.float64, requires_grad=True)
    varies = (features - features.mean(0)).square().sum(1).mean()
    optimiser = torch.optim.LBFGS([weight, bias], max_iter=500, tolerance_grad=1e-10, line_search_fn="strong_wolfe")

    def objective():
        optimiser.zero_grad()
        loss = F.binary_cross_entropy_with_logits(features @ weight.T + bias, labels, reduction="sum")
        loss = loss + penalty * varies / 2 * weight.square().sum()
        loss.backward()
        return loss

    optimiser.step(objective)
    return weight.detach().numpy()


@pytest.mark.parametrize("penalty", [0.3, 5.0])
@pytest.mark.parametrize("rule", ["adam", "sgd"])
def test_it_ends_where_the_penalised_problem_has_its_solution(run_on, vectors, penalty, rule):
    settings = ["method.name=bce", f"linear.penalty={penalty}", "linear.epochs=400"]
    settings += ["linear.optimiser.name=sgd", "linear.optimiser.lr=0.05"] if rule == "sgd" else []
    run = run_on(vectors, *settings)
    expected = solution(vectors[run.task.train], run.task.observed.dense(), penalty)
    assert np.abs(last_weights(run) - expected).max() < 0.05 * np.abs(expected).max()


def last_weights(run):
    """Where learning has ended, which need not be the best epoch, for vectors as they are."""
    state = load_state(run.path / "linear-last.safetensors")["model"]
    head = torch.nn.Linear(*reversed(state["weight"].shape))
    start = begin_on_features(
        head, FeatureSource(run.table.vectors), run.task.train, run.config.linear, sums_labels=True
    )
    return on_plain_features(state, start.source)["weight"].numpy()


@pytest.mark.parametrize(
    ("rows", "config", "longer"),
    [
        (1920, LinearConfig(), 1),
        (10_000, LinearConfig(), 1),
        (480, LinearConfig(), 2),
        (480, LinearConfig(epochs=100), 1),
        (1920, LinearConfig(batch_size=64), 2),
        (1920, LinearConfig(batch_size=64, optimiser=LinearOptimiserConfig(name="sgd")), 1),
        (480, LinearConfig(scaled=False), 1),
    ],
)
def test_where_steps_are_few_they_are_longer(rows, config, longer):
    def rates(config):
        features = torch.rand(rows, 2, generator=torch.Generator().manual_seed(0))
        head = torch.nn.Linear(2, 3)
        start = begin_on_features(head, FeatureSource(features), np.arange(rows), config, sums_labels=True)
        return np.array([group.lr_factor for group in start.groups])

    assert rates(config) / rates(replace(config, epochs=10_000)) == pytest.approx(longer)


def test_a_loss_that_sums_over_labels_is_held_as_one_that_is_their_mean(run_on, vectors):
    """A penalty that takes the labels' mean for their sum would be as many times too strong as there are labels."""
    lengths = {}
    for name in ("bce", "opml-plus"):
        for penalty in (0.3, 30.0):
            settings = (f"method.name={name}", f"linear.penalty={penalty}", "linear.epochs=60")
            run = run_on(vectors, *settings, out=f"{name} {penalty}")
            lengths[name, penalty] = np.linalg.norm(last_weights(run))
    for name in ("bce", "opml-plus"):
        assert lengths[name, 30.0] < 0.5 * lengths[name, 0.3]
    ratios = [lengths[name, 30.0] / lengths[name, 0.3] for name in ("bce", "opml-plus")]
    assert ratios[0] == pytest.approx(ratios[1], rel=0.6)


def test_adamw_has_a_decay_of_its_own_and_no_penalty(run_on, vectors):
    one, other = (
        run_on(vectors, "linear.optimiser.name=adamw", f"linear.penalty={penalty}", out=str(penalty))
        for penalty in (0.0, 5.0)
    )
    np.testing.assert_array_equal(one.scores("test"), other.scores("test"))


def test_features_of_a_network_are_learned_from_as_the_same_vectors_are(train, run_on, images, cache):
    own = FinishedRun(train(*AS_IT_COMES, "data.observe=given", out="own").folder.path)
    backbone, table = own.classifier.backbone, own.table
    rows = np.arange(len(table))
    features = extract_features(
        table, backbone, backbone.preprocessing, Engines(backbone), folder=cache / "features", rows=rows
    ).features
    given = run_on(np.array(features), out="given")
    np.testing.assert_allclose(given.scores("test"), own.scores("test"), rtol=1e-5, atol=1e-5)
    assert own.results.test_map > 0.5


def test_variance_is_about_the_mean_wherever_that_is():
    features = torch.tensor([[1.0, 10.0], [3.0, 10.0], [5.0, 16.0]])
    expected = (4 + 0 + 4) / 3 + (4 + 4 + 16) / 3
    rows = np.arange(3)
    for source in (FeatureSource(features), FeatureSource(features).levelled(rows), FeatureSource(features + 100)):
        assert source.variance(rows) == pytest.approx(expected)


def test_a_feature_in_much_smaller_units_is_brought_down_to_what_others_may_vary():
    random = np.random.default_rng(0)
    features = torch.from_numpy(random.normal(size=(500, 5)) * [1, 1, 2, 1, 1000] + 7).float()
    rows = np.arange(500)
    source = FeatureSource(features).levelled(rows)
    assert source.scale[:4].tolist() == [1, 1, 1, 1]
    (batch,) = source.batches(rows, batch_size=500, shard=Shard(), training=False)
    deviations = batch.inputs.std(0, correction=0)
    assert float(deviations[4]) == pytest.approx(3 * float(deviations.median()), rel=1e-3)
    assert batch.inputs.mean(0).abs().max() < 0.01
    assert FeatureSource(features[:, :4]).levelled(rows).scale is None
    constant = torch.full((500, 9), 0.1) + 1e-9 * torch.rand(500, 9, generator=torch.Generator().manual_seed(0))
    assert FeatureSource(torch.hstack([features[:, :4], constant])).levelled(rows).scale is None
    assert FeatureSource(constant).levelled(rows).scale is None


def test_a_feature_in_much_smaller_units_does_not_drown_the_others(run_on):
    random = np.random.default_rng(0)
    labels = np.maximum(labels_of(TRAIN + TEST), 0)
    telling = labels @ random.normal(size=(len(CLASSES), 12)) + 0.3 * random.normal(size=(len(labels), 12))
    noise = 1e5 * random.normal(size=(len(labels), 1))
    assert run_on(np.hstack([telling, noise])).results.test_map > 0.9


def test_among_features_that_are_mostly_0_only_those_far_from_it_are_moved():
    random = np.random.default_rng(0)
    words = np.where(random.random((500, 30)) < 0.05, random.integers(1, 4, (500, 30)), 0.0)
    rows = np.arange(500)
    assert FeatureSource(torch.from_numpy(words)).levelled(rows).scale is None
    salary = random.normal(60_000, 15_000, (500, 1))
    gain = np.where(random.random((500, 1)) < 0.1, random.normal(9_000, 500, (500, 1)), 0.0)
    source = FeatureSource(torch.from_numpy(np.hstack([words, salary, gain])).float()).levelled(rows)
    (batch,) = source.batches(rows, batch_size=500, shard=Shard(), training=False)
    np.testing.assert_array_equal(batch.inputs[:, :30], words)
    assert batch.inputs[:, 30].mean().abs() < 0.01
    np.testing.assert_array_equal(batch.inputs[:, 31] == 0, gain[:, 0] == 0)
    for column in (30, 31):
        given = batch.inputs[:, column]
        assert 1 < given[given != 0].square().mean().sqrt() < 3


@pytest.mark.parametrize("unit", [1e-9, 1e24])
def test_features_of_any_size_end_in_the_same_scores(run_on, vectors, unit):
    usual, other = run_on(vectors, out="usual"), run_on(vectors * unit, out="other")
    np.testing.assert_allclose(other.scores("test"), usual.scores("test"), rtol=1e-2, atol=1e-2)


def test_constant_features_have_nothing_to_be_held_by(run_on):
    run = run_on(np.ones((46, 3)))
    assert np.isfinite(run.scores("test")).all()


def test_of_epochs_that_are_equally_good_the_last_is_kept(run_on):
    run = run_on(np.ones((46, 3)), "linear.epochs=3")
    assert run.results.best_epoch == 3
