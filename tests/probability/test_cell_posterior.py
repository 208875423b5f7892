"""Probabilities of all cells on data with known truth: calibrated out of sample, with and without full labels."""

import numpy as np
import pytest
from scipy.special import expit

from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, observe_positives
from onepair.probability.calibration import expected_calibration_error
from onepair.probability.cell_posterior import fit_label_noise, judge

ROWS, SAMPLE, CLASSES = 2000, 1000, 5


def generate(rows, random):
    """Scores whose probabilities are another line of them for each class, and labels drawn by these."""
    scores = random.normal(0, 3, (2 * rows, CLASSES))
    labels = (random.random(scores.shape) < expit(1.5 * scores + np.linspace(-5, -2, CLASSES))).astype(np.int8)
    kept = np.flatnonzero(labels.any(1))[:rows]
    return scores[kept], labels[kept]


@pytest.fixture(scope="module")
def drawn():
    random = np.random.default_rng(0)
    return generate(ROWS, random), generate(SAMPLE, random)


def hidden_truth(labels, observed):
    return np.where(observed == UNKNOWN, labels, UNKNOWN).astype(np.int8)


def test_probabilities_with_a_sample_are_calibrated(drawn):
    (scores, labels), (sample_scores, sample) = drawn
    observed = observe_positives(labels)
    judgement = judge(observed, scores, sample=sample, sample_scores=sample_scores)
    truth = hidden_truth(labels, observed)
    error = expected_calibration_error(judgement.probabilities, truth)
    assert error < 0.02
    assert error < 0.25 * expected_calibration_error(expit(scores), truth)
    missing = (truth == POSITIVE).sum(0)
    assert ((judgement.missing.low <= missing) & (missing <= judgement.missing.high)).mean() >= 0.8
    assert judgement.total.low <= missing.sum() <= judgement.total.high
    assert judgement.basis == "full labels of 1,000 validation images"


@pytest.mark.parametrize("process", ["single", "at random"])
def test_without_a_sample_an_assumption_takes_its_place(drawn, process):
    (scores, labels), _ = drawn
    random = np.random.default_rng(1)
    kept = (labels == POSITIVE) & (random.random(labels.shape) < 0.5)
    observed = observe_positives(labels) if process == "single" else np.where(kept, POSITIVE, UNKNOWN).astype(np.int8)
    judgement = judge(observed, scores)
    truth = hidden_truth(labels, observed)
    assert expected_calibration_error(judgement.probabilities, truth) < 0.5 * expected_calibration_error(
        expit(scores), truth
    )
    assert judgement.total.low <= (truth == POSITIVE).sum() <= judgement.total.high
    assert judgement.basis.startswith("observed labels alone, if ")


def test_rows_of_the_sample_with_unknown_labels_count_as_far_as_they_are_known(drawn):
    """Half of the sample's cells known, all of some rows: better than without any."""
    (scores, labels), (sample_scores, sample) = drawn
    observed = observe_positives(labels)
    holes = sample.copy()
    holes[30:, 2] = UNKNOWN
    truth = hidden_truth(labels, observed)
    alone = judge(observed, scores)
    partly = judge(observed, scores, sample=holes, sample_scores=sample_scores)
    few = judge(observed, scores, sample=sample[:30], sample_scores=sample_scores[:30])
    losses = [log_loss(each.probabilities, truth) for each in (partly, few, alone)]
    assert losses[0] < losses[1] + 1e-3
    assert losses[1] < losses[2] + 5e-3


def log_loss(probabilities, truth):
    cells = truth != UNKNOWN
    right = np.where(truth == POSITIVE, probabilities, 1 - probabilities)[cells]
    return -np.log(np.maximum(right, 1e-6)).mean()


