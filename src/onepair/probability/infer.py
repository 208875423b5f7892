"""Calibration, class priors and the number of missing labels, from known and unknown labels together."""

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from threadpoolctl import threadpool_limits

from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, Labels, validate_labels
from onepair.metrics import Floats
from onepair.probability.binned_counts import HIGHEST_RATE, KnownCells, ratio
from onepair.probability.calibration import Platt, check_scores, correct_lines
from onepair.probability.few_positives import Scenarios, fit_few_positives
from onepair.probability.intervals import TAILS, Interval, Z, count_missing, pool, wilson
from onepair.probability.observation import Observation, Process, Rates, recognise

_ROUNDS, _TOLERANCE = 200, 1e-3
_LONGEST_LEAP = 4.0  # longer ones end now and then where no way leads back from
_MIX_SD = 0.4  # of the place of the truth on the way from the fewest labels that can be missing to the likelihood's
_MIXES = np.linspace(-3, 3, 61)  # to look at, in such standard deviations


class AtRandom(NamedTuple):
    """Lines, and how surely."""

    lines: Platt
    rates: Rates
    line_if_negative: Platt  # the lines if unknown means negative
    line_mle: Platt  # those of highest likelihood
    error: float  # standard error of the place between both


def fit_at_random(cells: KnownCells) -> AtRandom:
    """Lines of highest likelihood, then moved along the way from no missing labels by rows looked at in full.

    An unknown cell counts as positive by its posterior, a known one as what it is; lines and rates are fitted to that.
    So each known label counts for its cell alone, and none turns the others over.
    """
    line_if_negative = cells.lines(np.zeros(cells.tally.shape))
    line_mle, rates = _most_likely(line_if_negative, cells)
    mix, error = _mix(line_if_negative, line_mle, cells)
    lines = Platt(
        line_if_negative.slope + mix * (line_mle.slope - line_if_negative.slope),
        line_if_negative.intercept + mix * (line_mle.intercept - line_if_negative.intercept),
    )
    return AtRandom(lines, rates, line_if_negative, line_mle, error)


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


def _mix(line_if_negative: Platt, line_mle: Platt, cells: KnownCells) -> tuple[float, float]:
    """Where between both lines the truth is thought to be, and how surely: a normal prior, times the likelihood of rows
    that were looked at in full.
    """
    error = _MIX_SD * np.sqrt(1 - cells.negatives_share) + 1e-3
    low, high = (lines.logits(cells.tally.scores) for lines in (line_if_negative, line_mle))
    mixes = 1 + error * _MIXES
    evidence = np.array([_log_likelihood(low + mix * (high - low), cells) for mix in mixes]) - _MIXES**2 / 2
    weight = np.exp(evidence - evidence.max())
    mean = float((weight * mixes).sum() / weight.sum())
    return mean, float(np.sqrt((weight * (mixes - mean) ** 2).sum() / weight.sum()))


def _log_likelihood(logits: Floats, cells: KnownCells) -> float:
    return float((cells.sampled_positive * logits - cells.sampled * np.logaddexp(0, logits)).sum())


_FEWEST = 10  # observed positives that tell of a class, and a tenth of them at least
_POOLED = 10.0  # cells of all classes together that every class sees beside its own
_UNSEEN = 2.0  # positives that may have been there beside those observed: a class that shows none may have some


def most_missing(scores: Floats, labels: Labels) -> tuple[Floats, float]:
    """The most positives that can be missing of each class, (L,), and of all together.

    If positives are as likely to be observed as each other, with a chance c, no part of the scores shows a larger share
    of observed positives than c. So the largest share that some top of the scores shows is c or less, and

        missing = observed (1 - c) / c

    is at most what it gives: about that where the top is pure, too many where even the highest scores are not all
    positive. Of many tops the one that looks best is a little too good, so the lower end of Wilson's interval of its
    share is taken: two standard errors below for each class, one for all together.

    Args:
        scores, labels: (N, L).
    """
    found, cells, together = _best_tops(scores, labels)
    observed, unknown = (labels == POSITIVE).sum(0), (labels == UNKNOWN).sum(0)
    found, cells = found + _POOLED * together, cells + _POOLED
    least, share = (np.clip(wilson(found, cells, z)[0], 0.01, 0.99) for z in (Z, 1.0))
    by_class = np.minimum((observed + _UNSEEN) * (1 - least) / least, unknown)
    of_all = float(np.minimum(observed * (1 - share) / share, unknown).sum())
    return by_class, of_all


