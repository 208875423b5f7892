"""What known and unknown labels say together, against the truth of data that labels were hidden from."""

import numpy as np
import pytest
from scipy.special import expit

from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, observe_positives
from onepair.probability import few_positives
from onepair.probability.calibration import fit_platt
from onepair.probability.few_positives import _Search
from onepair.probability.infer import infer
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


def test_a_search_that_falls_to_no_labels_at_all_begins_anew(monkeypatch):
    """As it does now and then by weak scores of thousands of classes: nothing would be missing, for sure."""
    random, fit = np.random.default_rng(0), _Search.fit
    meaning, true = random.normal(size=(500, 32)), random.integers(500, size=(200, 3))
    scores = 0.1 * (meaning[true].sum(1) + random.normal(size=(200, 32))) @ meaning.T
    observed = np.full(scores.shape, UNKNOWN, np.int8)
    np.put_along_axis(observed, true[:, :1], POSITIVE, axis=1)
    missing = sum(len(set(row)) - 1 for row in true.tolist())

    def fall(search, near, more, steps):
        found = fit(search, near, more, steps)
        if near is not None or more is not None:
            return found
        foot = np.where(np.arange(len(found.parameters)) == 1, -25, found.parameters)
        return fit(search, found._replace(parameters=foot), None, 0)

    monkeypatch.setattr(_Search, "fit", fall)
    total = infer(scores, observed).total
    assert total.low < missing < total.high
    assert missing / 3 < total.value < 3 * missing


@pytest.mark.parametrize("negative", [0.0, 0.1, 0.7])
def test_labels_at_random_are_counted_and_calibrated(negative):
    random = np.random.default_rng(4)
    chance = np.array([0.3, 0.5, 0.7, 0.9, 0.3, 0.5])
    scores, probabilities, labels = generate(5000, random, slope=6.0)
    observed = hide(labels, random, chance, negative)
    inference, missing = infer(scores, observed), missing_of(labels, observed)
    np.testing.assert_allclose(inference.rates.positive, chance, atol=0.1)
    np.testing.assert_allclose(inference.rates.negative, negative, atol=0.05)
    assert np.abs(inference.platt(scores) - probabilities).mean() < 0.03
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
    assert inference.total.value == pytest.approx(missing, rel=0.25)
    assert inference.platt(scores).mean() == pytest.approx(labels.mean(), rel=0.15)


@pytest.mark.parametrize("stop", [0.0, 0.5])
def test_rows_that_show_fewer_than_the_most_may_have_more(stop):
    """Half of the rows were allowed one positive, the others two; or all two."""
    random = np.random.default_rng(3)
    scores, _, labels = generate(2000, random)
    allowed = np.where(random.random(len(labels)) < stop, 1, 2)
    rank = np.where(labels == POSITIVE, random.random(labels.shape), 2).argsort(1).argsort(1)
    observed = np.where((labels == POSITIVE) & (rank < allowed[:, None]), POSITIVE, UNKNOWN).astype(np.int8)
    inference = infer(scores, observed)
    assert inference.rates.stop[1] == pytest.approx(stop, abs=0.15)
    assert inference.total.value == pytest.approx(missing_of(labels, observed).sum(), rel=0.25)


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


@pytest.mark.parametrize(("positive", "negative"), [(0.1, 0.1), (0.2, 0.0), (0.5, 0.1)])
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


def test_a_fit_is_kept_for_the_same_numbers_and_no_others(monkeypatch, tmp_path):
    scores, _, labels = generate(60, np.random.default_rng(2))
    observed, cache, fits = observe_positives(labels), tmp_path / "likelihood.npz", []
    fit = few_positives.fit_few_positives
    monkeypatch.setattr("onepair.probability.infer.fit_few_positives", lambda *a, **k: fits.append(1) or fit(*a, **k))
    first = infer(scores, observed, cache=cache)
    again = infer(scores, observed, cache=cache)
    assert len(fits) == 1
    for part in ("probabilities", "missing", "total"):
        np.testing.assert_array_equal(getattr(again, part), getattr(first, part))
    asked = np.zeros(observed.shape, bool)
    asked[np.nonzero(observed == POSITIVE)[0][0], np.nonzero(observed == POSITIVE)[1][0]] = True
    other = scores.copy()
    other[0, 0] += 1e-6
    for given in ({"scores": other}, {"labels": observe_positives(labels, seed=1)}, {"asked": asked}):
        infer(**{"scores": scores, "labels": observed, **given}, cache=cache)
    assert len(fits) == 4
    for damaged in (b"", b"PK not a file", cache.read_bytes()[:200]):
        cache.write_bytes(damaged)
        np.testing.assert_array_equal(infer(scores, observed, cache=cache).missing, first.missing)
    assert len(fits) == 7
