"""The estimate that selects an epoch: the average precision itself where all is known, and near it where it is not."""

import numpy as np
import pytest
import torch
from scipy.special import expit

from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN
from onepair.metrics import average_precision, mean_average_precision
from onepair.probability.evaluation import estimated_average_precision, estimated_map, expected_hidden


def problem(rows=400, classes=6, *, noise=0.7, seed=0):
    random = np.random.default_rng(seed)
    logits = random.normal(-1.5, 2, (rows, classes))
    truth = (random.random(logits.shape) < expit(logits)).astype(np.int8)
    return logits + random.normal(0, noise, logits.shape), truth, random


def hide(truth, random, *, positives, negatives):
    shown = random.random(truth.shape) < np.where(truth == POSITIVE, positives, negatives)
    return np.where(shown, truth, np.int8(UNKNOWN))


def slow_class_ap(scores, labels, steps=20_000):
    """By the text of the docstring: a loop over observed positives, and a mean over many values of c."""
    known = np.mean(labels != UNKNOWN)
    chances = known + (1 - known) * (np.arange(steps) + 0.5) / steps
    negatives, unknowns = (labels == NEGATIVE).sum(), (labels == UNKNOWN).sum()
    weight = negatives / (negatives + unknowns) if negatives + unknowns else 1.0
    precisions = []
    for at in scores[labels == POSITIVE]:
        above = labels[scores >= at]
        t, g, u = ((above == value).sum() for value in (POSITIVE, NEGATIVE, UNKNOWN))
        hidden = np.minimum(u, (t - 1) * (1 - chances) / chances).mean()
        precisions.append(weight * t / (t + g) + (1 - weight) * (t + hidden) / (t + g + u))
    return np.mean(precisions)


@pytest.mark.parametrize("decimals", [6, 0], ids=["no ties", "ties"])
@pytest.mark.parametrize(("positives", "negatives"), [(0.5, 0.0), (0.3, 0.3), (0.9, 0.1), (0.1, 0.9), (1.0, 0.5)])
def test_equals_the_slow_reference(positives, negatives, decimals):
    scores, truth, random = problem(rows=120)
    scores, labels = scores.round(decimals), hide(truth, random, positives=positives, negatives=negatives)
    expected = [slow_class_ap(*column) for column in zip(scores.T, labels.T, strict=True)]
    np.testing.assert_allclose(estimated_average_precision(scores, labels), expected, rtol=1e-5)


@pytest.mark.parametrize("decimals", [6, 0], ids=["no ties", "ties"])
def test_is_the_mean_average_precision_where_all_is_known(decimals):
    scores, truth, _ = problem()
    scores = scores.round(decimals).astype(np.float32)
    assert estimated_map(scores, truth) == mean_average_precision(scores, truth).value
    assert estimated_map(torch.from_numpy(scores), torch.from_numpy(truth)) == estimated_map(scores, truth)


def test_one_complete_class_is_exact_beside_others():
    scores, truth, random = problem()
    labels = hide(truth, random, positives=0.5, negatives=0.0)
    labels[:, 2] = truth[:, 2]
    assert estimated_average_precision(scores, labels)[2] == average_precision(scores, truth)[2]


@pytest.mark.parametrize(("positives", "negatives"), [(0.3, 0.0), (0.5, 0.0), (0.7, 0.0), (0.7, 0.7), (0.5, 0.2)])
def test_is_much_nearer_the_truth_than_unknown_as_negative(positives, negatives):
    scores, truth, random = problem(rows=4000)
    labels = hide(truth, random, positives=positives, negatives=negatives)
    true = mean_average_precision(scores, truth).value
    as_negative = mean_average_precision(scores, np.maximum(labels, NEGATIVE)).value
    assert abs(estimated_map(scores, labels) - true) < 0.7 * abs(as_negative - true)


@pytest.mark.parametrize("negatives", [0.0, 0.2])
def test_a_better_model_scores_higher(negatives):
    for seed in range(5):
        estimates = []
        for noise in (0.3, 1.0, 3.0):
            scores, truth, random = problem(rows=2000, noise=noise, seed=seed)
            estimates.append(estimated_map(scores, hide(truth, random, positives=0.4, negatives=negatives)))
        assert estimates == sorted(estimates, reverse=True)


def test_only_the_order_of_the_scores_of_a_class_matters():
    scores, truth, random = problem()
    labels = hide(truth, random, positives=0.5, negatives=0.1)
    order = random.permutation(len(scores))
    assert estimated_map(expit(scores) * 7, labels) == estimated_map(scores, labels)
    assert estimated_map(scores[order], labels[order]) == pytest.approx(estimated_map(scores, labels), rel=1e-12)


def test_hidden_positives_are_none_to_all():
    observed, unknown = np.arange(1, 200), np.full(199, 50)
    hidden = expected_hidden(observed, unknown, least=0.01)
    assert (np.diff(hidden) > 0).all()
    assert hidden.min() > 0
    assert hidden.max() < 50
    assert expected_hidden(np.array([0]), np.array([50]), least=0.01) == [0.0]


def test_edges():
    scores = np.array([[3.0, 1.0], [2.0, 2.0], [1.0, 3.0]])
    assert np.isnan(estimated_average_precision(scores, [[1, -1], [-1, -1], [0, 0]])[1])
    assert estimated_map(scores, [[1, -1], [-1, -1], [0, 0]]) == 1.0
    assert estimated_map(scores, [[1, 1], [1, 1], [1, 1]]) == 1.0
    with pytest.raises(ValueError, match="no class has a known positive"):
        estimated_map(scores, [[0, -1], [-1, -1], [0, 0]])
    with pytest.raises(ValueError, match="one shape"):
        estimated_map(scores, [[0, 1]])
