import math

import pytest
import torch

from onepair import OPMLPlusLoss
from onepair.losses import opml_plus_loss
from onepair.methods import create_method
from tests.losses.batches import random_batch


def slow_loss(row, labels, *, missing, alpha, beta, trust):
    """The equation, label by label."""
    alpha, beta = alpha / (1 - alpha), beta / (1 - beta)
    rest, total = beta / (alpha + beta), 0.0
    for score, label in zip(row, labels, strict=True):
        chance = 1 / (1 + math.exp(-score))
        kept_low = -rest * math.log(chance) - (1 - rest) * math.log(1 - chance)
        total += {1: math.log(alpha + math.exp(-score)), 0: kept_low, -1: trust / (trust + missing) * kept_low}[label]
    return total


@pytest.mark.parametrize("missing", [0.0, 1.0, 3.5])
def test_follows_the_slow_reference(missing):
    logits, labels = random_batch()
    options = {"missing": missing, "alpha": 0.4, "beta": 0.2, "trust": 0.3}
    expected = [slow_loss(*row, **options) for row in zip(logits.tolist(), labels.tolist(), strict=True)]
    torch.testing.assert_close(
        opml_plus_loss(logits, labels, reduction="none", **options), torch.tensor(expected, dtype=torch.float64)
    )


def test_is_the_loss_of_the_method():
    logits, labels = random_batch()
    method = create_method("opml-plus", labels=labels)
    given = OPMLPlusLoss(missing=1.0)(logits, labels)
    assert torch.equal(opml_plus_loss(logits, labels), given)
    torch.testing.assert_close(given, method(logits, torch.arange(len(labels))), rtol=1e-6, atol=0)
    method.take_priors(torch.full((labels.shape[1],), 0.9))
    estimated = OPMLPlusLoss(missing=float(method.missing))(logits, labels)
    torch.testing.assert_close(estimated, method(logits, torch.arange(len(labels))), rtol=1e-6, atol=0)
    assert method.missing > 0


def test_where_nothing_is_missing_unknown_labels_are_negative():
    logits, labels = random_batch()
    assert opml_plus_loss(logits, labels, missing=0) == opml_plus_loss(logits, labels, unknown="negative")
