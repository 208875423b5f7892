"""Lines where labels of a class are observed at random, positives and negatives each at a rate of their own."""

from typing import NamedTuple

import numpy as np

from onepair.metrics import Floats
from onepair.probability.calibration import Platt
from onepair.probability.known_cells import HIGHEST_RATE, KnownCells, ratio
from onepair.probability.observation import Rates

_ROUNDS, _TOLERANCE = 200, 1e-3
_LONGEST_LEAP = 4.0  # longer ones end now and then where no way leads back from
_PLACE_SD = 0.4  # of the place of the truth on the way from the fewest labels that can be missing to the likelihood's
_PLACES = np.linspace(-3, 3, 61)  # to look at, in such standard deviations


class AtRandom(NamedTuple):
    """Lines, and how surely."""

    lines: Platt
    rates: Rates
    seldom: Platt  # the lines if unknown means negative
    often: Platt  # those of highest likelihood
    error: float  # standard error of the place between both


def fit_at_random(cells: KnownCells) -> AtRandom:
    """Lines of highest likelihood, then moved along the way from no missing labels by rows looked at in full.

    An unknown cell counts as positive by its posterior, a known one as what it is; lines and rates are fitted to that.
    So each known label counts for its cell alone, and none turns the others over.
    """
    seldom = cells.lines(np.zeros(cells.tally.shape))
    often, rates = _most_likely(seldom, cells)
    place, error = _place(seldom, often, cells)
    lines = Platt(
        seldom.slope + place * (often.slope - seldom.slope),
        seldom.intercept + place * (often.intercept - seldom.intercept),
    )
    return AtRandom(lines, rates, seldom, often, error)


def _most_likely(lines: Platt, cells: KnownCells) -> tuple[Platt, Rates]:
    """Expectation and maximisation in turn, and after every two of them a leap along their way.

    Alone they creep where most cells are unknown, and would seem to have arrived long before they have. The leap is
    that of Varadhan and Roland (2008): as far as the two steps are longer than what they differ by.
    """
    before, nothing_drawn = np.zeros(cells.tally.shape[1]), np.ones(1)
    rates = cells.rates(cells.unknown * lines(cells.tally.scores), nothing_drawn)
    for _ in range(_ROUNDS):
        at = [_packed(lines, rates)]
        for _ in range(2):
            chance = lines(cells.tally.scores)
            positive, negative = chance * (1 - rates.positive), (1 - chance) * (1 - rates.negative)
            hidden = cells.unknown * ratio(positive, positive + negative)
            lines, rates = cells.lines(hidden, lines), cells.rates(hidden, nothing_drawn)
            at.append(_packed(lines, rates))
        count = hidden.sum(0)
        if np.abs(count - before).max() <= _TOLERANCE * max(1.0, count.max()):
            break
        before, step, bend = count, at[1] - at[0], at[2] - 2 * at[1] + at[0]
        lengths = [float(np.linalg.norm(each)) for each in (step, bend)]
        leap = min(max(lengths[0] / max(lengths[1], 1e-12), 1.0), _LONGEST_LEAP)
        slope, intercept, positive, negative = at[0] + 2 * leap * step + leap**2 * bend
        lines = Platt(slope, intercept)
        positive, negative = (np.minimum(np.exp(each), HIGHEST_RATE) for each in (positive, negative))
        rates = Rates(positive, negative, nothing_drawn)
    return lines, rates


def _packed(lines: Platt, rates: Rates) -> Floats:
    shares = np.maximum([rates.positive, rates.negative], 1e-300)
    return np.stack([lines.slope, lines.intercept, *np.log(shares)])


def _place(seldom: Platt, often: Platt, cells: KnownCells) -> tuple[float, float]:
    """Where between both lines the truth is thought to be, and how surely: a normal prior, times the likelihood of rows
    that were looked at in full.
    """
    error = _PLACE_SD * np.sqrt(1 - cells.negatives_share) + 1e-3
    low, high = (lines.logits(cells.tally.scores) for lines in (seldom, often))
    places = 1 + error * _PLACES
    evidence = np.array([_log_likelihood(low + place * (high - low), cells) for place in places]) - _PLACES**2 / 2
    weight = np.exp(evidence - evidence.max())
    mean = float((weight * places).sum() / weight.sum())
    return mean, float(np.sqrt((weight * (places - mean) ** 2).sum() / weight.sum()))


def _log_likelihood(logits: Floats, cells: KnownCells) -> float:
    return float((cells.sampled_positive * logits - cells.sampled * np.logaddexp(0, logits)).sum())
