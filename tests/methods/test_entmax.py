import math

import pytest
import torch

from onepair.methods import create_method
from tests.methods.training import CLASSES, EPOCHS, OBSERVED, ROWS, SlowMethod, assert_follows, labels_of


class SlowEntMax(SlowMethod):
    def begin(self, entropy_weight):
        self.entropy_weight = entropy_weight

    def cell(self, p, label, sample, column):
        if label == 1:
            return -math.log(p)
        if label == 0:
            return -math.log(1 - p)
        return -self.entropy_weight * (-p * math.log(p) - (1 - p) * math.log(1 - p))

    def loss(self, scores, rows):
        total = 0.0
        for row, sample in enumerate(rows):
            for column in range(CLASSES):
                p = 1 / (1 + math.exp(-scores[row][column]))
                total += self.cell(p, self.observed[sample][column], sample, column)
        return total / scores.size


class SlowAPL(SlowEntMax):
    def begin(self, entropy_weight, epochs, warmup, weight, share):
        super().begin(entropy_weight)
        self.epochs, self.warmup, self.weight, self.share = epochs, warmup, weight, share
        self.pseudo = {}  # (sample, column) -> soft label

    def cell(self, p, label, sample, column):
        if (sample, column) not in self.pseudo:
            return super().cell(p, label, sample, column)
        q = self.pseudo[sample, column]
        return -self.weight * (q * math.log(p) + (1 - q) * math.log(1 - p))

    def end_epoch(self, epoch, scores):
        if epoch < self.warmup:
            return
        for column in range(CLASSES):
            unknown = [sample for sample in range(ROWS) if self.observed[sample][column] == -1]
            count = math.floor(self.share * len(unknown) / (self.epochs - self.warmup))
            left = [sample for sample in unknown if (sample, column) not in self.pseudo]
            for sample in sorted(left, key=lambda sample: scores[sample][column])[:count]:
                self.pseudo[sample, column] = 1 / (1 + math.exp(-scores[sample][column]))

    def state(self):
        soft = [[self.pseudo.get((sample, column), -1) for column in range(CLASSES)] for sample in range(ROWS)]
        return {"observed": self.observed, "soft_labels": soft}


@pytest.mark.parametrize("kind", OBSERVED)
@pytest.mark.parametrize("options", [{}, {"entropy_weight": 0.05}])
def test_entmax_follows_the_slow_reference(options, kind):
    assert_follows("entmax", SlowEntMax, kind, **options)


@pytest.mark.parametrize("kind", OBSERVED)
@pytest.mark.parametrize(
    "options",
    [
        {"epochs": EPOCHS, "warmup": 1},
        {"epochs": EPOCHS, "warmup": 2, "weight": 0.9, "entropy_weight": 0.1},
        {"epochs": EPOCHS, "warmup": 3, "weight": 0.4, "share": 0.5},
        {"epochs": 10},
    ],
)
def test_apl_follows_the_slow_reference(options, kind):
    assert_follows("entmax-apl", SlowAPL, kind, **options)


def test_pseudo_labels_come_in_equal_portions_and_stay():
    method = create_method("entmax-apl", epochs=6, warmup=2)
    method.begin(torch.full((40, 2), -1, dtype=torch.int8))
    before, counts = method.soft_labels.clone(), []
    for epoch in range(1, 6):
        method.end_epoch(epoch, torch.randn(40, 2, generator=torch.Generator().manual_seed(epoch)))
        labelled = before >= 0
        assert torch.equal(method.soft_labels[labelled], before[labelled])
        before = method.soft_labels.clone()
        counts.append((before >= 0).sum(0).tolist())
    assert counts == [[0, 0], [9, 9], [18, 18], [27, 27], [36, 36]]  # 0.9 × 40 in 4 portions


def test_without_pseudo_labels_it_is_entmax():
    logits, rows = torch.randn(4, CLASSES, generator=torch.Generator().manual_seed(0)), torch.arange(4)
    losses = []
    for method in (create_method("entmax"), create_method("entmax-apl", epochs=10)):
        method.begin(labels_of("mixed"))
        losses.append(method(logits, rows))
    torch.testing.assert_close(*losses)
