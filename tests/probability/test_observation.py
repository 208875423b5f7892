"""Labels that are observed in known ways: recognised as such, and posteriors against sums over all that may be."""

import itertools

import numpy as np
import pytest
from scipy.special import expit

from onepair.errors import ConfigError
from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, observe_positives
from onepair.probability.observation import Observation, Rates, not_empty, recognise


def generate(rows, random, slope=3.0, intercepts=(-3, -1.5), classes=6):
    """Scores, true probabilities and full labels, at least one positive in every row."""
    intercept = np.linspace(*intercepts, classes)
    scores = random.normal(0, 1.5, (4 * rows, classes))
    probabilities = expit(slope * scores + intercept)
    labels = (random.random(scores.shape) < probabilities).astype(np.int8)
    kept = np.flatnonzero(labels.any(1))[:rows]
    return scores[kept], probabilities[kept], labels[kept]


def chance_of(shown, labels, most, rates, free, probabilities):
    """The chance that a row of these labels shows this set, by going through all draws; free cells are given."""
    positives = [label for label, y in enumerate(labels) if y]
    others = [label for label in range(len(labels)) if not free[label]]
    total = 0.0
    for allowed in range(most + 1):
        stops = np.prod(1 - rates.stop[:allowed]) * rates.stop[allowed]
        draws = list(itertools.combinations(positives, min(allowed, len(positives))))
        for drawn in draws:
            if any(free[label] for label in drawn):
                continue  # it would be known without being asked for
            chance = stops / len(draws)
            if rates.salience and drawn:
                (first,) = drawn
                odds = (probabilities / (1 - probabilities)) ** rates.salience
                chance = stops * odds[first] / odds[positives].sum()
            for label in others:
                seen = rates.positive if most else rates.seen(probabilities)
                rate = seen[label] if labels[label] else rates.negative[label]
                rate = 1.0 if label in drawn else rate
                chance *= rate if shown[label] else 1 - rate
            total += chance
    return total


def slow_posterior(probabilities, observed, observation, rates, row):
    """Over all sets of labels that agree with what is known."""
    positive, total = np.zeros(len(probabilities)), 0.0
    for labels in itertools.product((0, 1), repeat=len(probabilities)):
        if all(known in (UNKNOWN, y) for known, y in zip(observed, labels, strict=True)):
            weight = np.prod([p if y else 1 - p for p, y in zip(probabilities, labels, strict=True)])
            free = observation.ignorable[row]
            weight *= chance_of(observed != UNKNOWN, labels, observation.max_shown, rates, free, probabilities)
            positive += weight * np.array(labels)
            total += weight
    return positive / total


def rates_of(classes, positive=0.0, negative=0.0, stop=(0.0, 1.0), salience=0.0):
    return Rates(np.full(classes, positive), np.full(classes, negative), np.array(stop), salience)


@pytest.mark.parametrize(
    ("drawn", "rates"),
    [
        (1, rates_of(5)),
        (1, rates_of(5, negative=0.3)),
        (1, rates_of(5, positive=0.2, negative=0.1)),
        (2, rates_of(5, stop=(0.0, 0.0, 1.0))),
        (3, rates_of(5, negative=0.2, stop=(0.2, 0.4, 0.3, 1.0))),
        (0, rates_of(5, positive=0.4, negative=0.7, stop=(1.0,))),
        (0, rates_of(5, positive=0.4, stop=(1.0,), salience=0.6)),
        (1, rates_of(5, salience=0.6)),
    ],
)
def test_the_posterior_is_that_of_all_labels_that_may_be(drawn, rates):
    """Rows with any labels known, some of them asked for."""
    random = np.random.default_rng(0)
    probabilities = random.random((40, 5))
    labels = (random.random((40, 5)) < 0.5).astype(np.int8)
    labels[~labels.any(1), 0] = 1
    nothing = np.zeros(labels.shape, bool)
    shown = Observation("", drawn, nothing, nothing).hide(labels, probabilities, rates, random)
    asked = (shown == UNKNOWN) & (random.random((40, 5)) < 0.2)
    observed = np.where(asked, labels, shown).astype(np.int8)
    observation = Observation("", drawn, asked, asked)
    found = observation.posterior(probabilities, observed, rates)
    expected = [slow_posterior(probabilities[row], observed[row], observation, rates, row) for row in range(40)]
    np.testing.assert_allclose(found, expected, atol=5e-3 if rates.salience and drawn else 1e-10)


