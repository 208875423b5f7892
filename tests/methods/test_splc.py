import math

import pytest
import torch

from onepair.methods import create_method
from tests.methods.training import CLASSES, OBSERVED, SlowMethod, assert_follows


class SlowSPLC(SlowMethod):
    def begin(self, gamma, margin, threshold):
        self.gamma, self.margin, self.threshold, self.epoch = gamma, margin, threshold, 1

    def before_step(self, scores, rows):
        self.targets = [list(self.observed[sample]) for sample in rows]
        for row in range(len(rows)):
            for label in range(CLASSES):
                high = 1 / (1 + math.exp(-scores[row][label])) > self.threshold
                if self.epoch >= 2 and high and self.targets[row][label] == -1:
                    self.targets[row][label] = 1

    def loss(self, scores, rows):
        total = 0.0
        for row in range(len(rows)):
            for label in range(CLASSES):
                if self.targets[row][label] == 1:
                    p = 1 / (1 + math.exp(self.margin - scores[row][label]))
                    total -= (1 - p) ** self.gamma * math.log(p)
                else:
                    p = 1 / (1 + math.exp(-scores[row][label]))
                    total -= p**self.gamma * math.log(1 - p)
        return total / scores.size

    def end_epoch(self, epoch, scores):
        self.epoch = epoch + 1


@pytest.mark.parametrize("kind", OBSERVED)
@pytest.mark.parametrize("options", [{}, {"threshold": 0.3, "gamma": 1.0, "margin": 0.5}])
def test_follows_the_slow_reference(options, kind):
    assert_follows("splc", SlowSPLC, kind, **options)


def test_a_threshold_is_a_probability():
    with pytest.raises(ValueError, match="threshold must lie between 0 and 1, got 2"):
        create_method("splc", threshold=2)


def test_in_evaluation_mode_labels_stay_as_the_last_step_left_them():
    method = create_method("splc", threshold=0.6)
    method.begin(torch.full((2, 3), -1, dtype=torch.int8))
    method.end_epoch(1, None)
    high, low, rows = torch.full((2, 3), 2.0), torch.full((2, 3), -2.0), torch.arange(2)
    method.eval()(high, rows)
    assert (method.targets == -1).all()
    as_positive = method.train()(high, rows)
    assert (method.targets == 1).all()
    assert method.eval()(high, rows) == as_positive
    method.train()(low, rows)
    assert (method.targets == -1).all()
