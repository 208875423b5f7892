import math

import numpy as np
import pytest
import torch

from onepair.methods import create_method
from onepair.methods.crisp import estimated_priors
from tests.methods.training import CLASSES, OBSERVED, SlowMethod, assert_follows


def slow_priors(scores, observed, delta, tau):
    """Try every score as the threshold."""
    n, found = len(scores), []
    for label in range(len(scores[0])):
        positives = [sample for sample in range(n) if observed[sample][label] == 1]
        best = (math.inf, 0.0)
        for z in [scores[sample][label] for sample in range(n)] if positives else []:
            q = sum(scores[sample][label] >= z for sample in range(n)) / n
            q_positive = sum(scores[sample][label] >= z for sample in positives) / len(positives)
            if q_positive > 0:
                doubt = math.sqrt(math.log(4 / delta) / (2 * n)) + math.sqrt(math.log(4 / delta) / (2 * len(positives)))
                best = min(best, (q / q_positive + (1 + tau) / q_positive * doubt, q / q_positive))
        found.append(min(best[1], 1.0))
    return found


class SlowCRISP(SlowMethod):
    def begin(self, warmup, chance, slack):
        self.warmup, self.chance, self.slack, self.epoch = warmup, chance, slack, 1
        self.shown = [sum(row[label] == 1 for row in self.observed) / len(self.observed) for label in range(CLASSES)]
        self.priors = self.shown

    def loss(self, scores, rows):
        labels = [self.observed[sample] for sample in rows]
        probabilities = [[1 / (1 + math.exp(-score)) for score in row] for row in scores]
        total = 0.0
        for label in range(CLASSES):
            column = [(p[label], known[label]) for p, known in zip(probabilities, labels, strict=True)]
            if self.epoch <= self.warmup:
                total -= sum(math.log(p if known == 1 else 1 - p) for p, known in column) / len(rows)
                continue
            missed = sum(1 - p for p, known in column if known == 1) / len(rows)
            denied = sum(-math.log(1 - p) for p, known in column if known == 0) / len(rows)
            prior = self.priors[label]
            weight = 2 * prior / self.shown[label] if self.shown[label] else 0.0
            total += weight * missed + abs(sum(p for p, _ in column) / len(rows) - prior) + denied
        return total

    def end_epoch(self, epoch, scores):
        self.epoch = epoch + 1
        self.priors = slow_priors(scores, self.observed, self.chance, self.slack)

    def state(self):
        return {"observed": self.observed, "finished_epochs": self.epoch - 1, "class_priors": self.priors}


@pytest.mark.parametrize("kind", OBSERVED)
@pytest.mark.parametrize("options", [{}, {"warmup": 2, "chance": 0.9, "slack": 0.0}])
def test_follows_the_slow_reference(options, kind):
    assert_follows("crisp", SlowCRISP, kind, **options)


def test_priors_with_equal_scores():
    random = np.random.default_rng(0)
    scores, observed = random.integers(0, 6, (60, 4)).astype(float), random.integers(-1, 2, (60, 4))
    observed[:, 3] = -1
    found = estimated_priors(torch.tensor(scores), torch.tensor(observed))
    np.testing.assert_allclose(found, slow_priors(scores.tolist(), observed.tolist(), 0.01, 0.01), rtol=1e-6)
    assert found[3] == 0


def test_priors_are_found_where_scores_tell_positives_apart():
    """A quarter of the positives of a class of 30 % is observed."""
    random = np.random.default_rng(1)
    positive = random.random(20_000) < 0.3
    observed = np.where(positive & (random.random(20_000) < 0.25), 1, -1)[:, None]
    scores = (positive + 0.1 * random.normal(size=20_000))[:, None]
    assert estimated_priors(torch.tensor(scores), torch.tensor(observed)).item() == pytest.approx(0.3, abs=0.02)


@pytest.mark.parametrize("options", [{"warmup": 0}, {"chance": 1.0}, {"slack": -1.0}])
def test_mistakes_are_named(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        create_method("crisp", **options)
