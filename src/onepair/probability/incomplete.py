"""What known and unknown labels say together: calibration, and the number of missing labels, with holes of any kind."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, Labels
from onepair.metrics import Floats
from onepair.probability.calibration import Platt, check_scores, correct_lines, fit_lines
from onepair.probability.counting import Estimate, count_missing, weigh
from onepair.probability.observation import Observation, Process, Rates, recognise
from onepair.probability.tally import Tally
from onepair.probability.top_share import most_missing

_STEPS_AT_RANDOM, _STEPS_DRAWN, _EM_TOLERANCE = 200, 50, 1e-3
_MOST_CELLS, _MOST_DRAWN_CELLS = 4_000_000, 500_000  # to fit a few numbers per class
_LEAST_STOP = 0.25  # a smaller chance to have been allowed no more is what classes that look alike make of none
_POOLED = 10.0  # cells of all classes together that the rates of every class see beside their own
_HIGHEST_RATE = 1 - 1e-6
_PLACE_SD = 0.4  # of the place of the truth between the fewest and the most labels that can be missing
_PLACES = np.linspace(-3, 3, 61)  # to look at, in such standard deviations
_DRAWN_SD = 0.2  # of the number of missing labels, as a share of it, where some positives are drawn
_CLASS_SD = 0.5  # of the intercept of a single class about what the process says
_FORGETTING = 4  # how fast known negatives make the top of the scores unimportant
_FEWEST_FULL = 20  # rows looked at in full, to count by
_Z = 1.96  # standard errors to either end of an interval of 95 %


@dataclass(frozen=True, eq=False)
class Inference:
    """What known and unknown labels say together."""

    observation: Observation
    rates: Rates
    platt: Platt  # probability of a label to be positive by its score alone
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

    Expectation and maximisation in turn: an unknown cell counts as positive by its posterior under the process that
    labels are observed by, a known one as what it is; lines and rates are fitted to that. So each known label counts
    for its cell alone, and none turns the others over.

    Likelihood alone can not tell classes that look alike from classes that come together where some positives are
    drawn: it takes them for the latter, which is the most that can be missing. The fewest is what follows if unknown
    means negative. Lines half-way are used; the more negatives are known, the closer to the likelihood's. Of positives
    at random the likelihood's are used. Rows that were looked at in full move the place between both, and each class.

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
    rows = _rows_to_fit(known, _MOST_DRAWN_CELLS if observation.drawn else _MOST_CELLS)
    seldom, often, rates, cells = _fit_ends(matrix[rows], known[rows], observation.of(rows), rows_weight[rows])
    place, error = _place(seldom, often, rates, cells, drawn=observation.drawn > 0)
    between = Platt(*(low + place * (high - low) for low, high in _parameters(seldom, often)))
    twice = cells.sampled.sum() / cells.weights.sum()  # what the lines are fitted to already
    lines = correct_lines(between, cells.tally.scores, cells.sampled_share, max(1 - twice, 0) * cells.sampled)
    probabilities = observation.posterior(lines(matrix), known, rates)
    unknown = (known == UNKNOWN) & (np.arange(len(known)) < (counted or len(known)))[:, None]
    doubt = np.where(unknown, probabilities * (1 - probabilities), 0)
    shared = error * np.einsum("nl,nl->l", doubt, often.logits(matrix) - seldom.logits(matrix))
    # That labels are independent given the scores is wrong by a little, which rows looked at in full do not mend.
    shared = np.hypot(shared, (_DRAWN_SD if observation.drawn else 0) * np.where(unknown, probabilities, 0).sum(0))
    informed = (cells.sampled * lines(cells.tally.scores) * (1 - lines(cells.tally.scores))).sum(0)
    value, most = np.where(unknown, probabilities, 0).sum(0), unknown.sum(0)
    own = value / np.sqrt(1 / _CLASS_SD**2 + informed)
    missing = _interval(value, np.sqrt(shared**2 + own**2 + doubt.sum(0)), most)
    total = _interval(value.sum(), np.sqrt(shared.sum() ** 2 + (own**2).sum() + doubt.sum()), most.sum())
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
    return Inference(observation, rates, lines, probabilities, missing, total)


def _reach(
    missing: Estimate, total: Estimate, scores: Floats, labels: Labels, cells: "_Cells"
) -> tuple[Estimate, Estimate]:
    """Estimates that reach up to what the top of the scores allows, the less so the more negatives are known."""
    negatives = cells.negative.sum() + (cells.sampled - cells.sampled_positive).sum()
    weight = float(1 - negatives / max(negatives + cells.unknown.sum(), 1)) ** _FORGETTING
    each, together = most_missing(scores, labels)
    return (
        missing._replace(high=missing.high + weight * np.maximum(each - missing.high, 0)),
        total._replace(high=total.high + weight * np.maximum(together - total.high, 0)),
    )


def _interval(value: Floats, error: Floats, most: Floats) -> Estimate:
    """The ends are factors of the number, that no standard error makes negative."""
    factor = np.exp(np.minimum(_Z * error / np.maximum(value, 1e-9), 50))
    slack = _Z * error
    low, high = np.maximum(value / factor, value - slack), np.maximum(value * np.minimum(factor, 3), value + slack)
    return Estimate(value, np.minimum(low, most), np.minimum(high, most))


def _rows_to_fit(labels: Labels, most: int) -> NDArray[np.intp]:
    """Random rows of at most so many cells."""
    wanted = max(1, most // labels.shape[1])
    if len(labels) <= wanted:
        return np.arange(len(labels))
    return np.sort(np.random.default_rng(0).choice(len(labels), wanted, replace=False))


class _Cells:
    """Cells counted by score, (B, L) each."""

    def __init__(self, scores: Floats, labels: Labels, observation: Observation, weights: Floats) -> None:
        self.scores, self.labels, self.observation, self.tally = scores, labels, observation, Tally(scores)
        bound, sums = ~observation.free, self.tally.sums
        self.bound_unknown = bound & (labels == UNKNOWN)
        self.positive, self.negative = (sums(bound & (labels == value)) for value in (POSITIVE, NEGATIVE))
        self.unknown = sums(self.bound_unknown)
        self.known_positive = sums(labels == POSITIVE)
        self.weights = sums(labels != UNKNOWN) + self.unknown  # free unknown cells say nothing
        fair = (observation.free & ~observation.asked) * weights[:, None]
        self.sampled_positive = sums(fair * (labels == POSITIVE))
        self.sampled = self.sampled_positive + sums(fair * (labels == NEGATIVE))
        self.sampled_share = _ratio(self.sampled_positive, self.sampled)
        # What was asked for had not been observed before, whatever it turned out to be.
        self.asked = [(observation.asked & (labels == value)).sum(0) for value in (POSITIVE, NEGATIVE)]
        self.shown = ((labels == POSITIVE) & bound).sum(1)

        # Of a row's m positives one was drawn; which of them is not known.
        drawn = ((labels == POSITIVE) & bound) / np.maximum(self.shown, 1)[:, None]
        self.extra = self.positive.sum(0) - (drawn.sum(0) if observation.drawn == 1 else 0)

    def lines(self, hidden: Floats, start: Platt | None = None) -> Platt:
        targets = _ratio(self.known_positive + hidden, self.weights)
        return fit_lines(self.tally.scores, targets, self.weights, start)

    def expected(self, lines: Platt, rates: Rates) -> tuple[Floats, Floats]:
        """The positives among unknown cells (B, L), and what rows that show 1 … k were allowed no more, (k,)."""
        drawn = self.observation.drawn
        if not drawn:
            chance = lines(self.tally.scores)
            hidden, absent = chance * (1 - rates.positive), (1 - chance) * (1 - rates.negative)
            return self.unknown * _ratio(hidden, hidden + absent), np.ones(0)
        found, stopped = self.observation.posterior_and_stopped(lines(self.scores), self.labels, rates)
        stops = np.array([stopped[self.shown == m].sum() / max((self.shown >= m).sum(), 1) for m in range(1, drawn)])
        stops[stops < _LEAST_STOP] = 0
        return self.tally.sums(np.where(self.bound_unknown, found, 0)), np.append(stops, 1.0)

    def rates(self, hidden: Floats, stop: Floats) -> Rates:
        """The shares of positives and of negatives that are observed, those of rare classes drawn to all.

        Beside a positive that is drawn, others are taken to be known at most as often as negatives are: a higher share
        can not be told from positives that come together.
        """
        drawn, absent = self.observation.drawn, (self.unknown - hidden).sum(0)
        negative = _pooled_share(self.negative.sum(0), absent + self.asked[1])
        positive = _pooled_share(self.extra, hidden.sum(0) + self.asked[0])
        beside = np.minimum(positive, negative)
        return Rates((positive, beside, np.zeros_like(negative))[min(drawn, 2)], negative, stop)


def _ratio(part: Floats, whole: Floats) -> Floats:
    ratio: Floats = np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)
    return ratio


def _pooled_share(known: Floats, unknown: Floats) -> Floats:
    together = known.sum() / max(known.sum() + unknown.sum(), 1e-9)
    shares: Floats = np.minimum((known + _POOLED * together) / (known + unknown + _POOLED), _HIGHEST_RATE)
    return shares


def _fit_ends(
    scores: Floats, labels: Labels, observation: Observation, weights: Floats
) -> tuple[Platt, Platt, Rates, _Cells]:
    """Lines if unknown means negative, and those of highest likelihood, with the rates that go with them."""
    cells = _Cells(scores, labels, observation, weights)
    seldom = lines = cells.lines(np.zeros(cells.tally.shape))
    guess, before = cells.unknown * lines(cells.tally.scores), np.zeros(scores.shape[1])
    rates = cells.rates(guess, np.append(np.full(max(observation.drawn - 1, 0), 0.5), 1.0))
    for _ in range(_STEPS_DRAWN if observation.drawn else _STEPS_AT_RANDOM):
        hidden, stop = cells.expected(lines, rates)
        rates, count = cells.rates(hidden, stop), hidden.sum(0)
        if np.abs(count - before).max() <= _EM_TOLERANCE * max(1.0, count.max()):
            break
        lines, before = cells.lines(hidden, lines), count
    return seldom, lines, rates, cells


def _place(seldom: Platt, often: Platt, rates: Rates, cells: _Cells, *, drawn: bool) -> tuple[float, float]:
    """Where between both lines the truth is thought to be, and how surely: a normal prior, times the likelihood of rows
    that were looked at in full.
    """
    negatives = cells.negative.sum() / max((cells.negative + cells.unknown).sum(), 1)
    mean, error = (1 - 0.5 * (1 - negatives) ** 2 if drawn else 1.0), _PLACE_SD * np.sqrt(1 - negatives) + 1e-3
    low, high = (lines.logits(cells.tally.scores) for lines in (seldom, often))
    places = mean + error * _PLACES
    evidence = np.array([_log_likelihood(low + place * (high - low), cells) for place in places])
    weight = np.exp(evidence - _PLACES**2 / 2 - (evidence - _PLACES**2 / 2).max())
    mean = float((weight * places).sum() / weight.sum())
    return mean, float(np.sqrt((weight * (places - mean) ** 2).sum() / weight.sum()))


def _log_likelihood(logits: Floats, cells: _Cells) -> float:
    return float((cells.sampled_positive * logits - cells.sampled * np.logaddexp(0, logits)).sum())


def _parameters(first: Platt, second: Platt) -> list[tuple[Floats, Floats]]:
    return [(first.slope, second.slope), (first.intercept, second.intercept)]
