"""Calibration, class priors and the number of missing labels, from known and unknown labels together."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logit
from threadpoolctl import threadpool_limits

from onepair.labels import POSITIVE, UNKNOWN, Labels, validate_labels
from onepair.metrics import Floats
from onepair.probability.calibration import Platt, check_scores, fit_lines
from onepair.probability.intervals import TAILS, Interval, count_missing, pool
from onepair.probability.observation import Observation, Process, Rates, recognise
from onepair.probability.scenarios import BinnedCounts, fit_scenarios

_MOST_CELLS, _SCENARIO_CELLS = 4_000_000, 40_000  # to fit a few numbers per class, and a grid of scenarios
_TOTAL_SD, _CLASS_SD = 0.25, 0.6  # of the logarithm of the number missing, of all and of a class, in any scenario
_RARE = 2.0  # positives, whose variance is added for each that a class shows, and one
_DRAWS = 1_000  # for an interval
_FEWEST_FULL = 20  # rows looked at in full, to count by


@dataclass(frozen=True, eq=False)
class Inference:
    """What known and unknown labels say together."""

    observation: Observation
    rates: Rates
    platt: Platt  # probability of a label to be positive by its score alone
    in_any_row: Platt  # the same in the middle of all scenarios, before it is known which rows are left out
    flatter: Platt  # of one class: from logits of the scenario in the middle to those with all scenarios averaged out
    probabilities: Floats  # (N, L), of each cell to be positive given all that is known: 1 or 0 where it is known
    missing: Interval  # positives of each class among the unknown cells
    total: Interval  # of all classes

    def posterior(self, scores: Floats, labels: Labels, observation: Observation) -> Floats:
        """The probability of every cell of some rows (n, L) to be positive, given all that is known of its row."""
        return _posterior(self.in_any_row, self.rates, self.flatter, scores, labels, observation)


def _posterior(
    lines: Platt, rates: Rates, flatter: Platt, scores: Floats, labels: Labels, observation: Observation
) -> Floats:
    found = observation.posterior(lines(scores), labels, rates)
    bound = (labels == UNKNOWN) & ~observation.ignorable
    return np.where(bound, flatter(_logit(found)), found)


def infer(
    scores: ArrayLike,
    labels: ArrayLike,
    *,
    process: Process = "auto",
    asked: ArrayLike | None = None,
    counted: int | None = None,
    weights: Floats | None = None,
) -> Inference:
    """Calibrate scores, and count the missing positives, where not all labels are known.

    How many labels are missing, and how much sooner clear ones are seen, is not told by positives alone: what is said
    is the mean over scenarios of both, see `fit_scenarios`, and the interval holds what they differ by.

    Args:
        scores: (N, L), of rows that the model was not fitted to.
        labels: (N, L).
        process, asked: as for `recognise`.
        counted: missing labels are counted in so many of the first rows; by default in all.
        weights: (N,), how many rows each stands for that was looked at in full; by default one.
    """
    matrix, known = check_scores(scores, labels)
    if not (known == POSITIVE).any():
        raise ValueError("no positive label is observed, so nothing can be said of the others")
    observation = recognise(known, asked, process)
    rows_weight = np.ones(len(known)) if weights is None else weights
    rows = _rows_to_fit(known, _MOST_CELLS)
    cells = BinnedCounts(matrix[rows], known[rows], observation.of(rows), rows_weight[rows])
    unknown = (known == UNKNOWN) & (np.arange(len(known)) < (counted or len(known)))[:, None]
    bound = (known == UNKNOWN) & ~observation.ignorable
    lines, factors, weight = cells.lines(np.zeros(cells.bins.shape)), np.ones((1, known.shape[1])), np.ones(1)
    in_any_row, flatter, nothing = lines, Platt(np.ones(1), np.zeros(1)), np.zeros(known.shape[1])
    rates = Rates(nothing, nothing, np.append(np.zeros(observation.max_shown), 1.0))
    if bound.any():
        some = rows[~observation.ignorable[rows].all(1)]
        some = some[_rows_to_fit(known[some], _SCENARIO_CELLS)]
        with threadpool_limits(1, user_api="blas"):  # in steps as small as those of the search, threads take longer
            fitted = fit_scenarios(matrix[some], known[some], observation.of(some), cells)
        in_any_row, rates, weight = fitted.middle.lines, fitted.middle.rates, fitted.weights
        number = fitted.missing(bound[some])
        factors = number / np.maximum(weight @ number, 1e-9)
        middle = observation.of(some).posterior(in_any_row(matrix[some]), known[some], rates)
        flatter = _averaged(middle, fitted.posterior, bound[some])
    probabilities = _posterior(in_any_row, rates, flatter, matrix, known, observation)
    if bound.any():
        lines = cells.lines(cells.bins.sums(np.where(bound, probabilities, 0)[rows]))
    value, most = np.where(unknown, probabilities, 0).sum(0), unknown.sum(0)
    sampled = lines(cells.bins.scores)
    informed = (cells.sampled * sampled * (1 - sampled)).sum(0)
    seldom = _RARE * bound.any(0) / (1 + (known == POSITIVE).sum(0))
    missing, total = _intervals(value, most, factors, weight, np.sqrt(1 / (_CLASS_SD**-2 + informed) + seldom))
    full = (observation.ignorable & (known != UNKNOWN)).all(1)
    if bound.any() and full.sum() >= _FEWEST_FULL:
        others = unknown.any(1)
        by_class, of_all = count_missing(
            known[others], lines(matrix[others]), known[full], lines(matrix[full]), weights=rows_weight[full]
        )
        missing, total = pool(missing, by_class), pool(total, of_all)
    if (most > 0).sum() == 1:  # one class is all of them
        total = Interval(*(each.sum() for each in missing))
    return Inference(observation, rates, lines, in_any_row, flatter, probabilities, missing, total)


def _averaged(middle: Floats, mean: Floats, cells: NDArray[np.bool_]) -> Platt:
    """From logits of the scenario in the middle to probabilities with all averaged out: one line for all classes."""
    targets = mean[cells][:, None]
    return fit_lines(_logit(middle)[cells][:, None], targets, np.ones(targets.shape))


def _logit(probabilities: Floats) -> Floats:
    found: Floats = logit(np.clip(probabilities, 1e-9, 1 - 1e-9))
    return found


def _intervals(
    value: Floats, most: Floats, factors: Floats, weights: Floats, error: Floats
) -> tuple[Interval, Interval]:
    """Those of each class and of all, by draws of a scenario, of what it is wrong in, and of the labels themselves.

    Args:
        value, most: (L,), the expected numbers, and how many there can be.
        factors: (S, L), of the number in each scenario.
        weights: (S,), how probable each is.
        error: (L,), the standard error of the logarithm of a class's number in any scenario.
    """
    random = np.random.default_rng(0)
    drawn = random.choice(len(weights), _DRAWS, p=weights)
    off = _TOTAL_SD * (len(weights) > 1) * random.normal(size=(_DRAWS, 1)) + error * random.normal(
        size=(_DRAWS, len(value))
    )
    numbers = np.minimum(random.poisson(value * factors[drawn] * np.exp(off)), most)
    ends = [np.quantile(each, TAILS, axis=0) for each in (numbers, numbers.sum(1))]
    missing, total = (
        Interval(number, np.minimum(low, number), np.maximum(high, number))
        for number, (low, high) in zip((value, value.sum()), ends, strict=True)
    )
    return missing, total


def _rows_to_fit(labels: Labels, most: int) -> NDArray[np.intp]:
    """Random rows of at most so many cells."""
    wanted = max(1, most // labels.shape[1])
    if len(labels) <= wanted:
        return np.arange(len(labels))
    return np.sort(np.random.default_rng(0).choice(len(labels), wanted, replace=False))


def class_priors(
    scores: ArrayLike, labels: ArrayLike, *, process: Process = "auto", asked: ArrayLike | None = None
) -> Interval:
    """The share of positives of every class, (L,), and an interval.

    Known positives plus what `infer` expects among the unknown cells, by all rows. Estimates from the highest scores
    alone (the best bin, or the bound that CRISP minimises) take what is observed there for the share of positives that
    is, and so come out too high wherever even the highest scores are not all positive; Elkan and Noto's mean over
    observed positives more so. Maximum likelihood knows by its lines how pure the top is.

    Args:
        scores: (N, L), of rows that the model was not fitted to.
        labels: (N, L).
        process, asked: how labels came to be known, as for `onepair.probability.observation.recognise`.

    >>> class_priors([[2.0], [1.0], [-1.0], [-2.0]], [[1], [1], [0], [0]]).value
    array([0.5])
    """
    known = validate_labels(labels)
    missing = infer(scores, known, process=process, asked=asked).missing
    return Interval(*(((known == POSITIVE).sum(0) + each) / np.float64(len(known)) for each in missing))
