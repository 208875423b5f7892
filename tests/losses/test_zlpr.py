import math

import pytest
import torch

from onepair.losses import opml_loss, zlpr_loss
from tests.losses.batches import random_batch


def test_equals_torch_logsumexp_with_a_zero_appended():
    logits, labels = random_batch()
    zero = torch.zeros(len(labels), 1, dtype=torch.float64)
    positive = labels == 1
    expected = sum(
        torch.cat([scores.masked_fill(~mask, -math.inf), zero], dim=1).logsumexp(dim=1)
        for scores, mask in ((-logits, positive), (logits, ~positive))
    )
    torch.testing.assert_close(zlpr_loss(logits, labels, reduction="none"), expected)


@pytest.mark.parametrize("unknown", ["negative", "ignore"])
def test_is_opml_with_equal_halves(unknown):
    logits, labels = random_batch()
    assert torch.equal(
        zlpr_loss(logits, labels, unknown=unknown), opml_loss(logits, labels, alpha=0.5, beta=0.5, unknown=unknown)
    )
