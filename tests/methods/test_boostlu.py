import pytest

from onepair.methods import create_method
from tests.methods.test_large_loss import SlowRejection
from tests.methods.training import OBSERVED, assert_follows


class SlowBoosted(SlowRejection):
    def begin(self, delta, boost):
        super().begin(delta)


@pytest.mark.parametrize("kind", OBSERVED)
def test_the_loss_is_that_of_ll_r(kind):
    assert assert_follows("ll-r-boostlu", SlowBoosted, kind, delta=0.06).boost == 5


def test_a_boost_does_not_weaken():
    with pytest.raises(ValueError, match=r"boost must be at least 1, got 0\.5"):
        create_method("ll-r-boostlu", boost=0.5)
