"""More known labels, of any kind, never make decisions or probabilities much worse."""

import numpy as np
import pytest

from onepair.labels import POSITIVE, UNKNOWN, observe_positives
from onepair.metrics import precision_recall_f1
from onepair.probability import fit_decisions
from onepair.probability.infer import infer

CLASSES = 8
NOISE = 0.01  # of F1 on 3,000 rows, and of thresholds chosen on 800


def generate(rows, random):
    """Pairs of classes that look alike, so that labels are not independent given the scores."""
    labels = random.random((rows, CLASSES)) < np.linspace(0.08, 0.3, CLASSES)
    labels[~labels.any(1), 0] = True
    strength = 2 * labels + 0.6 * labels[:, ::-1]
    return 1.5 * strength - 2 + random.normal(0, 1, labels.shape), labels.astype(np.int8)


def start(labels, random):
    kind = random.integers(4)
    chance = random.random(labels.shape)
    if kind == 0:
        return observe_positives(labels)
    if kind == 1:
        return observe_positives(labels, per_sample=2)
    rates = (random.uniform(0.3, 0.9), 0.0 if kind == 2 else random.uniform(0.02, 0.6))
    return np.where(chance < np.where(labels == POSITIVE, *rates), labels, UNKNOWN).astype(np.int8)


def more(scores, labels, observed, random):
    """Random cells, whole rows, known negatives, or the answers to what a model suggests; and which were asked for."""
    kind, shown = random.integers(4), observed.copy()
    asked = np.zeros(labels.shape, bool)
    if kind == 0:
        cells = random.random(labels.shape) < random.choice([0.01, 0.1, 0.4])
    elif kind == 1:
        cells = np.zeros(labels.shape, bool)
        cells[random.choice(len(labels), random.choice([10, 60, 300]), replace=False)] = True
    elif kind == 2:
        cells = (labels == 0) & (random.random(labels.shape) < random.choice([0.01, 0.1, 0.4]))
    else:
        probable = np.where(observed == UNKNOWN, infer(scores, observed).probabilities, -1)
        cells = probable >= np.sort(probable, axis=None)[-random.choice([30, 300, 1000])]
        cells &= observed == UNKNOWN
        asked = cells
    shown[cells] = labels[cells]
    return shown, asked


@pytest.mark.parametrize("seed", range(24))
def test_more_labels_make_nothing_worse(seed):
    random = np.random.default_rng(seed)
    (scores, labels), (test_scores, test_labels) = generate(800, random), generate(3000, random)
    observed = start(labels, random)
    shown, asked = more(scores, labels, observed, random)
    before, after = fit_decisions(scores, observed), fit_decisions(scores, shown, asked=asked)
    f1 = [precision_recall_f1(each.labels(test_scores), test_labels, average="class").f1 for each in (before, after)]
    assert f1[1] > f1[0] - NOISE
    off = [abs(each.probabilities(test_scores).mean() - test_labels.mean()) for each in (before, after)]
    assert off[1] < off[0] + 0.01
    assert off[1] < 0.025
