"""Methods that are a loss of the observed labels: the losses themselves have references in tests/losses."""

import pytest
import torch

from onepair import losses
from onepair.methods import create_method
from tests.methods.training import CLASSES, OBSERVED, ROWS, labels_of

CASES = [
    ("focal", losses.focal_loss, {}),
    ("focal", losses.focal_loss, {"gamma": 1.0, "alpha": None}),
    ("asl", losses.asymmetric_loss, {}),
    ("asl", losses.asymmetric_loss, {"gamma_negative": 2.0, "gamma_positive": 1.0, "margin": 0.2}),
    ("zlpr", losses.zlpr_loss, {}),
    ("hill", losses.hill_loss, {}),
    ("hill", losses.hill_loss, {"turn": 2.0, "margin": 0.5, "gamma": 1.0}),
    ("two-way", losses.two_way_loss, {}),
    ("two-way", losses.two_way_loss, {"positive_temperature": 1.0, "negative_temperature": 2.0}),
]


@pytest.mark.parametrize("kind", OBSERVED)
@pytest.mark.parametrize(("name", "loss", "options"), CASES)
def test_it_is_the_loss_of_observed_labels_in_every_epoch(name, loss, options, kind):
    method, rows = create_method(name, **options), torch.tensor([7, 0, 3])
    logits = torch.randn(ROWS, CLASSES, generator=torch.Generator().manual_seed(0))[rows]
    method.begin(labels_of(kind))
    for epoch in (1, 2):
        torch.testing.assert_close(method(logits, rows), loss(logits, labels_of(kind)[rows], **options))
        method.end_epoch(epoch, None)
