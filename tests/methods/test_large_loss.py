import copy
import math

import pytest
import torch

from onepair.methods import create_method
from tests.methods.training import CLASSES, EPOCHS, OBSERVED, SlowMethod, assert_follows, labels_of


class SlowLargeLoss(SlowMethod):
    """Sort the losses of the batch's unknown labels, and treat the largest as `treat` says."""

    def begin(self, delta):
        self.delta = delta
        self.epoch = 1
        self.targets = copy.deepcopy(self.observed)

    def count(self, cells):
        return math.ceil(cells * (self.epoch - 1) * self.delta)

    def before_step(self, scores, rows):
        losses = []
        for row, sample in enumerate(rows):
            for label in range(CLASSES):
                if self.targets[sample][label] == -1:
                    losses.append((math.log(1 + math.exp(scores[row][label])), row, label))
        k = self.count(scores.size)
        self.suspects = {(row, label) for _, row, label in sorted(losses, reverse=True)[:k]}

    def loss(self, scores, rows):
        total = 0.0
        for row, sample in enumerate(rows):
            for label in range(CLASSES):
                loss_of = {
                    "positive": math.log(1 + math.exp(-scores[row][label])),
                    "negative": math.log(1 + math.exp(scores[row][label])),
                    "rejected": 0.0,
                }
                positive = self.targets[sample][label] == 1
                meaning = self.treat if (row, label) in self.suspects else "positive" if positive else "negative"
                total += loss_of[meaning]
        return total / scores.size

    def end_epoch(self, epoch, scores):
        self.epoch = epoch + 1

    def state(self):
        return {"observed": self.observed, "finished_epochs": self.epoch - 1}


class SlowRejection(SlowLargeLoss):
    treat = "rejected"


class SlowTemporary(SlowLargeLoss):
    treat = "positive"


class SlowPermanent(SlowLargeLoss):
    treat = "positive"

    def count(self, cells):
        return math.ceil(cells * self.delta) if self.epoch > 1 else 0

    def before_step(self, scores, rows):
        super().before_step(scores, rows)
        for row, label in self.suspects:
            self.targets[rows[row]][label] = 1

    def state(self):
        return {**super().state(), "targets": self.targets}


@pytest.mark.parametrize("kind", OBSERVED)
@pytest.mark.parametrize("options", [{}, {"delta": 0.06}, {"delta": 0.4}])
@pytest.mark.parametrize(
    ("name", "slow"), [("ll-r", SlowRejection), ("ll-ct", SlowTemporary), ("ll-cp", SlowPermanent)]
)
def test_follows_the_slow_reference(name, slow, options, kind):
    assert_follows(name, slow, kind, **options)


def test_permanent_corrections_only_grow():
    method = create_method("ll-cp", delta=0.06)
    method.begin(labels_of("single positives"))
    rows, generator = torch.arange(4), torch.Generator().manual_seed(0)
    corrected = []
    for epoch in range(1, EPOCHS + 1):
        method(torch.randn(4, CLASSES, generator=generator), rows)
        method.end_epoch(epoch, None)
        corrected.append(int((method.targets != method.observed).sum()))
    assert corrected == [0, 2, 4, 6]  # ceil(4 × 5 × 0.06) more in every epoch but the first


def test_a_sample_twice_in_a_batch_keeps_both_corrections():
    method = create_method("ll-cp", delta=0.1)
    method.begin(torch.full((1, CLASSES), -1, dtype=torch.int8))
    method.end_epoch(1, None)
    method(torch.tensor([[9.0, 0, 0, 0, 0], [0, 0, 0, 0, 0]]), torch.tensor([0, 0]))
    assert method.targets.tolist() == [[1, -1, -1, -1, -1]]


def test_rejected_labels_have_no_gradient():
    method = create_method("ll-r", delta=0.1)
    method.begin(torch.tensor([[1, -1, -1, 0, -1]] * 2, dtype=torch.int8))
    method.end_epoch(1, None)
    logits = torch.tensor([[0.0, 9.0, 1.0, 99.0, 2.0], [0.0, 1.0, 1.0, 99.0, 2.0]], requires_grad=True)
    method(logits, torch.tensor([0, 1])).backward()
    assert (logits.grad == 0).nonzero().tolist() == [[0, 1]]


class SlowBoosted(SlowRejection):
    def begin(self, delta, boost):
        super().begin(delta)


@pytest.mark.parametrize("kind", OBSERVED)
def test_the_loss_of_boostlu_is_that_of_ll_r(kind):
    assert assert_follows("ll-r-boostlu", SlowBoosted, kind, delta=0.06).boost == 5


def test_a_boost_does_not_weaken():
    with pytest.raises(ValueError, match=r"boost must be at least 1, got 0\.5"):
        create_method("ll-r-boostlu", boost=0.5)
