"""What labels are worth, against counts by hand, and intervals that hold the truth."""

import numpy as np
import pytest

from onepair.labels import POSITIVE, UNKNOWN, observe_positives
from onepair.probability import precision_recall as module
from onepair.probability.evaluation import evaluate
from onepair.probability.precision_recall import PRECISIONS, precision_recall
from onepair.probability.thresholds import fit_decisions
from tests.probability.test_observation import generate

CLASSES = [f"class{number}" for number in range(6)]


def slow_recall(chances, positive, wanted):
    """Try every chance as the one from which on labels are taken."""
    taken = [chances >= limit for limit in np.unique(chances)]
    return max((positive[each].sum() / positive.sum() for each in taken if positive[each].mean() >= wanted), default=0)


def test_known_labels_are_counted():
    random = np.random.default_rng(0)
    chances = random.random((2000, 3)) ** 2
    labels = (random.random(chances.shape) < chances).astype(np.int8)
    found = precision_recall(chances, chances >= 0.5, labels, labels.astype(float))
    assert found.precision.value == pytest.approx(labels[chances >= 0.5].mean())
    assert found.recall.value == pytest.approx(labels[chances >= 0.5].sum() / labels.sum())
    for cut in found.cuts:
        assert cut.recall.value == pytest.approx(slow_recall(chances, labels, cut.precision), abs=0.05)
        assert labels[chances >= cut.probability].mean() >= cut.precision - 1e-9
    for each in (found.precision, found.recall, *(cut.recall for cut in found.cuts)):
        assert each.low <= each.value <= each.high
        assert 0 < each.high - each.low < 0.2


def test_a_model_that_knows_nothing_never_has_nine_in_ten_right():
    labels = (np.random.default_rng(0).random((500, 4)) < 0.2).astype(np.int8)
    chances = np.full(labels.shape, 0.2)
    found = precision_recall(chances, chances >= 0.5, labels, labels.astype(float))
    assert found.precision is None
    assert found.sentence == "by 500 images: it gives no label, as none is at its threshold"
    assert [(cut.probability, cut.recall.value) for cut in found.cuts] == [(None, 0.0)] * len(PRECISIONS)


def test_blocks_of_rows_change_nothing(monkeypatch):
    scores, _, labels = generate(300, np.random.default_rng(7))
    observed = observe_positives(labels)
    decisions = fit_decisions(scores, observed, rule="likely")
    whole = evaluate(scores, observed, decisions, CLASSES).precision_recall
    monkeypatch.setattr(module, "_BLOCK", 100)
    blocks = evaluate(scores, observed, decisions, CLASSES).precision_recall
    for one, other in zip(whole.cuts, blocks.cuts, strict=True):
        assert one.recall == pytest.approx(other.recall)
    assert whole.precision == pytest.approx(blocks.precision)


@pytest.mark.parametrize("process", ["single", "at random", "some in full"])
def test_intervals_hold_what_all_labels_tell(process):
    scores, _, labels = generate(3000, np.random.default_rng(3))
    random = np.random.default_rng(4)
    kept = random.random(labels.shape) < 0.5
    if process == "single":
        observed = observe_positives(labels)
    elif process == "at random":
        observed = np.where((labels == POSITIVE) & kept, POSITIVE, UNKNOWN).astype(np.int8)
    else:
        observed = np.where((random.random(len(labels)) < 0.1)[:, None], labels, observe_positives(labels))
    decisions = fit_decisions(scores, observed, rule="likely")
    found = evaluate(scores, observed, decisions, CLASSES).precision_recall
    truth = evaluate(scores, labels, decisions, CLASSES).precision_recall
    for each, true in ((found.precision, truth.precision), (found.recall, truth.recall)):
        assert each.low <= true.value <= each.high
    for cut, true in zip(found.cuts, truth.cuts, strict=True):
        assert cut.recall.low <= true.recall.value <= cut.recall.high
        assert true.recall.low <= true.recall.value <= true.recall.high


def test_rows_in_full_make_intervals_narrow():
    scores, _, labels = generate(2000, np.random.default_rng(5))
    singles = observe_positives(labels)
    mixed = np.where((np.arange(len(labels)) % 4 == 0)[:, None], labels, singles)
    widths = []
    for observed in (singles, mixed):
        decisions = fit_decisions(scores, observed, rule="likely")
        found = evaluate(scores, observed, decisions, CLASSES).precision_recall
        widths.append([each.high - each.low for each in (found.precision, found.recall, found.cuts[3].recall)])
    assert (np.array(widths[1]) < np.array(widths[0])).all()


def test_python_has_it_as_a_table():
    scores, _, labels = generate(500, np.random.default_rng(6))
    found = evaluate(scores, labels, fit_decisions(scores, labels), CLASSES)
    frame = found.precision_recall.to_frame()
    assert frame.columns.tolist() == ["precision", "probability", "recall", "low", "high"]
    assert frame.precision.tolist() == list(PRECISIONS)
    assert found.to_dict()["precision_recall"]["cuts"][0]["recall"]["value"] == frame.recall[0]
    assert found.to_dict()["sentence"] == found.sentence