def top_share(scores: Floats, labels: Labels) -> float:
    """The share of observed positives in the best tops of all classes: no smaller share of positives is observed."""
    return _best_tops(scores, labels)[2]


def _best_tops(scores: Floats, labels: Labels) -> tuple[Floats, Floats, float]:
    """Observed positives and cells at the best top of each class, (L,), and their share over all classes."""
    tops = np.array([_best_top(*column) for column in zip(scores.T, labels.T, strict=True)], np.float64)
    found, cells = tops.T
    unknown = (labels == UNKNOWN).sum(0)
    return (
        found,
        cells,
        float(unknown @ found / max(unknown @ cells, 1)),
    )  # the top of a class that is all known is pure


def _best_top(scores: Floats, labels: Labels) -> tuple[int, int]:
    """How many positives are observed among how many cells at the top; known negatives are left out."""
    candidates = labels != NEGATIVE
    order = np.argsort(-scores[candidates], kind="stable")
    falling, found = scores[candidates][order], np.cumsum(labels[candidates][order] == POSITIVE)
    if len(found) == 0 or found[-1] == 0:
        return 0, 0
    bound = wilson(found, np.arange(1, len(found) + 1))[0]
    # Of many cuts some look good by chance, the smallest most of all.
    bound[found < min(max(_FEWEST, found[-1] / 10), found[-1])] = 0
    bound[:-1][falling[:-1] == falling[1:]] = 0  # no top ends between cells of one score
    best = int(np.argmax(bound))
    return int(found[best]), best + 1


_MOST_CELLS, _MOST_FEW_POSITIVES_CELLS = 4_000_000, 300_000  # to fit a few numbers per class
_DRAWN_SD = 0.2  # of the number of missing labels, as a share of it, where some positives are drawn
_CLASS_SD = 0.5  # of the intercept of a single class about what the process says
_FORGETTING = 4  # how fast known negatives make the top of the scores unimportant
_FEWEST_FULL = 20  # rows looked at in full, to count by


@dataclass(frozen=True, eq=False)
class Inference:
    """What known and unknown labels say together."""

    observation: Observation
    rates: Rates
    platt: Platt  # probability of a label to be positive by its score alone
    in_any_row: Platt  # the same before it is known that rows without positives are left out, if they are
    probabilities: Floats  # (N, L), of each cell to be positive given all that is known: 1 or 0 where it is known
    missing: Interval  # positives of each class among the unknown cells
    total: Interval  # of all classes


def infer(
    scores: ArrayLike,
    labels: ArrayLike,
    *,
    process: Process = "auto",
    asked: ArrayLike | None = None,
    counted: int | None = None,
    weights: Floats | None = None,
    cache: Path | None = None,
) -> Inference:
    """Calibrate scores, and count the missing positives, where not all labels are known.

    An unknown cell counts as positive by its posterior under the process that labels are observed by, a known one as
    what it is, and lines of highest likelihood go with that, see `fit_few_positives` and `fit_at_random`. Rows
    that were looked at in full then move the lines of every class.

    Args:
        scores: (N, L), of rows that the model was not fitted to.
        labels: (N, L).
        process, asked: as for `recognise`.
        counted: missing labels are counted in so many of the first rows; by default in all.
        weights: (N,), how many rows each stands for that was looked at in full; by default one.
        cache: a file that keeps the slowest fit, and is read where it was fitted to the same numbers.
    """
    matrix, known = check_scores(scores, labels)
    if not (known == POSITIVE).any():
        raise ValueError("no positive label is observed, so nothing can be said of the others")
    observation = recognise(known, asked, process)
    rows_weight = np.ones(len(known)) if weights is None else weights
    rows = _rows_to_fit(known, _MOST_CELLS)
    cells = KnownCells(matrix[rows], known[rows], observation.of(rows), rows_weight[rows])
    unknown = (known == UNKNOWN) & (np.arange(len(known)) < (counted or len(known)))[:, None]
    if observation.max_shown:
        found = _where_few_positives(matrix, known, observation, rows_weight, rows, cells, cache)
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
    if not observation.max_shown and unknown.any():
        elsewhere_known = np.where(unknown, known, np.maximum(known, NEGATIVE)).astype(np.int8)
        # Likelihood may well take unknown for negative: without known negatives only the top of the scores forbids it.
        missing, total = _raise_upper_end(missing, total, matrix, elsewhere_known, cells)
    full = (observation.ignorable & (known != UNKNOWN)).all(1)
    if observation.max_shown and full.sum() >= _FEWEST_FULL:
        others = unknown.any(1)
        by_class, of_all = count_missing(
            known[others], lines(matrix[others]), known[full], lines(matrix[full]), weights=rows_weight[full]
        )
        missing, total = pool(missing, by_class), pool(total, of_all)
    if (most > 0).sum() == 1:  # one class is all of them
        total = Interval(*(each.sum() for each in missing))
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
    shared = fitted.error * np.einsum(
        "nl,nl->l", doubt, fitted.line_mle.logits(scores) - fitted.line_if_negative.logits(scores)
    )
    value = np.where(unknown, probabilities, 0).sum(0)
    errors = (np.abs(shared) / np.maximum(value, 1e-9), abs(shared.sum()) / max(value.sum(), 1e-9))
    each, of_all = (
        (np.exp(-Z * error), np.exp(Z * error)) for error in (np.minimum(errors[0], 25), min(errors[1], 25))
    )
    return _Found(lines, lines, fitted.rates, probabilities, _Spread(each, of_all))


