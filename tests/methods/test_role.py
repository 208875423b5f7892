import math

import numpy as np
import pytest
import torch

from onepair.methods import create_method
from onepair.runs.config import build_config
from onepair.runs.task import make_method
from tests.methods.training import CLASSES, OBSERVED, ROWS, SlowMethod, assert_follows, labels_of


def sigmoid(score):
    return 1 / (1 + math.exp(-score))


class SlowROLE(SlowMethod):
    def begin(self, expected_positives, seed):
        shown = sum(label == 1 for row in self.observed for label in row) / len(self.observed)
        self.expected_positives = shown if expected_positives is None else expected_positives
        method = create_method("role", seed=seed)
        method.begin(torch.tensor(self.observed, dtype=torch.int8))
        self.estimates = method.label_estimates.detach().double().numpy().copy()
        self.parameters = [self.estimates]

    def before_step(self, scores, rows):
        self.fixed_scores, self.fixed_estimates = scores, self.estimates[rows].copy()

    def side(self, scores, fixed, rows):
        total = count = 0.0
        for row, sample in enumerate(rows):
            for column in range(CLASSES):
                p, other = sigmoid(scores[row][column]), sigmoid(fixed[row][column])
                if self.observed[sample][column] == 1:
                    total -= math.log(p)
                if self.observed[sample][column] == 0:
                    total -= math.log(1 - p)
                total -= other * math.log(p) + (1 - other) * math.log(1 - p)
                count += p
        excess = count / len(rows) - self.expected_positives
        return total / (len(rows) * CLASSES) + excess**2 / CLASSES**2

    def loss(self, scores, rows):
        of_classifier = self.side(scores, self.fixed_estimates, rows)
        of_estimates = self.side(self.estimates[rows], self.fixed_scores, rows)
        return of_classifier / 2 + of_estimates / 2

    def state(self):
        return {
            "observed": self.observed,
            "label_estimates": self.estimates,
            "expected": self.expected_positives,
        }


@pytest.mark.parametrize("kind", OBSERVED)
@pytest.mark.parametrize("options", [{}, {"expected_positives": 3.0, "seed": 5}])
def test_follows_the_slow_reference(options, kind):
    assert_follows("role", SlowROLE, kind, **options)


def estimates(seed, observed):
    method = create_method("role", seed=seed)
    method.begin(observed)
    return method.label_estimates.detach().sigmoid()


def test_estimates_start_where_the_labels_are():
    observed = labels_of("mixed")
    start = estimates(0, observed)
    np.testing.assert_allclose(start[observed == 1], 0.995, rtol=1e-5)
    np.testing.assert_allclose(start[observed == 0], 0.005, rtol=1e-4)
    unknown = estimates(0, torch.full((1000, 20), -1, dtype=torch.int8))
    assert 0.4 <= unknown.min() < 0.401
    assert 0.599 < unknown.max() <= 0.6
    assert unknown.mean().item() == pytest.approx(0.5, abs=1e-3)


def test_estimates_depend_on_the_seed_alone():
    observed, state = labels_of("single positives"), torch.get_rng_state()
    first = estimates(1, observed)
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(3)
    assert torch.equal(first, estimates(1, observed))
    assert not torch.equal(first, estimates(2, observed))


@pytest.mark.parametrize(("options", "seed"), [({}, 3), ({"seed": 5}, 5)])
def test_estimates_are_drawn_by_the_seed_of_the_run(options, seed):
    config = build_config({"seed": 3, "method": {"name": "role", "options": options}})
    assert make_method(config).seed == seed


def test_classifier_and_estimates_learn_from_their_own_side_only():
    """° in the equation: without gradient. With g at 1 everywhere, f is pulled up, and g is not pulled up by f."""
    method = create_method("role", expected_positives=0.0)
    method.begin(torch.full((ROWS, CLASSES), -1, dtype=torch.int8))
    with torch.no_grad():
        method.label_estimates.fill_(20.0)
    logits = torch.full((1, CLASSES), -3.0, requires_grad=True)
    method(logits, torch.tensor([2])).backward()
    assert (logits.grad < 0).all()
    touched = method.label_estimates.grad.any(1).nonzero().flatten().tolist()
    assert touched == [2]
    assert (method.label_estimates.grad[2] > 0).all()


def test_the_expected_count_follows_the_priors_unless_it_is_given():
    observed = labels_of("single positives")
    method = create_method("role")
    method.begin(observed)
    assert method.needs_priors
    assert method.expected.item() == pytest.approx((observed == 1).sum().item() / len(observed))
    method.take_priors(torch.tensor([0.5, 0.25, 1.5]))
    assert method.expected.item() == 2.25
    again = create_method("role")
    again.begin(observed)
    again.load_state_dict(method.state_dict())
    assert again.expected.item() == 2.25
    assert not create_method("role", expected_positives=3.0).needs_priors
