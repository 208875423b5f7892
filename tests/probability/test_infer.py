"""What known and unknown labels say together, against the truth of data that labels were hidden from."""

import numpy as np
import pytest
from scipy.special import expit

from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, observe_positives
from onepair.metrics import precision_recall_f1
from onepair.probability import fit_decisions
from onepair.probability.calibration import fit_platt
from onepair.probability.infer import class_priors, infer
from tests.probability.test_observation import generate


def hide(labels, random, positive, negative=0.0):
    kept = random.random(labels.shape) < np.where(labels == POSITIVE, positive, negative)
    return np.where(kept, labels, UNKNOWN).astype(np.int8)


def missing_of(labels, observed):
    return ((labels == POSITIVE) & (observed == UNKNOWN)).sum(0)


def test_missing_single_positives_lie_in_the_interval():
    scores, _, labels = generate(1000, np.random.default_rng(2))
    observed = observe_positives(labels)
    inference, missing = infer(scores, observed), missing_of(labels, observed)
    assert ((inference.missing.low <= missing) & (missing <= inference.missing.high)).all()
    assert (inference.missing.low < inference.missing.value).all()
    assert inference.total.low < missing.sum() < inference.total.high
    assert inference.total.value == pytest.approx(inference.missing.value.sum())


@pytest.mark.parametrize("negative", [0.0, 0.1, 0.7])
def test_labels_at_random_are_counted_and_calibrated(negative):
    random = np.random.default_rng(4)
    chance = np.array([0.3, 0.5, 0.7, 0.9, 0.3, 0.5])
    scores, probabilities, labels = generate(5000, random, slope=6.0)
    observed = hide(labels, random, chance, negative)
    inference, missing = infer(scores, observed), missing_of(labels, observed)
    np.testing.assert_allclose(inference.rates.negative, negative, atol=0.05)
    assert np.abs(inference.platt(scores) - probabilities).mean() < (0.03 if negative else 0.06)
    assert inference.total.low < missing.sum() < inference.total.high


def test_labels_known_by_lists_are_calibrated_on_as_they_are():
    """Half of the rows come from a dataset of the first three classes, the others from one of the rest."""
    scores, _, labels = generate(3000, np.random.default_rng(6))
    observed = labels.copy()
    observed[:1500, 3:] = UNKNOWN
    observed[1500:, :3] = UNKNOWN
    found, expected = infer(scores, observed).platt, fit_platt(scores, observed)
    assert np.abs(found(scores) - expected(scores)).max() < 0.01


def test_rows_in_full_draw_probabilities_to_the_truth():
    """The positive of highest score is shown, and not any: the more rows are looked at, the less that matters."""
    scores, probabilities, labels = generate(3000, np.random.default_rng(7), intercepts=(-1, 1))
    observed = np.full(labels.shape, UNKNOWN, np.int8)
    observed[np.arange(3000), np.where(labels == POSITIVE, scores, -np.inf).argmax(1)] = POSITIVE
    errors = []
    for rows in (0, 50, 500, 2000):
        shown = observed.copy()
        shown[:rows] = labels[:rows]
        errors.append(np.abs(infer(scores, shown).platt(scores) - probabilities).mean())
    assert errors[3] < 0.6 * errors[0]
    assert errors[3] < errors[2] < errors[1] < errors[0]


@pytest.mark.parametrize("most", [1, 2])
@pytest.mark.parametrize("empty", [False, True])
def test_positives_that_are_drawn_are_counted(most, empty):
    """Up to so many of a row, where rows without any are left out, and where they are not."""
    random = np.random.default_rng(1)
    scores = random.normal(0, 1.5, (3000, 6))
    labels = (random.random(scores.shape) < expit(3 * scores - 3)).astype(np.int8)
    kept = labels.any(1) | empty
    scores, labels = scores[kept], labels[kept]
    rank = np.where(labels == POSITIVE, random.random(labels.shape), 2).argsort(1).argsort(1)
    observed = np.where((labels == POSITIVE) & (rank < most), POSITIVE, UNKNOWN).astype(np.int8)
    inference, missing = infer(scores, observed), missing_of(labels, observed).sum()
    assert inference.observation.max_shown == most
    assert inference.observation.has_empty_rows == empty
    assert inference.total.low < missing < inference.total.high


