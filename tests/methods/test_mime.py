import copy
import math

import pytest
import torch

from onepair.methods import create_method
from tests.methods.training import CLASSES, OBSERVED, ROWS, SlowMethod, assert_follows


class SlowMIME(SlowMethod):
    def begin(self, warmup, threshold):
        self.warmup, self.threshold, self.targets = warmup, threshold, copy.deepcopy(self.observed)

    def loss(self, scores, rows):
        total = 0.0
        for row, sample in enumerate(rows):
            for label in range(CLASSES):
                sign = 1 if self.targets[sample][label] == 1 else -1
                total += math.log(1 + math.exp(-sign * scores[row][label]))
        return total / scores.size

    def end_epoch(self, epoch, scores):
        for sample in range(ROWS):
            for label in range(CLASSES):
                sure = 1 / (1 + math.exp(-scores[sample][label])) > self.threshold
                if epoch >= self.warmup and sure and self.targets[sample][label] == -1:
                    self.targets[sample][label] = 1

    def state(self):
        return {"observed": self.observed, "targets": self.targets}


@pytest.mark.parametrize("kind", OBSERVED)
@pytest.mark.parametrize("options", [{}, {"warmup": 1, "threshold": 0.6}, {"warmup": 3, "threshold": 0.5}])
def test_follows_the_slow_reference(options, kind):
    assert_follows("mime", SlowMIME, kind, **options)


def test_what_became_positive_stays_so():
    method = create_method("mime", warmup=2)
    method.begin(torch.tensor([[-1, 0, 1, -1]], dtype=torch.int8))
    method.end_epoch(1, torch.full((1, 4), 9.0))
    assert method.targets.tolist() == [[-1, 0, 1, -1]]
    method.end_epoch(2, torch.tensor([[9.0, 9.0, -9.0, 0.0]]))
    method.end_epoch(3, torch.full((1, 4), -9.0))
    assert method.targets.tolist() == [[1, 0, 1, -1]]


@pytest.mark.parametrize("options", [{"warmup": 0}, {"threshold": -1}])
def test_mistakes_are_named(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        create_method("mime", **options)