def test_the_likelihood_is_that_of_all_labels_that_may_be():
    """By its difference between two sets of probabilities, since it leaves out what they do not change."""
    random, rates = np.random.default_rng(1), rates_of(5, negative=0.2, stop=(0.2, 0.4, 1.0))
    labels = (random.random((30, 5)) < 0.4).astype(np.int8)
    nothing = np.zeros(labels.shape, bool)
    for empty in (True, False):
        observation = Observation("", 2, nothing, nothing, empty)
        rows = labels if empty else np.maximum(labels, np.eye(5, dtype=np.int8)[np.zeros(30, int)])
        observed = observation.hide(rows, np.full(rows.shape, 0.5), rates, random)
        given = [random.random(labels.shape) for _ in range(2)]
        found = [observation.explain(each, observed, rates).log_likelihood for each in given]
        expected = [
            [slow_log_likelihood(*row, rates, empty) for row in zip(each, observed, strict=True)] for each in given
        ]
        np.testing.assert_allclose(found[1] - found[0], np.subtract(*expected[::-1]), atol=1e-9)


def slow_log_likelihood(probabilities, observed, rates, empty):
    """Over all sets of labels, given that one is not empty where none is."""
    chances = np.zeros(2)
    for labels in itertools.product((0, 1), repeat=len(probabilities)):
        weight = np.prod([p if y else 1 - p for p, y in zip(probabilities, labels, strict=True)])
        if not (empty or any(labels)):
            continue
        agrees = all(known in (UNKNOWN, y) for known, y in zip(observed, labels, strict=True))
        shown = (
            chance_of(observed != UNKNOWN, labels, 2, rates, np.zeros(len(labels), bool), probabilities)
            if agrees
            else 0.0
        )
        chances += weight, weight * shown
    return np.log(chances[1] / chances[0])


def test_blocks_of_rows_make_no_difference(monkeypatch):
    random = np.random.default_rng(1)
    _, probabilities, labels = generate(50, random)
    observed = observe_positives(labels)
    observation, rates = recognise(observed), rates_of(6)
    whole = observation.posterior(probabilities, observed, rates)
    monkeypatch.setattr("onepair.probability.observation._BLOCK", 700)  # seven rows
    np.testing.assert_allclose(observation.posterior(probabilities, observed, rates), whole, rtol=1e-12)


def test_labels_are_hidden_at_the_rates_of_their_classes():
    random = np.random.default_rng(0)
    labels = (random.random((4000, 3)) < [0.2, 0.5, 0.8]).astype(np.int8)
    rates = Rates(np.array([0.9, 0.5, 0.1]), np.array([0.1, 0.5, 0.4]), np.ones(1))
    nothing = np.zeros(labels.shape, bool)
    shown = Observation("", 0, nothing, nothing).hide(labels, np.full(labels.shape, 0.5), rates, random)
    for value, rate in ((POSITIVE, rates.positive), (NEGATIVE, rates.negative)):
        kept = (shown == value).sum(0) / (labels == value).sum(0)
        np.testing.assert_allclose(kept, rate, atol=0.04)
    assert (shown[shown != UNKNOWN] == labels[shown != UNKNOWN]).all()


@pytest.mark.parametrize("stop", [(0.0, 1.0), (0.0, 0.0, 1.0), (0.3, 0.5, 1.0)])
def test_rows_show_as_many_as_they_may(stop):
    random = np.random.default_rng(0)
    labels = np.ones((4000, 5), np.int8)
    nothing = np.zeros(labels.shape, bool)
    shown = Observation("", len(stop) - 1, nothing, nothing).hide(
        labels, np.full(labels.shape, 0.5), rates_of(5, stop=stop), random
    )
    expected = np.cumprod(1 - np.array(stop)).sum()
    assert (shown == POSITIVE).sum(1).mean() == pytest.approx(expected, abs=0.05)
    np.testing.assert_allclose((shown == POSITIVE).mean(0), expected / 5, atol=0.04)


def processes(labels, random):
    """Ways to hide labels, and what they should be recognised as."""
    chance, rows = random.random(labels.shape), len(labels)
    single = observe_positives(labels)
    yield single, 1, "one of its positives"
    negatives = np.where((labels == NEGATIVE) & (chance < 0.02), NEGATIVE, single).astype(np.int8)
    yield negatives, 1, "one of its positives, clear ones sooner, and negatives are labelled at random"
    in_full = np.where(np.arange(rows)[:, None] < 30, labels, single).astype(np.int8)
    yield in_full, 1, "30 images are labelled in full"
    yield observe_positives(labels, per_sample=2), 2, "up to 2 of its positives"
    yield np.where((labels == POSITIVE) & (chance < 0.6), labels, UNKNOWN), 0, "and no negatives"
    yield np.where(chance < 0.6, labels, UNKNOWN), 0, "each at a rate of their own"
    yield np.where(chance < np.where(labels == POSITIVE, 0.9, 0.2), labels, UNKNOWN), 0, "each at a rate of their own"
    first = (random.random(rows) < 0.5)[:, None]
    listed = np.where(first == (np.arange(labels.shape[1]) < 3), labels, UNKNOWN)
    yield listed, 0, "nothing to do with what it is"
    yield labels, 0, "all labels are known"


