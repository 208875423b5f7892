"""Shares of positives against the truth."""

import numpy as np
import pytest

from onepair.labels import POSITIVE, UNKNOWN, observe_positives
from onepair.probability.infer import class_priors
from tests.probability.test_observation import generate


@pytest.mark.parametrize("process", ["single", "positives", "both"])
def test_the_interval_holds_the_share_of_positives(process):
    random = np.random.default_rng(0)
    scores, _, labels = generate(3000, random, slope=4.0)
    rates = (0.6, 0.2) if process == "both" else (0.6, 0.0)
    kept = random.random(labels.shape) < np.where(labels == POSITIVE, *rates)
    hidden = np.where(kept, labels, UNKNOWN).astype(np.int8)
    found = class_priors(scores, observe_positives(labels) if process == "single" else hidden)
    truth = labels.mean(0)
    assert ((found.low <= truth) & (truth <= found.high)).mean() >= 0.8
    assert np.abs(np.log(found.value / truth)).mean() < 0.2
    assert (found.low <= found.value).all()
    assert (found.value <= found.high).all()


def test_known_labels_leave_no_doubt():
    scores, _, labels = generate(300, np.random.default_rng(1))
    found = class_priors(scores, labels)
    for each in found:
        np.testing.assert_allclose(each, labels.mean(0))
