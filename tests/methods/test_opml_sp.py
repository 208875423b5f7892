import copy
import math

import numpy as np
import pytest
import torch

from onepair.losses import opml_loss
from onepair.methods import create_method
from tests.methods.training import CLASSES, OBSERVED, ROWS, SlowMethod, assert_follows, labels_of


def sigmoid(score):
    return 1 / (1 + math.exp(-score))


def slow_ap(scores, positives):
    """Precision at the rank of every positive, averaged; 0 without positives."""
    ranked = sorted(range(len(scores)), key=lambda sample: -scores[sample])
    hits, total = 0, 0.0
    for rank, sample in enumerate(ranked, start=1):
        if sample in positives:
            hits += 1
            total += hits / rank
    return total / hits if hits else 0.0


class SlowOPML(SlowMethod):
    """All of OPML-SP; an option that a method lacks is off."""

    def begin(
        self,
        alpha,
        beta,
        high_rank_weight=0.0,
        epsilon=None,
        gamma_gradient=True,
        label_num=None,
        correction_start=1,
    ):
        self.alpha, self.beta = alpha / (1 - alpha), beta / (1 - beta)
        self.high_rank_weight, self.epsilon, self.gamma_gradient = high_rank_weight, epsilon, gamma_gradient
        self.label_num, self.correction_start = label_num, correction_start
        self.class_ap = [0.0] * CLASSES
        self.targets = copy.deepcopy(self.observed)

    def before_step(self, scores, rows):
        self.fixed_scores = scores

    def loss(self, scores, rows):
        total = sum(self.row_loss(scores[row], self.fixed_scores[row], sample) for row, sample in enumerate(rows))
        return total / len(rows) + self.high_rank_weight * self.high_rank(scores)

    def row_loss(self, scores, fixed, sample):
        positives = soft_positives = self.alpha
        negatives = self.beta
        for column in range(CLASSES):
            score, label = scores[column], self.targets[sample][column]
            if label == 1:
                positives += math.exp(-score)
            elif label == 0 or self.epsilon is None:
                negatives += math.exp(score)
            else:
                predicted = sigmoid(score if self.gamma_gradient else fixed[column])
                gamma = predicted * self.class_ap[column] ** self.epsilon
                soft_positives += gamma * math.exp(-score)
                negatives += (1 - gamma) * math.exp(score)
        soft = 0.0 if self.epsilon is None else math.log(soft_positives)
        return math.log(positives) + soft + math.log(negatives)

    def high_rank(self, scores):
        if self.high_rank_weight == 0:
            return 0.0
        predicted = np.array([[sigmoid(score) for score in row] for row in scores])
        return -sum(math.log(value**2 + 1e-6) for value in np.linalg.svd(predicted, compute_uv=False))

    def end_epoch(self, epoch, scores):
        correct = self.label_num is not None and epoch >= self.correction_start
        self.targets = copy.deepcopy(self.observed)
        for column in range(CLASSES):
            column_scores = [scores[sample][column] for sample in range(ROWS)]
            positives = [sample for sample in range(ROWS) if self.observed[sample][column] == 1]
            unknown = [sample for sample in range(ROWS) if self.observed[sample][column] == -1]
            self.class_ap[column] = slow_ap(column_scores, positives)
            if correct:
                count = round(len(positives) * self.label_num * (1 - self.class_ap[column]))
                for sample in sorted(unknown, key=lambda sample: -column_scores[sample])[:count]:
                    self.targets[sample][column] = 1

    def state(self):
        state = {"observed": self.observed}
        if self.epsilon is not None or self.label_num is not None:
            state["class_ap"] = self.class_ap
        if self.label_num is not None:
            state["targets"] = self.targets
        return state


@pytest.mark.parametrize("kind", OBSERVED)
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("opml", {}),
        ("opml", {"alpha": 0.9, "beta": 0.5}),
        ("opml-hr", {}),
        ("opml-hr", {"high_rank_weight": 0.05}),
        ("opml-soft", {}),
        ("opml-soft", {"epsilon": 1.0, "alpha": 0.4, "beta": 0.5}),
        ("opml-soft", {"gamma_gradient": False}),
        ("opml-correct", {}),
        ("opml-correct", {"label_num": 3.0}),
        ("opml-correct", {"label_num": 22.0, "correction_start": 3}),
        ("opml-sp", {}),
        ("opml-sp", {"label_num": 2.0, "high_rank_weight": 0.05, "correction_start": 2}),
        ("opml-sp", {"label_num": 2.0, "gamma_gradient": False}),
    ],
)
def test_follows_the_slow_reference(name, options, kind):
    assert_follows(name, SlowOPML, kind, **options)


def test_state_is_only_what_the_method_needs():
    expected = {
        "opml": set(),
        "opml-hr": set(),
        "opml-soft": {"class_ap"},
        "opml-correct": {"class_ap", "targets"},
        "opml-sp": {"class_ap", "targets"},
    }
    for name, keys in expected.items():
        method = create_method(name)
        method.begin(labels_of("mixed"))
        assert set(method.state_dict()) == keys
        assert method.needs_scores == (keys != set())


def test_smoothing_warms_up_by_itself():
    """Before any AP is known, soft OPML is OPML plus log α."""
    method = create_method("opml-soft", alpha=0.6, beta=0.4)
    method.begin(labels_of("mixed"))
    logits = torch.randn(ROWS, CLASSES, generator=torch.Generator().manual_seed(0))
    expected = opml_loss(logits, labels_of("mixed"), alpha=0.6, beta=0.4) + math.log(1.5)
    torch.testing.assert_close(method(logits, torch.arange(ROWS)), expected)


def test_correction_is_made_anew_every_epoch():
    method = create_method("opml-correct", label_num=3.0)
    method.begin(labels_of("single positives"))
    method.end_epoch(1, torch.randn(ROWS, CLASSES, generator=torch.Generator().manual_seed(0)))
    assert not torch.equal(method.targets, method.observed)
    method.end_epoch(2, labels_of("single positives").float())  # every AP is 1: nothing is missing
    assert torch.equal(method.targets, method.observed)


def test_a_corrected_label_is_a_positive_of_soft_opml():
    method = create_method("opml-sp", high_rank_weight=0.0, alpha=0.5, beta=0.5, label_num=1.0)
    method.begin(torch.tensor([[1], [-1]], dtype=torch.int8))
    method.end_epoch(1, torch.tensor([[0.0], [1.0]]))  # AP = ½, one positive: Cornum = round(½) = 0
    assert method.targets.tolist() == [[1], [-1]]
    method.label_num = 2.0
    method.end_epoch(2, torch.tensor([[0.0], [1.0]]))
    assert method.targets.tolist() == [[1], [1]]
    loss = method(torch.tensor([[2.0]]), torch.tensor([1]))
    assert loss.item() == pytest.approx(math.log(1 + math.exp(-2)))