@pytest.mark.parametrize("stop", [0.0, 0.5])
def test_rows_that_show_fewer_than_the_most_may_have_more(stop):
    """Half of the rows were allowed one positive, the others two; or all two."""
    random = np.random.default_rng(3)
    scores, _, labels = generate(2000, random)
    allowed = np.where(random.random(len(labels)) < stop, 1, 2)
    rank = np.where(labels == POSITIVE, random.random(labels.shape), 2).argsort(1).argsort(1)
    observed = np.where((labels == POSITIVE) & (rank < allowed[:, None]), POSITIVE, UNKNOWN).astype(np.int8)
    total = infer(scores, observed).total
    assert total.low < missing_of(labels, observed).sum() < total.high


def test_asked_labels_are_taken_as_truth_and_as_nothing_else():
    """The highest unknown cells of each class are asked for; as few are positive as their probabilities say."""
    random = np.random.default_rng(8)
    scores, probabilities, labels = generate(3000, random)
    observed = observe_positives(labels)
    asked = (observed == UNKNOWN) & (scores >= np.sort(scores, axis=0)[-300])
    answered = np.where(asked, labels, observed).astype(np.int8)
    plain, helped = infer(scores, observed), infer(scores, answered, asked=asked)
    np.testing.assert_array_equal(helped.probabilities[asked], labels[asked])
    np.testing.assert_allclose(helped.rates.negative, 0)
    errors = [np.abs(each.platt(scores) - probabilities).mean() for each in (plain, helped)]
    assert errors[1] < errors[0] + 0.005


def test_rows_are_drawn_where_there_are_too_many_cells(monkeypatch):
    random = np.random.default_rng(9)
    scores, _, labels = generate(4000, random)
    observed = hide(labels, random, 0.5, 0.5)
    whole = infer(scores, observed)
    monkeypatch.setattr("onepair.probability.infer._MOST_CELLS", 12_000)
    np.testing.assert_allclose(infer(scores, observed).platt(scores), whole.platt(scores), atol=0.06)


def test_a_class_without_observed_positives_has_few_missing():
    scores, _, labels = generate(300, np.random.default_rng(5))
    labels[:, 0] = NEGATIVE
    kept = labels.any(1)
    scores[:, 0] = -5
    assert infer(scores[kept], observe_positives(labels[kept])).missing.value[0] < 3


@pytest.mark.parametrize("negative", [0.0, 0.3])
def test_one_class_has_as_many_missing_as_all_together(negative):
    random = np.random.default_rng(5)
    scores, _, labels = generate(60, random)
    weak = scores[:, :1] + 2 * random.normal(size=(60, 1))
    found = infer(weak, hide(labels[:, :1], random, 0.3, negative))
    assert [float(each) for each in found.total] == [float(each[0]) for each in found.missing]


def test_without_any_positive_nothing_can_be_said():
    with pytest.raises(ValueError, match="no positive label is observed"):
        infer([[1.0, 2.0]], [[-1, 0]])


@pytest.mark.parametrize(("positive", "negative"), [(0.3, 0.1), (0.3, 0.0), (0.5, 0.1)])
def test_of_a_class_that_is_known_less_than_others_more_may_be_missing(positive, negative):
    """Negatives that are known of other classes say nothing of its positives."""
    for seed in range(3):
        random = np.random.default_rng(seed)
        scores = random.normal(0, 1.5, (600, 8))
        labels = (random.random(scores.shape) < expit(3 * scores - 4)).astype(np.int8)
        observed = labels.copy()
        observed[:, 7:] = hide(labels[:, 7:], random, positive, negative)
        found = infer(scores, observed)
        assert found.missing.low[7] < missing_of(labels, observed)[7] < found.missing.high[7]
        assert found.total == tuple(each[7] for each in found.missing)
        np.testing.assert_array_equal(found.missing.high[:7], 0)


CLASSES = 8
NOISE = 0.02  # of F1 on 3,000 rows, and of thresholds chosen on 800


def look_alikes(rows, random):
    """Pairs of classes that look alike, so that labels are not independent given the scores."""
    labels = random.random((rows, CLASSES)) < np.linspace(0.08, 0.3, CLASSES)
    labels[~labels.any(1), 0] = True
    strength = 2 * labels + 0.6 * labels[:, ::-1]
    return 1.5 * strength - 2 + random.normal(0, 1, labels.shape), labels.astype(np.int8)


