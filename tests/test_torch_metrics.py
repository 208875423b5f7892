"""The metric by batches says what the function says of all of them."""

import subprocess
import sys

import numpy as np
import pytest
import torch
import torchmetrics

from onepair import MeanAveragePrecision, mean_average_precision


def batches(rows=57, classes=4):
    random = np.random.default_rng(0)
    scores = random.normal(size=(rows, classes)).round(1).astype(np.float32)  # with ties
    labels = random.integers(-1, 2, scores.shape).astype(np.int8)
    return scores, labels


@pytest.mark.filterwarnings("ignore:The ``compute`` method")  # before an update, which is refused
@pytest.mark.parametrize("size", [1, 10, 57])
def test_equals_the_function_by_any_blocks(size):
    scores, labels = batches()
    metric = MeanAveragePrecision()
    for start in range(0, len(scores), size):
        metric.update(torch.from_numpy(scores[start : start + size]), torch.from_numpy(labels[start : start + size]))
    assert metric.compute().item() == mean_average_precision(scores, labels).value
    metric.reset()
    with pytest.raises(ValueError, match="call update first"):
        metric.compute()
    metric.update(scores[:20], labels[:20])
    assert metric.compute().item() == mean_average_precision(scores[:20], labels[:20]).value


def test_labels_of_any_kind_sequences_and_empty_batches():
    scores, labels = batches(rows=12)
    expected = mean_average_precision(scores, labels).value
    metric = MeanAveragePrecision()
    metric.update(torch.zeros(0, 4), torch.zeros(0, 4))
    metric.update(
        torch.from_numpy(scores).view(3, 4, 4).bfloat16().float(), np.where(labels < 0, np.nan, labels).reshape(3, 4, 4)
    )
    assert metric.compute().item() == pytest.approx(expected, abs=0.05)
    known = labels == 1
    assert mean_average_precision(scores.reshape(3, 4, 4), known.reshape(3, 4, 4)) == mean_average_precision(
        scores, known
    )


def test_a_caller_may_reuse_its_arrays():
    scores, labels = batches()
    metric, block = MeanAveragePrecision(), scores[:30].copy()
    metric.update(block, labels[:30])
    block[:] = 0
    assert metric.compute().item() == mean_average_precision(scores[:30], labels[:30]).value


def test_is_a_metric_of_torchmetrics():
    scores, labels = map(torch.from_numpy, batches())
    metric = MeanAveragePrecision()
    assert isinstance(metric, torchmetrics.Metric)
    collection = torchmetrics.MetricCollection({"mAP": metric, "zero": MeanAveragePrecision(empty="zero")})
    assert collection(scores[:30], labels[:30])["mAP"] == mean_average_precision(scores[:30], labels[:30]).value
    collection(scores[30:], labels[30:])
    assert collection.compute()["mAP"] == mean_average_precision(scores, labels).value


def test_needs_no_torchmetrics():
    code = (
        "import sys; sys.modules['torchmetrics'] = None\n"
        "import torch; from onepair import MeanAveragePrecision\n"
        "metric, labels = MeanAveragePrecision(), torch.tensor([[1, 0], [0, 1]])\n"
        "batches = torch.tensor([[[0.1, 0.9], [0.9, 0.1]], [[2.0, 0.0], [0.0, 2.0]]])\n"
        "alone = [metric(batch, labels) for batch in batches]\n"
        "print(*map(float, alone), float(metric.compute()))\n"
        "metric.reset(); metric.update(torch.eye(2), labels); print(float(metric.compute()))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert [float(each) for each in result.stdout.split()] == pytest.approx([1 / 2, 1, 5 / 6, 1])


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="empty must be"):
        MeanAveragePrecision(empty="nan")
    metric = MeanAveragePrecision()
    with pytest.raises(ValueError, match="labels: row 0, column 1 holds 2"):
        metric.update(torch.zeros(1, 2), torch.tensor([[0, 2]]))
    metric.update(torch.eye(2), torch.tensor([[1, -1], [-1, 1]]))
    with pytest.raises(ValueError, match="no class has a known negative"):
        metric.compute()
