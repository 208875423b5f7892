"""Missing labels from scores in blocks, against `infer` and a ranking of the whole matrix."""

import numpy as np
import pytest

from onepair.errors import RunError
from onepair.finding import block_find as by_blocks
from onepair.finding import find_by_blocks
from onepair.label_matrix import LabelMatrix
from onepair.labels import observe_positives
from onepair.probability.infer import infer


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(by_blocks, "_BLOCK", 70 * 6)


def problem(rows=300, classes=6):
    random = np.random.default_rng(4)
    logits = random.normal(-1, 2, (rows, classes)).astype(np.float32)
    truth = (random.random((rows, classes)) < 1 / (1 + np.exp(-logits))).astype(np.int8)
    truth[~truth.any(1), 0] = 1
    return logits, truth


def test_the_likeliest_of_each_class_by_the_whole_matrix():
    scores, truth = problem()
    observed = observe_positives(truth)
    found = find_by_blocks(LabelMatrix.of(observed), scores.__getitem__, per_class=4)
    whole = infer(scores, observed)
    np.testing.assert_allclose(found.missing.value, whole.missing.value)
    assert found.sample == len(scores)
    cells = list(zip(found.suggestions.row.tolist(), found.suggestions.label.tolist(), strict=True))
    hidden = np.where(observed == -1, scores, -np.inf)
    expected = {(int(row), label) for label in range(6) for row in np.argsort(-hidden[:, label])[:4]}
    assert set(cells) == expected
    probabilities = np.array([whole.probabilities[cell] for cell in cells])
    np.testing.assert_allclose(found.suggestions.probability, probabilities)
    assert (np.diff(found.suggestions.probability) <= 0).all()
    assert set(found.suggestions.kind.tolist()) == {"missing"}
    assert np.mean([truth[cell] for cell in cells]) > 2 * truth[observed == -1].mean()


def test_a_sample_stands_for_all_rows(monkeypatch):
    scores, truth = problem(rows=2_000)
    observed = observe_positives(truth)
    monkeypatch.setattr(by_blocks, "_SAMPLED_CELLS", 600 * 6)
    found = find_by_blocks(LabelMatrix.of(observed), scores.__getitem__, per_class=3)
    assert found.sample == 600
    sample = np.sort(np.random.default_rng(0).choice(2_000, 600, replace=False))
    of_sample = infer(scores[sample], observed[sample]).missing
    np.testing.assert_allclose(found.missing.value, of_sample.value * 2_000 / 600)
    assert len(found.suggestions) == 3 * 6


def test_nothing_known_is_said_so():
    with pytest.raises(RunError, match="of 3 images drawn at random none has a positive label"):
        find_by_blocks(LabelMatrix.of(np.full((3, 2), -1)), np.zeros((3, 2), np.float32).__getitem__)


def test_positives_of_other_rows_are_enough():
    scores, truth = problem()
    unlabelled = LabelMatrix.of(np.full((200, 6), -1))
    found = find_by_blocks(unlabelled, scores.__getitem__, full=truth[200:], full_scores=scores[200:])
    hidden = truth[:200].sum()
    assert found.total.low <= hidden <= found.total.high


def test_other_rows_with_all_labels_count_and_what_was_asked_for_is_said(monkeypatch):
    scores, truth = problem(rows=400)
    observed, full = observe_positives(truth[:300]), truth[300:]
    asked = np.zeros(observed.shape, np.int8)
    asked[:5], observed[:5] = 1, truth[:5]
    found = find_by_blocks(
        LabelMatrix.of(observed),
        scores.__getitem__,
        full=full,
        full_scores=scores[300:],
        asked=LabelMatrix.of(asked),
        process="single-positive",
    )
    whole = infer(scores, np.concatenate([observed, full]), process="single-positive", counted=300)
    wanted = np.concatenate([asked, np.zeros_like(full)]).astype(bool)
    with_asked = infer(scores, np.concatenate([observed, full]), process="single-positive", counted=300, asked=wanted)
    np.testing.assert_allclose(found.missing.value, with_asked.missing.value)
    np.testing.assert_allclose(found.total.high, with_asked.total.high)
    assert not np.allclose(found.missing.value, whole.missing.value)


