"""Labels known at random: the search ends where steps alone would in the end, and rates are alike unless told."""

import numpy as np
import pytest
from scipy.special import expit

from onepair.labels import UNKNOWN
from onepair.probability.binned_counts import KnownCells, ratio
from onepair.probability.infer import fit_at_random
from onepair.probability.observation import recognise


def some_cells(share, rows=2000, classes=4, slope=1.0):
    """Labels of which a share is known, whatever they are, and scores that say little of them."""
    random = np.random.default_rng(0)
    scores = random.normal(size=(rows, classes))
    truth = (random.random(scores.shape) < expit(slope * scores - 0.5)).astype(np.int8)
    labels = np.where(random.random(scores.shape) < share, truth, UNKNOWN).astype(np.int8)
    return KnownCells(scores, labels, recognise(labels), np.ones(rows)), truth


def test_leaps_end_where_many_steps_do():
    cells, _ = some_cells(0.1)
    lines = cells.lines(np.zeros(cells.tally.shape))
    rates = cells.rates(cells.unknown * lines(cells.tally.scores), np.ones(1))
    for _ in range(1000):
        chance = lines(cells.tally.scores)
        positive, negative = chance * (1 - rates.positive), (1 - chance) * (1 - rates.negative)
        hidden = cells.unknown * ratio(positive, positive + negative)
        lines, rates = cells.lines(hidden, lines), cells.rates(hidden, np.ones(1))
    found = fit_at_random(cells).line_mle
    expected, close = ((each(cells.tally.scores) * cells.weights).sum() for each in (lines, found))
    assert close == pytest.approx(expected, rel=0.05)


def test_a_tenth_of_all_labels_tells_how_many_are_positive():
    cells, truth = some_cells(0.1)
    fitted = fit_at_random(cells)
    assert (fitted.lines(cells.tally.scores) * cells.weights).sum() == pytest.approx(truth.sum(), rel=0.25)


def test_positives_are_not_taken_to_be_all_known_where_few_negatives_are():
    cells, truth = some_cells(0.1, rows=60, slope=3.0)  # six positives, which might well be all of them
    fitted = fit_at_random(cells)
    assert (fitted.lines(cells.tally.scores) * cells.weights).sum() == pytest.approx(truth.sum(), rel=0.3)