@pytest.mark.parametrize("number", range(9))
def test_processes_are_recognised(number):
    random = np.random.default_rng(2)
    _, _, labels = generate(1500, random, classes=10)
    observed, drawn, words = list(processes(labels, random))[number]
    found = recognise(observed)
    assert found.max_shown == drawn
    assert words in found.sentence


@pytest.mark.parametrize("classes", [1, 3])
def test_where_every_label_is_known_none_was_drawn(classes):
    found = recognise(np.ones((60, classes), np.int8))
    assert (found.max_shown, found.sentence) == (0, "all labels are known")


def test_a_single_list_of_classes_is_one():
    """Half of the images were looked at for three classes, the others show one positive."""
    random = np.random.default_rng(2)
    _, _, labels = generate(400, random, classes=8)
    listed = np.arange(400) < 200
    by_list = np.where(np.arange(8) < 3, labels, UNKNOWN)
    found = recognise(np.where(listed[:, None], by_list, observe_positives(labels)))
    assert found.max_shown == 1
    np.testing.assert_array_equal(found.ignorable, np.repeat(listed[:, None], 8, axis=1))


@pytest.mark.parametrize("classes", [2, 3])
def test_what_two_classes_are_known_of_by_chance_is_no_list(classes):
    random = np.random.default_rng(2)
    labels = random.integers(0, 2, (400, classes)).astype(np.int8)
    chance = np.array([0.5, 0.6, 0.0])[:classes]  # of the third nothing is ever known
    assert not recognise(np.where(random.random(labels.shape) < chance, labels, UNKNOWN)).ignorable.any()


def test_labels_that_were_asked_for_say_nothing_of_the_others():
    _, _, labels = generate(500, np.random.default_rng(3))
    observed = observe_positives(labels)
    asked = (observed == UNKNOWN) & (np.random.default_rng(4).random(labels.shape) < 0.2)
    answered = np.where(asked, labels, observed)
    found = recognise(answered, asked)
    assert found.max_shown == 1
    np.testing.assert_array_equal(found.ignorable, asked)
    assert found.sentence.startswith(recognise(observed).sentence)
    assert "labels were asked for" in found.sentence


def test_a_process_can_be_named():
    observed = observe_positives(generate(200, np.random.default_rng(5))[2])
    assert recognise(observed, process="positives-at-random").max_shown == 0
    assert recognise(observed, process="regardless").ignorable.all()
    with pytest.raises(ConfigError, match="no process 'by chance'; choose from auto, single-positive"):
        recognise(observed, process="by chance")
    with pytest.raises(ValueError, match="one shape"):
        recognise(observed, asked=[[True]])


@pytest.mark.parametrize(("process", "drawn"), [("single-positive", 1), ("few-positives", 2), ("at-random", 0)])
def test_what_is_said_of_the_process_counts(process, drawn):
    labels = np.full((40, 5), UNKNOWN)
    labels[:, 0] = labels[::2, 1] = POSITIVE
    assert recognise(labels, process=process).max_shown == drawn


def test_a_row_with_a_sure_positive_is_not_empty():
    np.testing.assert_allclose(not_empty(np.array([[1.0, 0.5], [0.5, 0.5], [0.0, 0.0]])), [1.0, 0.75, 0.0], atol=1e-9)


def test_rows_whose_labels_are_all_shown_are_not_looked_at_in_full_where_no_negative_is():
    """Labels that come together are shown together, too: of positives alone no row tells that nothing is left out."""
    random = np.random.default_rng(1)
    first = random.random(800) < 0.3
    truth = np.stack([first, *(first & (random.random(800) < 0.8) for _ in range(2))], axis=1)
    labels = np.where(truth & (random.random(truth.shape) < 0.5), POSITIVE, UNKNOWN).astype(np.int8)
    assert (labels == POSITIVE).all(1).sum() > 10
    for process in ("auto", "positives-at-random"):
        assert not recognise(labels, process=process).ignorable.any()
    labels[:50] = truth[:50]
    assert recognise(labels).ignorable[:50].all()