def _where_few_positives(
    scores: Floats,
    labels: Labels,
    observation: Observation,
    weights: Floats,
    rows: NDArray[np.intp],
    cells: KnownCells,
    cache: Path | None,
) -> _Found:
    key = _digest(scores[rows], labels[rows], observation.of(rows), weights[rows], len(labels)) if cache else ""
    fitted = Scenarios.read(cache, key) if cache else None
    if fitted is None:
        some = rows[_rows_to_fit(labels[rows], _MOST_FEW_POSITIVES_CELLS)]
        with threadpool_limits(1, user_api="blas"):  # in steps as small as those of the search, threads take longer
            fitted = fit_few_positives(
                scores[some], labels[some], observation.of(some), weights[some], cells, rows=len(labels)
            )
        if cache:
            fitted.write(cache, key)
    in_any_row, rates = fitted.lines, fitted.rates
    probabilities = observation.posterior(in_any_row(scores), labels, rates)
    bound = (labels == UNKNOWN) & ~observation.ignorable
    lines = cells.lines(cells.tally.sums(np.where(bound, probabilities, 0)[rows]))
    each, of_all = (_ends(ratios, fitted.weights) for ratios in (fitted.ratios, fitted.total_ratios))
    return _Found(lines, in_any_row, rates, probabilities, _Spread(each, of_all))


def _digest(scores: Floats, labels: Labels, observation: Observation, weights: Floats, rows: int) -> str:
    """Tells all that few positives are fitted to from all else."""
    digest = sha256(repr((scores.shape, rows, observation.max_shown, observation.has_empty_rows)).encode())
    for part in (scores, labels, observation.ignorable, observation.asked, weights):
        digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest()


def _ends(ratios: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """The ratios (S, …) that hold 95 % of the weights (S,) between them, and 1, and a little more.

    That labels are independent given the scores is wrong by a little, which no number of labels a row mends.
    """
    order = np.argsort(ratios, axis=0)
    ranked, share = np.take_along_axis(ratios, order, 0), np.cumsum(weights[order], axis=0)
    last = len(ratios) - 1
    low, high = (np.take_along_axis(ranked, np.minimum((share < tail).sum(0), last)[None], 0)[0] for tail in TAILS)
    factors = (np.log(np.maximum(each, 1)) for each in (1 / np.maximum(low, 1e-9), high))
    down, up = (np.exp(np.hypot(factor, Z * _DRAWN_SD)) for factor in factors)
    return 1 / down, up


def _raise_upper_end(
    missing: Interval, total: Interval, scores: Floats, labels: Labels, cells: KnownCells
) -> tuple[Interval, Interval]:
    """Intervals that reach up to what the top of the scores allows, the less so the more negatives of it are known."""
    negatives = (cells.negative + cells.sampled - cells.sampled_positive).sum(0)
    unknown = cells.unknown.sum(0)
    unsure = unknown / np.maximum(negatives + unknown, 1)
    weight, of_all = unsure**_FORGETTING, float(unknown @ unsure / max(unknown.sum(), 1)) ** _FORGETTING
    each, together = most_missing(scores, labels)
    highest = missing.high + weight * np.maximum(each - missing.high, 0)
    in_all = total.high + of_all * np.maximum(together - total.high, 0)
    return missing._replace(high=highest), total._replace(high=np.maximum(in_all, highest.max()))


def _interval(value: Floats, error: Floats, doubt: Floats, spread: tuple[Floats, Floats], most: Floats) -> Interval:
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
    return Interval(value, np.clip(low, 0, most), np.clip(high, 0, most))


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