def test_the_likeliest_of_all_classes_are_kept_and_progress_is_told():
    scores, truth = problem()
    observed, told = LabelMatrix.of(observe_positives(truth)), []
    every = find_by_blocks(observed, scores.__getitem__, per_class=20)
    some = find_by_blocks(
        observed, scores.__getitem__, per_class=20, top=15, on_progress=lambda *each: told.append(each)
    )
    assert len(some.suggestions) == 15
    assert some.suggestions.probability.min() > np.median(every.suggestions.probability)
    assert told == [(0, 300), (70, 300), (140, 300), (210, 300), (280, 300), (300, 300)]


def test_intervals_hold_what_a_sample_may_miss(monkeypatch):
    random = np.random.default_rng(1)
    truth = (random.random((4_000, 40)) < np.where(np.arange(40) < 5, 0.4, 1 / 150)).astype(np.int8)
    truth[~truth.any(1), 0] = 1
    scores = (random.normal(size=truth.shape) + np.where(truth == 1, 6, -6)).astype(np.float32)
    observed = observe_positives(truth)
    monkeypatch.setattr(by_blocks, "_SAMPLED_CELLS", 200 * 40)
    found = find_by_blocks(LabelMatrix.of(observed), scores.__getitem__)
    missing = ((truth == 1) & (observed == -1)).sum(0)
    low, high = found.missing.low, found.missing.high
    assert ((low <= missing) & (missing <= high)).mean() >= 0.9
    assert found.total.low <= missing.sum() <= found.total.high
    assert found.total.high < 4 * missing.sum()


def by_the_whole(observed, scores, **options):
    """All suggestions by blocks, and the same probabilities by `infer`."""
    asked = options.get("asked")
    found = find_by_blocks(
        LabelMatrix.of(observed),
        scores.__getitem__,
        per_class=len(scores),
        **{**options, "asked": None if asked is None else LabelMatrix.of(asked)},
    ).suggestions
    whole = infer(scores, observed, **{**options, "asked": None if asked is None else asked == 1})
    return found.probability, whole.probabilities[found.row, found.label], whole.observation


def test_what_was_asked_for_says_nothing_of_the_labels_beside_it():
    scores, truth = problem()
    observed, asked = observe_positives(truth, per_sample=2), np.zeros(truth.shape, np.int8)
    for row in np.flatnonzero(((truth == 1) & (observed == -1)).any(1))[:100]:
        column = np.flatnonzero((truth[row] == 1) & (observed[row] == -1))[0]
        observed[row, column] = asked[row, column] = 1
    probability, expected, observation = by_the_whole(observed, scores, asked=asked, process="few-positives")
    assert observation.max_shown == 2
    np.testing.assert_allclose(probability, expected)


def test_rows_that_were_looked_at_by_a_list_are_known_by_it():
    scores, truth = problem()
    observed = np.where((truth == 1) & (np.random.default_rng(0).random(truth.shape) < 0.5), 1, -1).astype(np.int8)
    observed[:150] = -1
    observed[:75, :3], observed[75:150, 2:5] = truth[:75, :3], truth[75:150, 2:5]
    probability, expected, observation = by_the_whole(observed, scores)
    assert observation.ignorable[:150].all()
    assert not observation.ignorable[150:].all()
    np.testing.assert_allclose(probability, expected)


def test_scores_that_are_none_are_refused(monkeypatch):
    """They would hide all others of their block."""
    scores, truth = problem()
    monkeypatch.setattr(by_blocks, "_SAMPLED_CELLS", 100 * 6)
    missed = np.setdiff1d(np.arange(300), np.random.default_rng(0).choice(300, 100, replace=False))[-1]
    scores[missed, 2] = np.nan
    with pytest.raises(ValueError, match=f"row {missed} is not finite"):
        find_by_blocks(LabelMatrix.of(observe_positives(truth)), scores.__getitem__)
