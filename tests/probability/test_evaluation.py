"""Figures of incomplete labels: none where none can be told, and estimates that hold the truth."""

import json
import math

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, observe_positives
from onepair.probability.evaluation import evaluate
from onepair.probability.thresholds import fit_decisions
from tests.probability.test_observation import generate

CLASSES = [f"class{number}" for number in range(6)]


@pytest.fixture(scope="module")
def drawn():
    scores, _, labels = generate(3000, np.random.default_rng(0))
    return scores, labels, fit_decisions(scores[:1000], labels[:1000])


def test_full_labels_tell_everything(drawn):
    scores, labels, decisions = drawn
    found = evaluate(scores, labels, decisions, CLASSES)
    assert found.lacking == ""
    assert found.estimated is None
    expected = [average_precision_score(labels[:, each], scores[:, each]) for each in range(6)]
    np.testing.assert_allclose([each.ap for each in found.classes.values()], expected)


@pytest.mark.parametrize("process", ["single", "at random"])
def test_positives_alone_tell_no_precision(drawn, process):
    scores, labels, decisions = drawn
    kept = np.random.default_rng(1).random(labels.shape) < 0.8
    at_random = np.where((labels == POSITIVE) & kept, POSITIVE, UNKNOWN).astype(np.int8)
    observed = observe_positives(labels) if process == "single" else at_random
    found, truth = evaluate(scores, observed, decisions, CLASSES), evaluate(scores, labels, decisions, CLASSES)
    for figure in (found.map, found.precision, found.f1, found.ranking_loss):
        assert math.isnan(figure)
    assert all(math.isnan(each.precision) and math.isnan(each.ap) for each in found.classes.values())
    assert "too few negatives are known of 6 of 6 classes" in found.lacking
    assert found.estimated.assumption.startswith("if ")
    for name in ("map", "precision", "recall", "f1"):
        estimate = getattr(found.estimated, name)
        assert estimate.low <= getattr(truth, name) <= estimate.high
        assert estimate.low < estimate.value < estimate.high
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["estimated"]["map"]["value"] > 0.5


def test_labels_known_whatever_they_are_tell_nearly_everything(drawn):
    scores, labels, decisions = drawn
    observed = np.where(np.random.default_rng(2).random(labels.shape) < 0.5, labels, UNKNOWN).astype(np.int8)
    found, truth = evaluate(scores, observed, decisions, CLASSES), evaluate(scores, labels, decisions, CLASSES)
    assert found.lacking == ""
    assert found.map == pytest.approx(truth.map, abs=0.03)
    assert found.precision == pytest.approx(truth.precision, abs=0.03)
    assert found.estimated.precision.value == pytest.approx(truth.precision, abs=0.03)


def test_the_classes_that_lack_negatives_are_named(drawn):
    scores, labels, decisions = drawn
    observed = labels.copy()
    observed[:, 2] = np.where(labels[:, 2] == NEGATIVE, UNKNOWN, POSITIVE)
    found = evaluate(scores, observed, decisions, CLASSES)
    assert found.averaged_classes == 5
    assert found.lacking.startswith("too few negatives are known of class2 to tell")
    assert math.isnan(found.classes["class2"].ap)
    assert not math.isnan(found.classes["class1"].ap)
