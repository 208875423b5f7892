import math

import pytest

from tests.methods.training import OBSERVED, SlowMethod, assert_follows


class SlowAsymmetric(SlowMethod):
    def begin(self, gamma_negative, gamma_positive, margin):
        self.gamma_negative, self.gamma_positive, self.margin = gamma_negative, gamma_positive, margin

    def loss(self, scores, rows):
        total = 0.0
        for row, sample in enumerate(rows):
            for score, label in zip(scores[row], self.observed[sample], strict=True):
                p = 1 / (1 + math.exp(-score))
                if label == 1:
                    total -= (1 - p) ** self.gamma_positive * math.log(p)
                elif p > self.margin:
                    total -= (p - self.margin) ** self.gamma_negative * math.log(1 - p + self.margin)
        return total / scores.size


@pytest.mark.parametrize("kind", OBSERVED)
@pytest.mark.parametrize("options", [{}, {"gamma_negative": 2.0, "gamma_positive": 1.0, "margin": 0.2}])
def test_follows_the_slow_reference(options, kind):
    assert_follows("asl", SlowAsymmetric, kind, **options)
