import math

import pytest

from tests.methods.training import OBSERVED, SlowMethod, assert_follows


class SlowZLPR(SlowMethod):
    def loss(self, scores, rows):
        total = 0.0
        for row, sample in enumerate(rows):
            positives = negatives = 1.0
            for score, label in zip(scores[row], self.observed[sample], strict=True):
                if label == 1:
                    positives += math.exp(-score)
                else:
                    negatives += math.exp(score)
            total += math.log(positives) + math.log(negatives)
        return total / len(rows)


@pytest.mark.parametrize("kind", OBSERVED)
def test_follows_the_slow_reference(kind):
    assert_follows("zlpr", SlowZLPR, kind)
