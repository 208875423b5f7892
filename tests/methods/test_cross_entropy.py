import math

import pytest
import torch
from torch import nn

from onepair.methods import create_method
from tests.methods.training import OBSERVED, SlowMethod, assert_follows

every_kind = pytest.mark.parametrize("kind", OBSERVED)


class SlowBCE(SlowMethod):
    """Per cell a target and a weight, by what is known of the label."""

    positive, negative, unknown = (1.0, 1.0), (0.0, 1.0), (0.0, 1.0)

    def loss(self, scores, rows):
        total = 0.0
        for row, sample in enumerate(rows):
            for score, label in zip(scores[row], self.observed[sample], strict=True):
                target, weight = {1: self.positive, 0: self.negative, -1: self.unknown}[label]
                p = 1 / (1 + math.exp(-score))
                total -= weight * (target * math.log(p) + (1 - target) * math.log(1 - p))
        return total / scores.size


class SlowKnown(SlowBCE):
    unknown = (0.0, 0.0)


class SlowDownWeighted(SlowBCE):
    negative = unknown = (0.0, 1 / 4)


class SlowSmoothed(SlowBCE):
    def begin(self, smoothing):
        self.positive = (1 - smoothing, 1.0)
        self.negative = self.unknown = (smoothing, 1.0)


class SlowNegativeSmoothed(SlowBCE):
    def begin(self, smoothing):
        self.unknown = (smoothing, 1.0)


class SlowL1(SlowBCE):
    def begin(self, weight):
        self.weight = weight

    def penalty(self, weights):
        return self.weight * sum(abs(weight) for weight in weights.flat)


class SlowL2(SlowL1):
    def penalty(self, weights):
        return self.weight * sum(weight**2 for weight in weights.flat)


@every_kind
@pytest.mark.parametrize(
    ("name", "slow", "options"),
    [
        ("bce", SlowBCE, {}),
        ("bce-1p-alln", SlowKnown, {}),
        ("bce-known", SlowKnown, {}),
        ("bce-dw", SlowDownWeighted, {}),
        ("bce-l1", SlowL1, {}),
        ("bce-l1", SlowL1, {"weight": 0.02}),
        ("bce-l2", SlowL2, {}),
        ("bce-l2", SlowL2, {"weight": 0.05}),
        ("bce-ls", SlowSmoothed, {}),
        ("bce-nls", SlowNegativeSmoothed, {}),
        ("bce-nls", SlowNegativeSmoothed, {"smoothing": 0.3}),
    ],
)
def test_follows_the_slow_reference(name, slow, options, kind):
    assert_follows(name, slow, kind, **options)


@pytest.mark.parametrize(("name", "expected"), [("bce-l1", 0.5 * 6), ("bce-l2", 0.5 * 14)])
def test_penalty_is_on_weights_not_on_the_bias(name, expected):
    classifier = nn.Linear(3, 1)
    with torch.no_grad():
        classifier.weight.copy_(torch.tensor([[1.0, -2.0, 3.0]]))
        classifier.bias.fill_(100.0)
    penalty = create_method(name, weight=0.5).penalty(classifier)
    assert penalty.item() == pytest.approx(expected)
    penalty.backward()
    assert classifier.bias.grad is None


def test_other_methods_have_no_penalty():
    assert create_method("bce").penalty(nn.Linear(3, 1)) is None
