import pytest
import torch

from tests.losses.test_hill import slow_hill
from tests.methods.training import OBSERVED, SlowMethod, assert_follows


class SlowHill(SlowMethod):
    def begin(self, **options):
        self.options = options

    def loss(self, scores, rows):
        labels = torch.tensor([self.observed[sample] for sample in rows])
        return slow_hill(torch.tensor(scores), labels, **self.options, unknown="negative").mean().item()


@pytest.mark.parametrize("kind", OBSERVED)
@pytest.mark.parametrize("options", [{}, {"turn": 2.0, "margin": 0.5, "gamma": 1.0}])
def test_follows_the_slow_reference(options, kind):
    assert_follows("hill", SlowHill, kind, **options)
