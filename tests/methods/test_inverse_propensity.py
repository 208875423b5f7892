import math

import pytest
import torch

from onepair.errors import UserError
from onepair.methods import create_method
from tests.methods.training import CLASSES, OBSERVED, SlowMethod, assert_follows, labels_of

OBSERVED_SHARES = [0.5, 0.6, 0.7, 0.8, 0.9]


class SlowPropensity(SlowMethod):
    def begin(self, propensity):
        self.shares = [1.0] * CLASSES if propensity is None else propensity

    def loss(self, scores, rows):
        total = 0.0
        for row, sample in enumerate(rows):
            for label, share in enumerate(self.shares):
                yes, no = (math.log(1 + math.exp(-sign * scores[row][label])) for sign in (1, -1))
                total += self.cell(1 if self.observed[sample][label] == 1 else 0, share, yes, no)
        return total / scores.size

    def state(self):
        return {"observed": self.observed, "propensities": self.shares}


class SlowUnbiased(SlowPropensity):
    def cell(self, y, share, yes, no):
        return y / share * (yes - no) + no


class SlowBounded(SlowPropensity):
    def cell(self, y, share, yes, no):
        return y * (2 / share - 1) * yes + (1 - y) * no


@pytest.mark.parametrize("kind", OBSERVED)
@pytest.mark.parametrize("propensity", [None, OBSERVED_SHARES])
@pytest.mark.parametrize(("name", "slow"), [("bce-pw", SlowUnbiased), ("bce-pw-bound", SlowBounded)])
def test_follows_the_slow_reference(name, slow, propensity, kind):
    assert_follows(name, slow, kind, propensity=propensity)


def test_without_propensities_they_come_from_the_priors():
    method = create_method("bce-pw")
    observed = torch.tensor([[1, -1, -1], [1, 1, 0], [-1, -1, -1], [-1, -1, -1]], dtype=torch.int8)
    method.begin(observed)
    assert method.needs_priors
    assert method.propensities.tolist() == [1, 1, 1]
    method.take_priors(torch.tensor([0.8, 0.1, 0.5], dtype=torch.float64))
    assert method.propensities.tolist() == pytest.approx([0.5 / 0.8, 1, 1])


def test_one_number_is_for_all_classes():
    method = create_method("bce-pw-bound", propensity=0.4)
    method.begin(labels_of("mixed"))
    assert not method.needs_priors
    assert method.propensities.tolist() == pytest.approx([0.4] * CLASSES)


@pytest.mark.parametrize("propensity", [0.0, 1.5, [0.5, -0.1]])
def test_a_propensity_is_a_probability(propensity):
    with pytest.raises(ValueError, match="propensity must be above 0 and at most 1"):
        create_method("bce-pw", propensity=propensity)


def test_there_must_be_one_for_each_class():
    with pytest.raises(UserError, match="one for each of the 5 classes"):
        create_method("bce-pw", propensity=[0.5, 0.5]).begin(labels_of("mixed"))
