import math

import pytest
import torch

from onepair.methods import create_method
from tests.methods.training import CLASSES, EPOCHS, OBSERVED, SlowMethod, assert_follows


class SlowRobust(SlowMethod):
    """The schedules and the loss of every cell, one after another."""

    def begin(self, epochs, positive_power, negative_power, **ends):
        self.epochs, self.q2, self.q3, self.ends, self.epoch = epochs, positive_power, negative_power, ends, 1

    def between(self, name, passed):
        first, last = self.ends[f"first_{name}"], self.ends[f"last_{name}"]
        return first + passed * (last - first)

    def before_step(self, scores, rows):
        """K and V carry no gradient."""
        t, whole = self.epoch, self.epochs
        w, b = self.between("slope", (t - 1) / whole), self.between("shift", (t - 1) / whole)
        centre, width = self.between("centre", t / whole), self.between("width", t / whole)
        self.missed, self.weight = {}, {}
        for row in range(len(rows)):
            for label in range(CLASSES):
                p = 1 / (1 + math.exp(-scores[row][label]))
                self.missed[row, label] = 1 / (1 + math.exp(-(w * p + b)))
                self.weight[row, label] = math.exp(-(((p - centre) / width) ** 2) / 2)

    def loss(self, scores, rows):
        total = 0.0
        for row, sample in enumerate(rows):
            for label in range(CLASSES):
                p = 1 / (1 + math.exp(-scores[row][label]))
                known = self.observed[sample][label]
                if known == -1:
                    as_positive, as_negative = (1 - p**self.q2) / self.q2, (1 - (1 - p) ** self.q3) / self.q3
                    missed = self.missed[row, label]
                    total += self.weight[row, label] * (missed * as_positive + (1 - missed) * as_negative)
                else:
                    total -= math.log(p if known == 1 else 1 - p)
        return total / scores.size

    def end_epoch(self, epoch, scores):
        self.epoch = epoch + 1

    def state(self):
        return {"observed": self.observed, "finished_epochs": self.epoch - 1}


@pytest.mark.parametrize("kind", OBSERVED)
@pytest.mark.parametrize(
    "options",
    [
        {"epochs": EPOCHS},
        {"epochs": EPOCHS, "last_slope": 10.0, "last_shift": -8.0},
        {"epochs": 9, "positive_power": 0.7, "negative_power": 0.4, "last_width": 0.2},
    ],
)
def test_follows_the_slow_reference(options, kind):
    assert_follows("gr", SlowRobust, kind, **options)


def test_the_schedules_begin_and_end_where_they_should():
    method = create_method("gr", epochs=8)
    method.begin(torch.full((2, 2), -1, dtype=torch.int8))
    assert method.now == pytest.approx((0.0, -2.0, 0.5 + 0.3 / 8, 2 - 1.5 / 8))
    method.end_epoch(7, None)
    assert method.now == pytest.approx((2 * 7 / 8, -2.0, 0.8, 0.5))
    method.end_epoch(20, None)
    assert method.now == pytest.approx((2.0, -2.0, 0.8, 0.5))


def test_saturated_scores_have_a_finite_loss_and_gradient():
    method = create_method("gr", epochs=2)
    method.begin(torch.full((1, 2), -1, dtype=torch.int8))
    logits = torch.tensor([[1e4, -1e4]], requires_grad=True)
    loss = method(logits, torch.tensor([0]))
    loss.backward()
    assert loss.isfinite()
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize("option", ["epochs", "last_width", "positive_power"])
def test_what_must_be_above_zero(option):
    with pytest.raises(ValueError, match=f"{option} must be a finite number above 0, got 0"):
        create_method("gr", **{"epochs": 3, option: 0})
