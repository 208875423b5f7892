"""What known and unknown labels say together: calibration, and the number of missing labels, with holes of any kind."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from threadpoolctl import threadpool_limits

from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, Labels
from onepair.metrics import Floats
from onepair.probability.at_random import fit_at_random
from onepair.probability.calibration import Platt, check_scores, correct_lines
from onepair.probability.counting import Estimate, Z, count_missing, weigh
from onepair.probability.drawn import fit_drawn
from onepair.probability.known_cells import KnownCells
from onepair.probability.observation import Observation, Process, Rates, recognise
from onepair.probability.top_share import most_missing

_MOST_CELLS, _MOST_DRAWN_CELLS = 4_000_000, 300_000  # to fit a few numbers per class
_DRAWN_SD = 0.2  # of the number of missing labels, as a share of it, where some positives are drawn
_CLASS_SD = 0.5  # of the intercept of a single class about what the process says
_FORGETTING = 4  # how fast known negatives make the top of the scores unimportant
_FEWEST_FULL = 20  # rows looked at in full, to count by
_TAIL = 0.025


@dataclass(frozen=True, eq=False)
class Inference:
    """What known and unknown labels say together."""

    observation: Observation
    rates: Rates
    platt: Platt  # probability of a label to be positive by its score alone
    in_any_row: Platt  # the same before it is known that rows without positives are left out, if they are
    probabilities: Floats  # (N, L), of each cell to be positive given all that is known: 1 or 0 where it is known
    missing: Estimate  # positives of each class among the unknown cells
    total: Estimate  # of all classes


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

    An unknown cell counts as positive by its posterior under the process that labels are observed by, a known one as
    what it is, and lines of highest likelihood go with that, see `fit_drawn` and `fit_at_random`. Rows that were looked
    at in full then move the lines of every class.

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
    cells = KnownCells(matrix[rows], known[rows], observation.of(rows), rows_weight[rows])
    unknown = (known == UNKNOWN) & (np.arange(len(known)) < (counted or len(known)))[:, None]
    if observation.drawn:
        found = _where_some_are_drawn(matrix, known, observation, rows_weight, rows, cells)
    else:
        found = _where_at_random(matrix, known, observation, cells, unknown)
    lines, rates, probabilities, spread = found.lines, found.rates, found.probabilities, found.spread
    value, most = np.where(unknown, probabilities, 0).sum(0), unknown.sum(0)
    doubt = np.where(unknown, probabilities * (1 - probabilities), 0).sum(0)
    sampled = lines(cells.tally.scores)
    informed = (cells.sampled * sampled * (1 - sampled)).sum(0)
    own = value / np.sqrt(1 / _CLASS_SD**2 + informed)
    missing = _interval(value, own, doubt, spread.of_each, most)
    total = _interval(value.sum(), np.sqrt((own**2).sum()), doubt.sum(), spread.of_all, most.sum())
    if not observation.drawn and unknown.any():
        elsewhere_known = np.where(unknown, known, np.maximum(known, NEGATIVE)).astype(np.int8)
        # Likelihood may well take unknown for negative: without known negatives only the top of the scores forbids it.
        missing, total = _reach(missing, total, matrix, elsewhere_known, cells)
    full = (observation.free & (known != UNKNOWN)).all(1)
    if observation.drawn and full.sum() >= _FEWEST_FULL:
        others = unknown.any(1)
        by_class, of_all = count_missing(
            known[others], lines(matrix[others]), known[full], lines(matrix[full]), weights=rows_weight[full]
        )
        missing, total = weigh(missing, by_class), weigh(total, of_all)
    if (most > 0).sum() == 1:  # one class is all of them
        total = Estimate(*(each.sum() for each in missing))
    return Inference(observation, rates, lines, found.in_any_row, probabilities, missing, total)


class _Spread(NamedTuple):
    """How far the number of missing labels may be off because the process does not tell it, as factors of it."""

    of_each: tuple[Floats, Floats]  # of classes (L,), to the low end and to the high one
    of_all: tuple[Floats, Floats]


class _Found(NamedTuple):
    lines: Platt
    in_any_row: Platt
    rates: Rates
    probabilities: Floats
    spread: _Spread


def _where_at_random(
    scores: Floats, labels: Labels, observation: Observation, cells: KnownCells, unknown: NDArray[np.bool_]
) -> _Found:
    fitted = fit_at_random(cells)
    twice = cells.sampled.sum() / cells.weights.sum()  # what the lines are fitted to already
    weight = max(1 - twice, 0) * cells.sampled
    lines = correct_lines(fitted.lines, cells.tally.scores, cells.sampled_share, weight)
    probabilities = observation.posterior(lines(scores), labels, fitted.rates)
    doubt = np.where(unknown, probabilities * (1 - probabilities), 0)
    shared = fitted.error * np.einsum("nl,nl->l", doubt, fitted.often.logits(scores) - fitted.seldom.logits(scores))
    value = np.where(unknown, probabilities, 0).sum(0)
    errors = (np.abs(shared) / np.maximum(value, 1e-9), abs(shared.sum()) / max(value.sum(), 1e-9))
    each, of_all = (
        (np.exp(-Z * error), np.exp(Z * error)) for error in (np.minimum(errors[0], 25), min(errors[1], 25))
    )
    return _Found(lines, lines, fitted.rates, probabilities, _Spread(each, of_all))


def _where_some_are_drawn(
    scores: Floats,
    labels: Labels,
    observation: Observation,
    weights: Floats,
    rows: NDArray[np.intp],
    cells: KnownCells,
) -> _Found:
    some = rows[_rows_to_fit(labels[rows], _MOST_DRAWN_CELLS)]
    with threadpool_limits(1, user_api="blas"):  # in steps as small as those of the search, threads take longer
        fitted = fit_drawn(scores[some], labels[some], observation.of(some), weights[some], cells, rows=len(labels))
    in_any_row, rates = fitted.middle.lines, fitted.middle.rates
    probabilities = observation.posterior(in_any_row(scores), labels, rates)
    bound = (labels == UNKNOWN) & ~observation.free
    lines = cells.lines(cells.tally.sums(np.where(bound, probabilities, 0)[rows]))
    each, of_all = (_ends(ratios, fitted.weights) for ratios in (fitted.ratios, fitted.total_ratios))
    return _Found(lines, in_any_row, rates, probabilities, _Spread(each, of_all))


def _ends(ratios: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """The ratios (S, …) that hold 95 % of the weights (S,) between them, and 1, and a little more.

    That labels are independent given the scores is wrong by a little, which no number of labels a row mends.
    """
    order = np.argsort(ratios, axis=0)
    ranked, share = np.take_along_axis(ratios, order, 0), np.cumsum(weights[order], axis=0)
    last = len(ratios) - 1
    low, high = (
        np.take_along_axis(ranked, np.minimum((share < tail).sum(0), last)[None], 0)[0] for tail in (_TAIL, 1 - _TAIL)
    )
    factors = (np.log(np.maximum(each, 1)) for each in (1 / np.maximum(low, 1e-9), high))
    down, up = (np.exp(np.hypot(factor, Z * _DRAWN_SD)) for factor in factors)
    return 1 / down, up


def _reach(
    missing: Estimate, total: Estimate, scores: Floats, labels: Labels, cells: KnownCells
) -> tuple[Estimate, Estimate]:
    """Estimates that reach up to what the top of the scores allows, the less so the more negatives of it are known."""
    negatives = (cells.negative + cells.sampled - cells.sampled_positive).sum(0)
    unknown = cells.unknown.sum(0)
    unsure = unknown / np.maximum(negatives + unknown, 1)
    weight, of_all = unsure**_FORGETTING, float(unknown @ unsure / max(unknown.sum(), 1)) ** _FORGETTING
    each, together = most_missing(scores, labels)
    highest = missing.high + weight * np.maximum(each - missing.high, 0)
    in_all = total.high + of_all * np.maximum(together - total.high, 0)
    return missing._replace(high=highest), total._replace(high=np.maximum(in_all, highest.max()))


def _interval(value: Floats, error: Floats, doubt: Floats, spread: tuple[Floats, Floats], most: Floats) -> Estimate:
    """The ends are factors of the number, by its standard error and the spread, and what chance may add to them.

    Args:
        value: (L,), the expected number, the sum of some probabilities p.
        error: (L,), its standard error.
        doubt: (L,), the sum of p (1-p): the variance of the number about what is expected.
        spread: factors of the number to either end.
        most: (L,), how many there can be.
    """
    number = np.maximum(value, 1e-9)
    factors = [np.exp(np.hypot(Z * error / number, np.log(end))) for end in spread]
    low, high = number / factors[0], number * factors[1]
    low, high = (end + sign * Z * np.sqrt(doubt * end / number) for end, sign in ((low, -1), (high, 1)))
    return Estimate(value, np.clip(low, 0, most), np.clip(high, 0, most))


def _rows_to_fit(labels: Labels, most: int) -> NDArray[np.intp]:
    """Random rows of at most so many cells."""
    wanted = max(1, most // labels.shape[1])
    if len(labels) <= wanted:
        return np.arange(len(labels))
    return np.sort(np.random.default_rng(0).choice(len(labels), wanted, replace=False))
