import math

import pytest
import torch

from onepair.methods import create_method
from tests.methods.training import CLASSES, OBSERVED, SlowMethod, assert_follows


class SlowPartial(SlowMethod):
    def begin(self, gamma_positive, gamma_negative, gamma_unknown, left_out, most_frequent):
        self.gammas, self.left_out = {1: gamma_positive, 0: gamma_negative, -1: gamma_unknown}, left_out

    def before_step(self, scores, rows):
        """Neither the weights nor the choice carry a gradient."""
        self.weights, unknown = {}, []
        for row, sample in enumerate(rows):
            for label in range(CLASSES):
                p, known = 1 / (1 + math.exp(-scores[row][label])), self.observed[sample][label]
                self.weights[row, label] = (1 - p if known == 1 else p) ** self.gammas[known]
                unknown += [(scores[row][label], row, label)] if known == -1 else []
        for _, row, label in sorted(unknown, reverse=True)[: math.ceil(self.left_out * len(rows))]:
            self.weights[row, label] = 0.0

    def loss(self, scores, rows):
        total = 0.0
        for row, sample in enumerate(rows):
            for label in range(CLASSES):
                sign = 1 if self.observed[sample][label] == 1 else -1
                total += self.weights[row, label] * math.log(1 + math.exp(-sign * scores[row][label]))
        return total / scores.size


@pytest.mark.parametrize("kind", OBSERVED)
@pytest.mark.parametrize(
    "options", [{}, {"left_out": 5.0}, {"left_out": 1.5, "gamma_positive": 1.0}, {"left_out": 0.0}]
)
def test_follows_the_slow_reference(options, kind):
    assert_follows("p-asl", SlowPartial, kind, **options)


def test_unknown_labels_of_frequent_classes_are_left_out():
    method = create_method("p-asl", left_out=0.0)
    method.begin(torch.tensor([[1, -1, 0], [-1, -1, -1]], dtype=torch.int8))
    method.take_priors(torch.tensor([0.6, 0.5, 0.9]))
    logits = torch.zeros(2, 3, requires_grad=True)
    method(logits, torch.tensor([0, 1])).backward()
    assert (logits.grad == 0).tolist() == [[False, False, False], [True, False, True]]


def test_a_batch_of_one_row_leaves_out_its_likeliest_unknown_label():
    method = create_method("p-asl")
    method.begin(torch.tensor([[1, -1, -1]], dtype=torch.int8))
    logits = torch.tensor([[0.0, 1.0, 2.0]], requires_grad=True)
    method(logits, torch.tensor([0])).backward()
    assert (logits.grad == 0).tolist() == [[False, False, True]]
