import math

import pytest
import torch

from onepair.losses import two_way_loss
from tests.losses.batches import counts_as, extreme_cases, random_batch


def slow_two_way(logits, labels, unknown, positive_temperature=4.0, negative_temperature=1.0):
    total = 0.0
    for scores, kinds in ((logits, labels), (logits.T, labels.T)):
        values = []
        for line, row in zip(scores.tolist(), kinds.tolist(), strict=True):
            cells = [(score, counts_as(label, unknown)) for score, label in zip(line, row, strict=True)]
            positives = [math.exp(-score / positive_temperature) for score, kind in cells if kind == "positive"]
            negatives = [math.exp(score / negative_temperature) for score, kind in cells if kind == "negative"]
            if positives and negatives:
                gap = negative_temperature * math.log(sum(negatives)) + positive_temperature * math.log(sum(positives))
                values.append(math.log(1 + math.exp(gap)))
        total += sum(values) / len(values) if values else 0.0
    return total


@pytest.mark.parametrize("unknown", ["negative", "ignore"])
@pytest.mark.parametrize("options", [{}, {"positive_temperature": 1.0, "negative_temperature": 2.0}])
def test_equals_the_definition(options, unknown):
    logits, labels = random_batch(rows=9, classes=6)
    labels[0], labels[:, 1] = 1, 0  # without one kind
    value = two_way_loss(logits, labels, unknown=unknown, **options)
    assert value.item() == pytest.approx(slow_two_way(logits, labels, unknown, **options))
    assert torch.autograd.gradcheck(lambda s: two_way_loss(s, labels, unknown=unknown, **options), logits)


def test_finite_value_and_gradient():
    for case in extreme_cases():
        value = two_way_loss(case.logits, case.labels)
        value.backward()
        assert value.isfinite(), case
        assert value.dtype == torch.promote_types(case.logits.dtype, torch.float32), case
        assert case.logits.grad.isfinite().all(), case


def test_rows_and_classes_may_change_places():
    logits, labels = random_batch()
    torch.testing.assert_close(two_way_loss(logits.T, labels.T), two_way_loss(logits, labels))


def test_a_temperature_is_above_zero():
    with pytest.raises(ValueError, match="negative_temperature must be above 0, got 0"):
        two_way_loss(torch.zeros(1, 2), torch.tensor([[1, 0]]), negative_temperature=0)


def test_labels_of_any_dtype_sequences_and_empty_batches():
    logits, labels = random_batch(rows=6, classes=4)
    expected = two_way_loss(logits, labels)
    for given in (labels.numpy(), labels.double(), torch.where(labels == -1, torch.nan, labels.float())):
        torch.testing.assert_close(two_way_loss(logits, given), expected)
    torch.testing.assert_close(two_way_loss(logits, labels == 1), two_way_loss(logits, (labels == 1).to(torch.int8)))
    torch.testing.assert_close(two_way_loss(logits.view(2, 3, 4), labels.view(2, 3, 4)), expected)
    for shape in ((0, 4), (2, 0, 4)):
        empty = torch.zeros(shape, requires_grad=True)
        value = two_way_loss(empty, torch.zeros(shape))
        value.backward()
        assert value == 0
        assert empty.grad is not None
    with pytest.raises(ValueError, match=r"holds 0\.5; a label is 1"):
        two_way_loss(torch.zeros(1, 2), torch.tensor([[0.0, 0.5]]))