def start(labels, random):
    kind = random.integers(4)
    chance = random.random(labels.shape)
    if kind == 0:
        return observe_positives(labels)
    if kind == 1:
        return observe_positives(labels, per_sample=2)
    rates = (random.uniform(0.3, 0.9), 0.0 if kind == 2 else random.uniform(0.02, 0.6))
    return np.where(chance < np.where(labels == POSITIVE, *rates), labels, UNKNOWN).astype(np.int8)


def more(scores, labels, observed, random):
    """Random cells, whole rows, known negatives, or the answers to what a model suggests; and which were asked for."""
    kind, shown = random.integers(4), observed.copy()
    asked = np.zeros(labels.shape, bool)
    if kind == 0:
        cells = random.random(labels.shape) < random.choice([0.01, 0.1, 0.4])
    elif kind == 1:
        cells = np.zeros(labels.shape, bool)
        cells[random.choice(len(labels), random.choice([10, 60, 300]), replace=False)] = True
    elif kind == 2:
        cells = (labels == 0) & (random.random(labels.shape) < random.choice([0.01, 0.1, 0.4]))
    else:
        probable = np.where(observed == UNKNOWN, infer(scores, observed).probabilities, -1)
        cells = probable >= np.sort(probable, axis=None)[-random.choice([30, 300, 1000])]
        cells &= observed == UNKNOWN
        asked = cells
    shown[cells] = labels[cells]
    return shown, asked


@pytest.mark.parametrize("seed", range(24))
def test_more_labels_make_nothing_worse(seed):
    random = np.random.default_rng(seed)
    (scores, labels), (test_scores, test_labels) = look_alikes(800, random), look_alikes(3000, random)
    observed = start(labels, random)
    shown, asked = more(scores, labels, observed, random)
    before, after = fit_decisions(scores, observed), fit_decisions(scores, shown, asked=asked)
    f1 = [precision_recall_f1(each.labels(test_scores), test_labels, average="class").f1 for each in (before, after)]
    assert f1[1] > f1[0] - NOISE
    off = [abs(each.probabilities(test_scores).mean() - test_labels.mean()) for each in (before, after)]
    assert off[1] < off[0] + 0.04


def positives_at_random(steepness, share, rows=4000, seed=0):
    random = np.random.default_rng(seed)
    scores = random.normal(size=(rows, 4))
    truth = random.random(scores.shape) < expit(steepness * (scores - 1))
    observed = truth & (random.random(scores.shape) < share)
    return scores, truth, np.where(observed, POSITIVE, UNKNOWN).astype(np.int8)


@pytest.mark.parametrize("share", [0.1, 0.3])
def test_intervals_hold_where_the_likelihood_takes_unknown_for_negative(share):
    scores, truth, labels = positives_at_random(1.5, share, rows=600)
    found = infer(scores, labels)
    missing = truth & (labels == UNKNOWN)
    assert found.total.low <= missing.sum() <= found.total.high
    assert ((found.missing.low <= missing.sum(0)) & (missing.sum(0) <= found.missing.high)).all()


@pytest.mark.parametrize("process", ["single", "positives", "both"])
def test_the_interval_holds_the_share_of_positives(process):
    random = np.random.default_rng(0)
    scores, _, labels = generate(3000, random, slope=4.0)
    rates = (0.6, 0.2) if process == "both" else (0.6, 0.0)
    kept = random.random(labels.shape) < np.where(labels == POSITIVE, *rates)
    hidden = np.where(kept, labels, UNKNOWN).astype(np.int8)
    found = class_priors(scores, observe_positives(labels) if process == "single" else hidden)
    truth = labels.mean(0)
    assert ((found.low <= truth) & (truth <= found.high)).mean() >= 0.8
    assert np.abs(np.log(found.value / truth)).mean() < 0.2
    assert (found.low <= found.value).all()
    assert (found.value <= found.high).all()


def test_known_labels_leave_no_doubt():
    scores, _, labels = generate(300, np.random.default_rng(1))
    found = class_priors(scores, labels)
    for each in found:
        np.testing.assert_allclose(each, labels.mean(0))
