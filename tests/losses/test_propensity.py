import math

import numpy as np
import pytest
import torch

from onepair.losses import bce_loss, propensity_loss
from tests.losses.batches import counts_as, random_batch

SHARES = torch.tensor([0.2, 0.5, 0.7, 0.9, 1.0], dtype=torch.float64)


def slow_propensity(logits, labels, form, unknown):
    rows = []
    for scores, row in zip(logits.tolist(), labels.tolist(), strict=True):
        total = 0.0
        for score, label, share in zip(scores, row, SHARES.tolist(), strict=True):
            yes, no = math.log(1 + math.exp(-score)), math.log(1 + math.exp(score))
            y = int(label == 1)
            value = y / share * (yes - no) + no if form == "unbiased" else y * (2 / share - 1) * yes + (1 - y) * no
            total += 0.0 if counts_as(label, unknown) == "ignore" else value
        rows.append(total / len(row))
    return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.parametrize("unknown", ["negative", "ignore"])
@pytest.mark.parametrize("form", ["unbiased", "bounded"])
def test_equals_the_definition(form, unknown):
    logits, labels = random_batch(rows=20)
    value = propensity_loss(logits, labels, propensities=SHARES, form=form, unknown=unknown, reduction="none")
    torch.testing.assert_close(value.detach(), slow_propensity(logits, labels, form, unknown))


@pytest.mark.parametrize("form", ["unbiased", "bounded"])
def test_where_all_positives_are_observed_it_is_bce(form):
    logits, labels = random_batch()
    torch.testing.assert_close(propensity_loss(logits, labels, form=form), bce_loss(logits, labels))


def test_unbiased_on_average_and_bounded_from_above():
    """Over all ways to observe three positives with a chance of 0.3 each."""
    logits, full = torch.tensor([[0.4, -1.0, 2.0, 0.1]]), torch.tensor([[1, 1, 1, 0]])
    means = dict.fromkeys(("unbiased", "bounded"), 0.0)
    for seen in np.ndindex(2, 2, 2):
        chance = math.prod(0.3 if each else 0.7 for each in seen)
        observed = torch.tensor([[*seen, 0]])
        for form in means:
            means[form] += chance * propensity_loss(logits, observed, propensities=0.3, form=form).item()
    assert means["unbiased"] == pytest.approx(bce_loss(logits, full).item())
    assert means["bounded"] > means["unbiased"]


@pytest.mark.parametrize("propensities", [0.0, -1.0, 2.0, torch.tensor([0.5, 0.0]), math.nan])
def test_chances_that_are_none_are_refused(propensities):
    with pytest.raises(ValueError, match="above 0 and at most 1"):
        propensity_loss(torch.zeros(1, 2), torch.tensor([[1, 0]]), propensities=propensities)


@pytest.mark.parametrize("shape", [(2, 1), (2, 3), (1,), (2,)])
def test_propensities_that_are_not_of_the_classes_are_refused(shape):
    with pytest.raises(ValueError, match="one for each of the 3 classes"):
        propensity_loss(torch.zeros(2, 3), torch.zeros(2, 3), propensities=torch.full(shape, 0.5))