def test_rows_of_unequal_chances_count_by_what_they_stand_for(drawn):
    """Rows with many labels were looked at four times as often: weighed, they count as many as there are."""
    (scores, labels), (sample_scores, sample) = drawn
    observed, random = observe_positives(labels), np.random.default_rng(3)
    chance = np.where(sample.sum(1) > 1, 0.8, 0.2)
    looked = random.random(len(sample)) < chance
    missing = (hidden_truth(labels, observed) == POSITIVE).sum()
    plain, weighed = (
        judge(observed, scores, sample=sample[looked], sample_scores=sample_scores[looked], sample_weights=each)
        for each in (None, 1 / chance[looked])
    )
    assert abs(weighed.total.value - missing) < abs(plain.total.value - missing)


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_wrong_labels_are_found_where_there_are_some(drawn, noise):
    """A share of the rows shows a label that is not there, a share of known negatives is positive."""
    (scores, labels), (sample_scores, sample) = drawn
    random = np.random.default_rng(2)
    observed = observe_positives(labels)
    known = random.random(labels.shape) < 0.3
    observed[known & (labels == NEGATIVE)] = NEGATIVE
    flipped = np.where((observed != UNKNOWN) & (random.random(labels.shape) < noise), 1 - observed, observed)
    judgement = judge(flipped.astype(np.int8), scores, sample=sample, sample_scores=sample_scores)
    for value, chance in ((POSITIVE, 1 - judgement.probabilities), (NEGATIVE, judgement.probabilities)):
        cells = flipped == value
        wrong = labels[cells] != value
        assert chance[cells].sum() == pytest.approx(wrong.sum(), rel=0.15, abs=3)
        likely = chance[cells] > 0.5
        assert wrong[likely].mean() > 0.75 if noise else likely.sum() <= 3


def test_all_labels_known_leaves_nothing_missing(drawn):
    (scores, labels), (sample_scores, sample) = drawn
    judgement = judge(labels, scores, sample=sample, sample_scores=sample_scores)
    np.testing.assert_array_equal(judgement.missing.high, 0)
    assert ((judgement.probabilities > 0.5) == (labels == POSITIVE)).mean() > 0.98


@pytest.mark.parametrize("drawn", [0, 1])
def test_where_most_labels_would_be_wrong_none_is(drawn):
    """Scores by which every label speaks against itself, as a few images may give them, say nothing of the labels."""
    random = np.random.default_rng(0)
    observed = np.full((40, 3), UNKNOWN, np.int8)
    observed[np.arange(40), random.integers(3, size=40)] = POSITIVE
    logits = np.where(observed == POSITIVE, -3.0, 1.0) + 0.1 * random.normal(size=observed.shape)
    unknown = np.full(observed.shape, 0.3)
    found = fit_label_noise(observed, unknown, logits, max_shown=drawn)(observed, unknown, logits)
    assert (found[observed == POSITIVE] == 1).all()
    np.testing.assert_array_equal(found[observed == UNKNOWN], 0.3)


def test_a_few_clear_ones_are_still_thought_to_be_wrong():
    random = np.random.default_rng(0)
    observed = np.full((400, 3), UNKNOWN, np.int8)
    shown = random.integers(3, size=400)
    observed[np.arange(400), shown] = POSITIVE
    logits = np.where(observed == POSITIVE, 4.0, -4.0) + 0.3 * random.normal(size=observed.shape)
    logits[:12][observed[:12] == POSITIVE] = -6.0
    unknown = np.full(observed.shape, 0.05)
    found = fit_label_noise(observed, unknown, logits, max_shown=0)(observed, unknown, logits)
    right = found[np.arange(400), shown]
    assert right[:12].max() < 0.7
    assert (right[12:] > 0.9).all()


def many_rows(seed=0, rows=400, classes=6):
    random = np.random.default_rng(seed)
    logits = random.normal(0, 2, (rows, classes)) - 1.5
    truth = (random.random(logits.shape) < 1 / (1 + np.exp(-logits))).astype(np.int8)
    truth[~truth.any(1), 0] = 1
    return logits, truth, random


def test_single_positives_are_ranked_as_the_raw_scores_rank_them():
    logits, truth, random = many_rows()
    first = np.where(truth == 1, random.random(truth.shape), 2).argmin(1)
    observed = np.full(truth.shape, -1, np.int8)
    observed[np.arange(len(truth)), first] = 1
    unknown = observed == -1

    found = judge(observed, logits).probabilities[unknown]

    np.testing.assert_array_equal(np.argsort(-found, kind="stable"), np.argsort(-logits[unknown], kind="stable"))


