import pytest
import torch

from tests.losses.test_two_way import slow_two_way
from tests.methods.training import OBSERVED, SlowMethod, assert_follows


class SlowTwoWay(SlowMethod):
    def begin(self, **options):
        self.options = options

    def loss(self, scores, rows):
        labels = torch.tensor([self.observed[sample] for sample in rows])
        return slow_two_way(torch.tensor(scores), labels, "negative", **self.options)


@pytest.mark.parametrize("kind", OBSERVED)
@pytest.mark.parametrize("options", [{}, {"positive_temperature": 1.0, "negative_temperature": 2.0}])
def test_follows_the_slow_reference(options, kind):
    assert_follows("two-way", SlowTwoWay, kind, **options)
