import math

import pytest

from tests.methods.training import OBSERVED, SlowMethod, assert_follows


class SlowFocal(SlowMethod):
    def begin(self, gamma, alpha):
        self.gamma = gamma
        self.weights = {True: 1.0, False: 1.0} if alpha is None else {True: alpha, False: 1 - alpha}

    def loss(self, scores, rows):
        total = 0.0
        for row, sample in enumerate(rows):
            for score, label in zip(scores[row], self.observed[sample], strict=True):
                p = 1 / (1 + math.exp(-score))
                right = p if label == 1 else 1 - p
                total -= self.weights[label == 1] * (1 - right) ** self.gamma * math.log(right)
        return total / scores.size


@pytest.mark.parametrize("kind", OBSERVED)
@pytest.mark.parametrize("options", [{}, {"gamma": 1.0, "alpha": None}])
def test_follows_the_slow_reference(options, kind):
    assert_follows("focal", SlowFocal, kind, **options)