def test_an_answer_of_a_person_is_never_in_doubt_and_makes_no_other_label_look_wrong():
    logits, truth, random = many_rows()
    observed = np.where(random.random(truth.shape) < 0.4, truth, np.int8(-1))
    highest = np.argsort(-np.where(observed == -1, logits, -np.inf), axis=None)[:40]
    asked = np.zeros(truth.shape, bool)
    asked.flat[highest] = True
    refused = np.where(asked, np.int8(0), observed)  # "no" to all of them, however high they score

    before, after = judge(observed, logits), judge(refused, logits, asked=asked)

    assert (after.probabilities[asked] == 0).all()
    shown = observed == 1
    assert (1 - after.probabilities[shown]).sum() <= (1 - before.probabilities[shown]).sum() + 0.5


def off_by(shift, random, rows=1500, classes=6):
    """Four tenths of the positives, the clear ones sooner, by scores of which the level says nothing."""
    logits = random.normal(-2, 1.5, (rows, classes))
    truth = (random.random(logits.shape) < expit(logits + shift)).astype(np.int8)
    seen = (truth == POSITIVE) & (random.random(truth.shape) < expit(logits - 0.5))
    return logits, truth, np.where(seen, POSITIVE, UNKNOWN).astype(np.int8)


def first_hundred(found, truth, observed):
    unknown = observed == UNKNOWN
    said, right = found.probabilities[unknown], truth[unknown] == POSITIVE
    order = np.argsort(-said, kind="stable")[:100]
    return said[order], right[order].mean(), found.correction.share(said[order])


@pytest.mark.parametrize("told", ["answers", "rows in full"])
def test_what_is_told_brings_what_is_stated_to_what_is_right(told):
    random, errors = np.random.default_rng(3), []
    for shift in (-1.0, 1.0):
        scores, truth, observed = off_by(shift, random)
        before = judge(observed, scores)
        asked = np.zeros(truth.shape, bool)
        if told == "answers":
            cells = np.where(observed == UNKNOWN, before.probabilities, -1)
            asked.flat[np.argsort(-cells, axis=None)[:100]] = True
            known = np.where(asked, truth, observed)
        else:
            known = observed.copy()
            known[:300] = truth[:300]
        after = judge(known, scores, asked=asked)
        (said, right, share), (first, first_right, _) = (
            first_hundred(found, truth, labels) for found, labels in ((after, known), (before, observed))
        )
        errors.append((abs(first.mean() - first_right), abs(said.mean() - right)))
        assert share.low <= right <= share.high
        assert share.is_informative
    before_error, after_error = np.mean(errors, axis=0)
    assert after_error < 0.7 * before_error


def test_where_labels_known_to_be_right_look_wrong_as_well_hardly_any_is_suggested():
    """One positive in twelve scores like a negative, and none is wrong: only rows in full can tell."""
    random = np.random.default_rng(5)
    truth = (random.random((2000, 5)) < 0.25).astype(np.int8)
    truth[~truth.any(1), 0] = 1
    hard = random.random(truth.shape) < 1 / 12
    scores = np.where((truth == POSITIVE) & ~hard, 3.0, -3.0) + random.normal(0, 0.8, truth.shape)
    observed = observe_positives(truth)
    shown = observed == POSITIVE
    alone = judge(observed[600:], scores[600:], sample=truth[:600], sample_scores=scores[:600])
    assert ((1 - alone.probabilities)[shown[600:]] > 0.5).sum() <= 2
    planted = observed.copy()
    for row in range(600, 2000, 20):  # one in twenty is wrong
        planted[row] = UNKNOWN
        planted[row, np.flatnonzero(truth[row] == NEGATIVE)[0]] = POSITIVE
    found = judge(planted[600:], scores[600:], sample=truth[:600], sample_scores=scores[:600])
    cells = planted[600:] == POSITIVE
    wrong = (truth[600:] != planted[600:])[cells]
    assert (1 - found.probabilities[cells]).sum() == pytest.approx(wrong.sum(), rel=0.6)
